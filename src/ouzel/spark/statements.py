"""`sql`: statements of Spark SQL with `ouzel_match(events, 'PATTERN …')` in place of a table.

The statement is cut, not parsed: literals, quoted names and comments are skipped, each call of `ouzel_match` becomes a
DataFrame by `ouzel.spark.match`, and Spark gets the statement with a placeholder for it. Texts of queries and names
never become a part of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ouzel.bind.diagnostics import nearest
from ouzel.errors import InputError
from ouzel.spark.api import match

FUNCTION = "ouzel_match"
_OPTIONS = frozenset(signature(match).parameters) - {"events", "query"}
_USAGE = "write ouzel_match(events, 'PATTERN …', time => 'ts'), with a table, a view or a {DataFrame}"

# Comments nest in Spark, so their ends are found by counting.
_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<string>[rR]?(?:'(?:''|\\.|[^'\\])*'|"(?:""|\\.|[^"\\])*"))
      | (?P<quoted>`(?:``|[^`])*`)
      | (?P<placeholder>\{\s*\w+\s*\})
      | (?P<word>[^\W\d]\w*)
      | (?P<number>\d+(?!\w))
      | (?P<arrow>=>)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


def sql(spark: SparkSession, statement: str, /, **names: Any) -> DataFrame:
    """Run a statement of Spark SQL, in which `ouzel_match(events, 'PATTERN …')` gives the matches of a query.

    `events` is a table, a view, a subquery in parentheses or `{name}`, a DataFrame given by name, as in `spark.sql`.
    The query is a literal, or `{name}` of a text or an `ouzel.Query`. Options of `match` follow as `name => value`.

    >>> pairs = "PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 12 hours RETURN Pair(a.tag AS tag)"
    >>> sql(spark, "SELECT tag, count(*) FROM ouzel_match({readings}, {pairs}) GROUP BY tag",
    ...     readings=readings, pairs=pairs)                                                   # doctest: +SKIP
    """
    found: dict[str, DataFrame] = {}
    text: list[str] = []
    tokens = list(_tokens(statement))
    place = 0
    while place < len(tokens):
        end = _end_of_call(tokens, place)
        if end is None:
            text.append(_escaped(tokens[place], names))
            place += 1
            continue
        opening = next(at for at in range(place, end) if tokens[at].text == "(")
        name = f"{FUNCTION}_{len(found)}"
        while name in names:
            name += "_"
        found[name] = _matches(spark, tokens[opening + 1 : end], names)
        text.append("{" + name + "}")
        place = end + 1
    used = found | {name: value for name, value in names.items() if f"{{{name}}}" in text}
    # Without names Spark does not read braces.
    return spark.sql("".join(text), **used) if used else spark.sql(statement)


# ── Cutting ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int


def _tokens(statement: str) -> Iterator[_Token]:
    at = 0
    while at < len(statement):
        found = _TOKEN.match(statement, at)
        assert found is not None and found.lastgroup is not None
        kind, end = found.lastgroup, found.end()
        if kind == "comment":
            end = _end_of_comment(statement, at)
            kind = "space"
        yield _Token(kind, statement[at:end], at)
        at = end


def _end_of_comment(statement: str, at: int) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", statement[at:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return at + mark.end()
    return len(statement)


def _end_of_call(tokens: list[_Token], place: int) -> int | None:
    """Where a call of the function ends, if one starts here."""
    if tokens[place].kind != "word" or tokens[place].text.lower() != FUNCTION:
        return None
    if any(token.text == "." for token in tokens[max(0, place - 1) : place]):
        return None  # a name in a schema
    after = place + 1
    while after < len(tokens) and tokens[after].kind == "space":
        after += 1
    if after == len(tokens) or tokens[after].text != "(":
        return None
    depth = 0
    for end in range(after, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[end].text, 0) if tokens[end].kind == "other" else 0
        if depth == 0:
            return end
    raise InputError(f"the parenthesis of ouzel_match at character {tokens[place].at + 1} is not closed; {_USAGE}")


def _escaped(token: _Token, names: Mapping[str, Any]) -> str:
    """A token for Spark's formatter: its braces are text, except in the placeholder of a name."""
    if token.kind == "placeholder" and token.text[1:-1].strip() in names:
        return "{" + token.text[1:-1].strip() + "}"
    return token.text.replace("{", "{{").replace("}", "}}")


