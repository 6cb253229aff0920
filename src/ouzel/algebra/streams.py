"""Streams as immutable Python expressions, as users compose them, before names are resolved.

Each operator is a small class. Equal expressions compare equal, so that shared subexpressions can be found. Texts are
parsed at once, so a syntax error is raised by the call that contains it. Names and types are checked when the columns
of the input are known, which is at once if a stream declares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from ouzel.errors import InputError
from ouzel.lang import parse_expression
from ouzel.lang.syntax import Expr, Span

_parsed = lru_cache(maxsize=4096)(parse_expression)


class Placed(str):
    """A text that is part of a longer one, which errors show. It equals the same text from another place."""

    source: str
    span: Span
    # The tree of an expression, with its places in `source`.
    tree: Expr | None

    @classmethod
    def of(cls, text: str, source: str, span: Span, tree: Expr | None = None) -> Placed:
        made = cls(text)
        made.source, made.span, made.tree = source, span, tree
        return made


def parsed(text: str) -> Expr:
    """The syntax tree of an expression. Its positions refer to `source_of(text)`."""
    return text.tree if isinstance(text, Placed) and text.tree is not None else _parsed(text)


def source_of(text: str) -> str:
    """The text that errors about an expression show."""
    return text.source if isinstance(text, Placed) else text


@dataclass(frozen=True, slots=True, repr=False)
class Stream:
    """A stream of events with values, a start and an end. Make one with `ouzel.algebra.stream`."""

    def __repr__(self) -> str:
        return written(self)

    def select(self, condition: str) -> Stream:
        """The events for which a condition is true (σ)."""
        return checked(Select(self, _text(condition, "select")))

    def project(self, names: Iterable[str]) -> Stream:
        """The events with only these attributes (π)."""
        return checked(Project(self, _names(names)))

    def rename(self, names: Mapping[str, str]) -> Stream:
        """The events with attributes renamed, `{"price": "low"}` (ρ)."""
        _mapping(names, "rename", '{"price": "low"}')
        if not all(isinstance(name, str) for pair in names.items() for name in pair):
            raise InputError(f"rename(…) must be given names as text, got {names!r}")
        return checked(Rename(self, tuple(names.items())))

    def alias(self, name: str) -> Stream:
        """The events with each attribute `x` renamed to `name.x` (ρ), so that attributes of different streams have
        different names.

        >>> low, high = stream("Stock").alias("low"), stream("Stock").alias("high")
        >>> low.next(high, "high.name = low.name").select("high.price > 2 * low.price")
        Stock.alias('low').next(Stock.alias('high'), 'high.name = low.name').select('high.price > 2 * low.price')
        """
        if not isinstance(name, str) or not name:
            raise InputError(f"alias(…) must be given a name as text, got {name!r}")
        return checked(Alias(self, name))

    def extend(self, **values: str) -> Stream:
        """The events with more attributes, each of which is an expression over the others (α)."""
        return checked(Extend(self, tuple((name, _text(text, "extend")) for name, text in values.items())))

    def union(self, other: Stream) -> Stream:
        """The events of both streams, which must have the same attributes (∪)."""
        return checked(Union(self, checked_stream(other, "union")))

    def next(self, other: Stream, theta: str | None = None) -> Stream:
        """Each event combined with the first event of another stream that comes after it and satisfies theta (;θ).

        >>> quotes = stream("Stock")
        >>> rise = quotes.next(quotes.rename({"price": "later"}), "name = name.last AND later > 1.05 * price")
        """
        return checked(Next(self, checked_stream(other, "next"), None if theta is None else _text(theta, "next")))

    def fold(
        self,
        other: Stream,
        theta: str | None = None,
        step: Stream | str | None = None,
        first: Mapping[str, str] | None = None,
    ) -> Stream:
        """Each event, extended again and again by the next event of another stream (μ). The result of every iteration
        is an event.

        `step`, a condition or `ouzel.algebra.step()…`, is applied after each iteration, and can end the chain. `first`
        gives the values of `name.last` in the first iteration, for names that these events do not have.

        >>> quotes = stream("Stock")
        >>> rising = quotes.fold(quotes, "name = name.last", step="price > price.last")
        """
        if step is None:
            step = Iteration()
        elif isinstance(step, str):
            step = Select(Iteration(), _text(step, "fold"))
        _check_step(step)
        if first is not None:
            _mapping(first, "first= in fold", '{"low": "price"}')
        given = tuple((name, _text(text, "fold")) for name, text in (first or {}).items())
        return checked(
            Fold(self, checked_stream(other, "fold"), None if theta is None else _text(theta, "fold"), step, given)
        )


@dataclass(frozen=True, slots=True, repr=False)
class Base(Stream):
    """The events of one type of the input; of every type if `type` is None. `start` names a column with the start of
    events.
    """

    type: str | None
    columns: tuple[tuple[str, str], ...] | None = None
    start: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Iteration(Stream):
    """Used in a step: the result of one iteration of the fold."""


@dataclass(frozen=True, slots=True, repr=False)
class Select(Stream):
    input: Stream
    condition: str


@dataclass(frozen=True, slots=True, repr=False)
class Project(Stream):
    input: Stream
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, repr=False)
class Rename(Stream):
    input: Stream
    names: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Alias(Stream):
    input: Stream
    name: str


@dataclass(frozen=True, slots=True, repr=False)
class Extend(Stream):
    input: Stream
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Union(Stream):
    left: Stream
    right: Stream


@dataclass(frozen=True, slots=True, repr=False)
class Next(Stream):
    left: Stream
    right: Stream
    theta: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Fold(Stream):
    left: Stream
    right: Stream
    theta: str | None
    step: Stream
    first: tuple[tuple[str, str], ...] = ()


UNARY = (Select, Project, Rename, Alias, Extend)
BINARY = (Union, Next, Fold)


def stream(type: str | None = None, *, start: str | None = None, **columns: str) -> Stream:
    """The stream of all events of a type, or of every type.

    `columns` may declare the attributes, so that expressions over them are checked at once. For events with a duration,
    `start` names the column with their start. Their end is the time column of the input.

    >>> stream("Stock", name="string", price="double").select("price > 100").project(["name"])
    Stock.select('price > 100').project(['name'])
    """
    for what in (type, start, *columns.values()):
        if what is not None and not isinstance(what, str):
            raise InputError(f"stream(…): the event type, start= and the types of columns must be text, got {what!r}")
    return Base(type, tuple(columns.items()) or None, start)


def step() -> Stream:
    """The beginning of a step for fold: `step().select("price > price.last").extend(n="n.last + 1")`."""
    return Iteration()


def inputs_of(expression: Stream) -> tuple[Stream, ...]:
    """The input streams of an operator. The step of a fold does not count."""
    if isinstance(expression, UNARY):
        return (expression.input,)
    if isinstance(expression, BINARY):
        return (expression.left, expression.right)
    return ()


def bases(expression: Stream) -> list[Base]:
    """The different base streams of an expression, from left to right."""
    found: dict[Base, None] = {}
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, Base):
            found[node] = None
        stack.extend(reversed(inputs_of(node)))
    return list(found)


def written(expression: Stream) -> str:
    """The expression as Python code."""
    match expression:
        case Base(type=type_, start=start):
            name = type_ if type_ is not None else "stream()"
            return name if start is None else f"{name}[start={start}]"
        case Iteration():
            return "step()"
        case Select(input=below, condition=text):
            return f"{written(below)}.select({text!r})"
        case Project(input=below, names=names):
            return f"{written(below)}.project({list(names)!r})"
        case Rename(input=below, names=names):
            return f"{written(below)}.rename({dict(names)!r})"
        case Alias(input=below, name=name):
            return f"{written(below)}.alias({name!r})"
        case Extend(input=below, values=values):
            return f"{written(below)}.extend({', '.join(f'{n}={t!r}' for n, t in values)})"
        case Union(left=left, right=right):
            return f"{written(left)}.union({written(right)})"
        case Next(left=left, right=right, theta=theta):
            return f"{written(left)}.next({written(right)}{'' if theta is None else f', {theta!r}'})"
        case Fold(left=left, right=right, theta=theta, step=each, first=first):
            more = "" if theta is None else f", {theta!r}"
            more += "" if isinstance(each, Iteration) else f", step={written(each)}"
            more += f", first={dict(first)!r}" if first else ""
            return f"{written(left)}.fold({written(right)}{more})"
    raise AssertionError(f"{type(expression).__name__} is not a stream")


# ── As plain data ──────────────────────────────────────────────────────────────────────────────────

_OPERATORS: dict[str, type[Stream]] = {
    cls.__name__.lower(): cls for cls in (Base, Iteration, Select, Project, Rename, Alias, Extend, Union, Next, Fold)
}
# What older texts call an iteration.
_OPERATORS["round"] = Iteration


def encode(expression: Stream) -> dict[str, Any]:
    """The expression as plain JSON values.

    >>> decode(encode(stream("A").select("x > 1"))) == stream("A").select("x > 1")
    True
    """
    body: dict[str, Any] = {"operator": type(expression).__name__.lower()}
    for field in fields(expression):
        value = getattr(expression, field.name)
        body[field.name] = encode(value) if isinstance(value, Stream) else value
    return body


def decode(body: Mapping[str, Any]) -> Stream:
    """The expression from the values that `encode` returned."""
    values = {
        name: decode(value) if isinstance(value, Mapping) else _tuples(value)
        for name, value in body.items()
        if name != "operator"
    }
    return _OPERATORS[body["operator"]](**values)


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list | tuple) else value


# ── Checks ─────────────────────────────────────────────────────────────────────────────────────────


def _text(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise InputError(f"{where}(…) must be given expressions as text, got a {type(text).__name__}")
    parsed(text)
    return text


def _names(names: Any) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else tuple(names) if isinstance(names, Iterable) else (names,)
    for name in found:
        if not isinstance(name, str):
            raise InputError(f"project(…) must be given a list of names, got {name!r}")
    return found


def _mapping(given: Any, where: str, example: str) -> None:
    if not isinstance(given, Mapping):
        raise InputError(f"{where}(…) must be given a dictionary like {example}, got a {type(given).__name__}")


def checked_stream(other: Any, where: str) -> Stream:
    if not isinstance(other, Stream) or _has_iteration(other):
        what = "a step" if isinstance(other, Stream) else f"a {type(other).__name__}"
        raise InputError(f"{where}(…) must be given a stream of ouzel.algebra, got {what}")
    return other


def _has_iteration(expression: Stream) -> bool:
    return isinstance(expression, Iteration) or any(_has_iteration(below) for below in inputs_of(expression))


def _check_step(each: Any) -> None:
    below = each
    while isinstance(below, UNARY) and not isinstance(below, Alias):
        below = below.input
    if not isinstance(below, Iteration):
        raise InputError(
            "the step of fold(…) must be a condition or ouzel.algebra.step() with select, project, rename and extend"
        )


def checked(made: Stream) -> Stream:
    """The same expression. If all its streams declare their columns, its names and types are checked now."""
    if _has_iteration(made) or not all(base.columns is not None for base in bases(made)):
        return made
    from ouzel.algebra.binding import check

    check(made)
    return made
