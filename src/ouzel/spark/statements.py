"""`sql`: statements of Spark SQL with `table MATCH_RECOGNIZE (…)` or `ouzel_match(events, 'PATTERN …')` as a table.

The statement is not fully parsed. Each clause and each call is cut out and becomes a DataFrame, and Spark gets the
statement with a placeholder in its place. Query texts and names never become part of the statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ouzel.bind import parameter_names
from ouzel.bind.diagnostics import nearest
from ouzel.errors import InputError, QueryError
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.statements import Clause, Token, called, cut_clauses, tokens
from ouzel.spark.api import match, match_recognize

FUNCTION = "ouzel_match"
_OPTIONS = frozenset(signature(match).parameters) - {"events", "query"}
_USAGE = "write ouzel_match(events, 'PATTERN …', time => 'ts'), with a table, a view or a {DataFrame}"


def sql(spark: SparkSession, statement: str, /, *, params: Mapping[str, Any] | None = None, **names: Any) -> DataFrame:
    """Run a statement of Spark SQL in which `table MATCH_RECOGNIZE (…)` gives the rows of a row pattern, and
    `ouzel_match(events, 'PATTERN …')` the matches of a query.

    The table before MATCH_RECOGNIZE is a table, a view, a subquery in parentheses, a name from WITH, or `{name}`, which
    is a DataFrame given by name, as in `spark.sql`. `params` has the values of `:name` in clauses. The query in
    `ouzel_match` is a string literal, or `{name}`, which is a text or an `ouzel.Query`. Options of `match` follow as
    `name => value`.

    >>> sql(spark, "SELECT sym, max(n) FROM {ticks} MATCH_RECOGNIZE (PARTITION BY sym …) GROUP BY sym",
    ...     ticks=ticks)                                                                      # doctest: +SKIP
    >>> pairs = "PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 12 hours RETURN Pair(a.tag AS tag)"
    >>> sql(spark, "SELECT tag, count(*) FROM ouzel_match({readings}, {pairs}) GROUP BY tag",
    ...     readings=readings, pairs=pairs)                                                   # doctest: +SKIP
    """
    for name, value in names.items():
        # As in spark.sql, a DataFrame may be given for several statements.
        if not hasattr(value, "sparkSession") and not re.search(rf"\{{\s*{re.escape(name)}\b", statement):
            raise QueryError(f"the statement does not use '{name}'; write {{{name}}} in it, or leave {name}= out")
    host = _Host(spark, statement, names, dict(params or {}))
    found = host.frame(host.cut(list(tokens(statement, backslashes=True))))
    if host.params.keys() - host.used:
        raise QueryError(f"no clause of the statement uses the parameter '{min(host.params.keys() - host.used)}'")
    return found


@dataclass
class _Host:
    """The names that a statement reads, and the DataFrames of its clauses and calls."""

    spark: SparkSession
    statement: str
    names: dict[str, Any]
    params: dict[str, Any]
    used: set[str] = field(default_factory=set)
    found: dict[str, DataFrame] = field(default_factory=dict)

    def cut(self, given: list[Token]) -> list[Token]:
        """The tokens of a statement, with placeholders in place of its calls and clauses."""
        text: list[Token] = []
        place = 0
        while place < len(given):
            parentheses = called(given, place, FUNCTION)
            if parentheses is None:
                text.append(given[place])
                place += 1
                continue
            opening, end = parentheses
            matches = _Call(self, given[opening + 1 : end]).matches()
            text.append(self._add(FUNCTION, matches, given[place].at))
            place = end + 1
        return cut_clauses(self.statement, text, self._recognized)

    def frame(self, text: list[Token]) -> DataFrame:
        """The DataFrame that Spark returns for a statement."""
        known = {**self.names, **self.found}
        read = {name for token in text if (name := _placeholder(token)) in known}
        if not read:
            # Without names Spark does not read braces.
            return self.spark.sql("".join(token.text for token in text))
        written = "".join(_escaped(token, known) for token in text)
        return self.spark.sql(written, **{name: known[name] for name in known if name in read})

    def _recognized(self, clause: Clause) -> Token:
        with clause.placing():
            needed = parameter_names(parse_row_pattern(clause.text))
            self.used |= needed
            params = {name: value for name, value in self.params.items() if name in needed}
            found = match_recognize(self.frame(list(clause.source)), clause.text, params=params)
        return self._add("match_recognize", found, clause.at)

    def _add(self, kind: str, found: DataFrame, at: int) -> Token:
        name = f"{kind}_{len(self.found)}"
        while name in self.names:
            name += "_"
        self.found[name] = found
        return Token("placeholder", "{" + name + "}", at)


def _placeholder(token: Token) -> str | None:
    return token.text[1:-1].strip() if token.kind == "placeholder" else None


def _escaped(token: Token, names: Mapping[str, Any]) -> str:
    """A token for Spark's formatter. Its braces are escaped, except around a given name."""
    name = _placeholder(token)
    return f"{{{name}}}" if name in names else token.text.replace("{", "{{").replace("}", "}}")