# ── Calls ──────────────────────────────────────────────────────────────────────────────────────────


def _matches(spark: SparkSession, tokens: list[_Token], names: Mapping[str, Any]) -> DataFrame:
    positional: list[list[_Token]] = []
    options: dict[str, Any] = {}
    for argument in _arguments(tokens):
        if len(argument) > 1 and argument[0].kind == "word" and argument[1].kind == "arrow":
            name = argument[0].text
            if name not in _OPTIONS:
                hint = nearest(name, _OPTIONS) or "help(ouzel.spark.match) lists them"
                raise InputError(f"ouzel_match has no option '{name}'; {hint}")
            options[name] = _value(argument[2:], names)
        elif options:
            raise InputError(f"arguments without a name come first in ouzel_match; {_USAGE}")
        else:
            positional.append(argument)
    if len(positional) != 2:
        raise InputError(f"ouzel_match takes events and a query, and this call has {len(positional)}; {_USAGE}")
    query = _value(positional[1], names)
    found = match(_events(spark, positional[0], names), query, **options)
    if not isinstance(found, DataFrame):
        raise InputError("ouzel_match takes one query; call it once for each")
    return found


def _arguments(tokens: list[_Token]) -> Iterator[list[_Token]]:
    """The arguments of a call. Spaces are left out, except inside of parentheses, which may hold a subquery."""
    argument: list[_Token] = []
    depth = 0
    for token in tokens:
        if token.kind == "other":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.text == ",":
            yield argument
            argument = []
        elif depth or token.kind != "space":
            argument.append(token)
    if argument:
        yield argument


def _value(argument: list[_Token], names: Mapping[str, Any]) -> Any:
    if len(argument) == 1:
        (token,) = argument
        if token.kind == "string":
            return _literal(token.text)
        if token.kind == "number":
            return int(token.text)
        if token.kind == "word" and token.text.lower() in ("true", "false", "null"):
            return {"true": True, "false": False, "null": None}[token.text.lower()]
        if token.kind == "placeholder":
            return _named(token, names)
    written = "".join(token.text for token in argument)
    raise InputError(f"the argument {written!r} of ouzel_match must be a literal or {{name}}; {_USAGE}")


def _events(spark: SparkSession, argument: list[_Token], names: Mapping[str, Any]) -> Any:
    if argument and argument[0].text.lower() == "table" and len(argument) > 1:
        argument = argument[1:]
    if len(argument) > 2 and (argument[0].text, argument[-1].text) == ("(", ")"):
        inner = [token for token in argument[1:-1] if token.kind != "space"]
        if inner and inner[0].text.lower() in ("select", "with", "values", "from"):
            return sql(spark, "".join(token.text for token in argument[1:-1]), **names)
        argument = inner
    if len(argument) == 1 and argument[0].kind == "placeholder":
        return _named(argument[0], names)
    if argument and all(token.kind in ("word", "quoted") or token.text == "." for token in argument):
        return spark.table("".join(token.text for token in argument))
    written = "".join(token.text for token in argument)
    raise InputError(f"the events {written!r} of ouzel_match must be a table or a (SELECT …); {_USAGE}")


def _named(token: _Token, names: Mapping[str, Any]) -> Any:
    name = token.text[1:-1].strip()
    if name not in names:
        raise InputError(f"there is no {token.text} among the names given to ouzel.spark.sql; add {name}=…")
    return names[name]


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "0": "\0", "Z": "\x1a", "%": "\\%", "_": "\\_"}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-3][0-7]{2}|.)|(''|\"\")", re.DOTALL)


def _literal(text: str) -> str:
    r"""The value of a string literal.

    >>> print(_literal("'a.name = ''x'''"), _literal('"a.name = \'\'"'), _literal(r"'it\'s'"), _literal(r"r'\d'"))
    a.name = 'x' a.name = '' it's \d
    """
    if text[0] in "rR":
        return text[2:-1]
    quote = text[0]
    return _ESCAPE.sub(lambda found: _unescaped(found[1], found[2], quote), text[1:-1])


def _unescaped(code: str | None, doubled: str, quote: str) -> str:
    if code is None:
        # Only the quotes of the literal itself are doubled in it.
        return quote if doubled == 2 * quote else doubled
    if len(code) > 1:
        return chr(int(code[1:], 16)) if code[0] in "uU" else chr(int(code, 8))
    return _ESCAPES.get(code, code)