# ── Calls ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Call:
    """The arguments of one call of `ouzel_match`."""

    host: _Host
    tokens: list[Token]

    def matches(self) -> DataFrame:
        positional: list[list[Token]] = []
        options: dict[str, Any] = {}
        for argument in _arguments(self.tokens):
            if len(argument) > 1 and argument[0].kind == "word" and argument[1].kind == "arrow":
                name = argument[0].text
                if name not in _OPTIONS:
                    hint = nearest(name, _OPTIONS) or "help(ouzel.spark.match) lists them"
                    raise InputError(f"ouzel_match has no option '{name}'; {hint}")
                options[name] = self._value(argument[2:])
            elif options:
                raise InputError(f"arguments without a name come first in ouzel_match; {_USAGE}")
            else:
                positional.append(argument)
        if len(positional) != 2:
            raise InputError(f"ouzel_match takes events and a query, and this call has {len(positional)}; {_USAGE}")
        query = self._value(positional[1])
        found = match(self._events(positional[0]), query, **options)
        if not isinstance(found, DataFrame):
            raise InputError("ouzel_match takes one query; call it once for each")
        return found

    def _value(self, argument: list[Token]) -> Any:
        if len(argument) == 1:
            (token,) = argument
            if token.kind == "string":
                return _literal(token.text)
            if token.kind == "number":
                return int(token.text)
            if token.is_word("true", "false", "null"):
                return {"true": True, "false": False, "null": None}[token.text.lower()]
            if token.kind == "placeholder":
                return self._named(token)
        written = "".join(token.text for token in argument)
        raise InputError(f"the argument {written!r} of ouzel_match must be a literal or {{name}}; {_USAGE}")

    def _events(self, argument: list[Token]) -> Any:
        if argument and argument[0].text.lower() == "table" and len(argument) > 1:
            argument = argument[1:]
        if len(argument) > 2 and (argument[0].text, argument[-1].text) == ("(", ")"):
            inner = [token for token in argument[1:-1] if token.kind != "space"]
            if inner and inner[0].is_word("select", "with", "values", "from"):
                return self.host.frame(self.host.cut(argument[1:-1]))
            argument = inner
        if len(argument) == 1 and argument[0].kind == "placeholder":
            return self._named(argument[0])
        if argument and all(token.kind in ("word", "quoted") or token.text == "." for token in argument):
            return self.host.spark.table("".join(token.text for token in argument))
        written = "".join(token.text for token in argument)
        raise InputError(f"the events {written!r} of ouzel_match must be a table or a (SELECT …); {_USAGE}")

    def _named(self, token: Token) -> Any:
        name = _placeholder(token)
        if name not in self.host.names:
            raise InputError(f"there is no {token.text} among the names given to ouzel.spark.sql; add {name}=…")
        return self.host.names[name]


def _arguments(given: list[Token]) -> Iterator[list[Token]]:
    """The tokens of each argument of a call, without spaces. Spaces inside parentheses are kept, because these may hold
    a subquery.
    """
    argument: list[Token] = []
    depth = 0
    for token in given:
        if token.kind == "other":
            depth += {"(": 1, ")": -1}.get(token.text, 0)
        if depth == 0 and token.text == ",":
            yield argument
            argument = []
        elif depth or token.kind != "space":
            argument.append(token)
    if argument:
        yield argument


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
