"""Queries that differ only in constants: the first one is parsed and bound, and the others are copies of it with their
own constants.

The *shape* of a text is the text without its plain numbers and strings. Texts of one shape have the same syntax tree,
except for these literals and for positions, which depend on the lengths of the literals. They also have the same bound
query if their literals are only compared with other values. Binding depends on the types of such literals and on which
of them are equal. So there is one form for each way in which literals can be equal. In all other cases, and for every
text with a mistake, the text itself is parsed and bound.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from decimal import Decimal
from typing import Any

from ouzel.bind.binder import bind_with
from ouzel.bind.expressions import nodes
from ouzel.bind.literals import Parameters
from ouzel.bind.model import (
    FLOAT,
    INT,
    STRING,
    AggregateColumn,
    Bound,
    BoundQuery,
    Catalog,
    Component,
    Conjunct,
    Constant,
    EquivalenceTest,
    GroupKey,
    OutputColumn,
    Type,
)
from ouzel.errors import QueryError
from ouzel.lang import parse, syntax
from ouzel.lang.syntax import Span

# Numbers whose digits a float keeps, and strings without escapes, with nothing written directly after them.
_LITERAL = re.compile(r"(?<![\w.%'-])(?:'([^'\\\x00-\x1f\x7f]*)'|((?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,6})?))(?![\w.%'])")
# The name of a query or parameter, a quoted name, or a comment.
_UNUSUAL = re.compile(r"[:\"`#\\]|--|//|/\*")
_CHARACTERS_MAX = 10_000
_SHAPES_MAX = 1_000
_FORMS_MAX = 256
_COMPARISONS = frozenset({"=", "!=", "<", "<=", ">", ">="})
_PARTS = (Bound, Conjunct, Component, EquivalenceTest, OutputColumn, GroupKey, AggregateColumn, syntax.Node)
_TYPES: dict[type, Type] = {int: INT, float: FLOAT, Decimal: FLOAT, str: STRING}

Value = int | Decimal | str


@dataclass(slots=True)
class _Form:
    """A bound query in which constants can be filled in. If it is None, queries of this form must be bound one by
    one.
    """

    catalog: Catalog
    bound: BoundQuery | None = None
    makers: Mapping[str, _Make] = field(default_factory=dict)  # by field


@dataclass(slots=True)
class _Shape:
    """The first text of a shape, and the positions of its literals."""

    text: str
    tree: syntax.Query
    spans: tuple[Span, ...]
    # Literals that are nodes of the tree. The others are equal in all texts of the shape.
    filled: tuple[int, ...]
    make: _Make
    # Literals of WHERE that are only compared. None if WHERE has other values, which might be equal to them.
    free: tuple[int, ...]
    # By whether a stream is read, the values of all other literals, and which free literals are equal.
    forms: dict[Any, list[_Form]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Filled:
    """A query made from the first query of its shape, with its own literals."""

    tree: syntax.Query
    shape: _Shape
    values: tuple[Value, ...]
    moves: Mapping[Span, Span]


# By the text around literals and their kinds: which literals are fixed because they are part of another token, such as
# a duration; then by the values of those as well.
_shapes: dict[tuple[str, ...], tuple[int, ...]] = {}
_known: dict[tuple[Any, ...], _Shape] = {}


def parsed(text: str) -> tuple[syntax.Query, Filled | None]:
    """(tree, filled): the tree of a query, as `parse` returns it; and, if the tree was made from another one, what
    `bound` needs.

    >>> [parsed(f"PATTERN A a WHERE a.x > {limit} WITHIN 5")[0].where.right.value for limit in (1, 20)]
    [1, 20]
    """
    if not isinstance(text, str) or len(text) > _CHARACTERS_MAX or _UNUSUAL.search(text):
        return parse(text), None
    found = list(_LITERAL.finditer(text))
    values = tuple(_value(one) for one in found)
    ends = [0, *(one.end() for one in found)]
    outside = [text[end:begin] for end, begin in zip(ends, [*(one.start() for one in found), len(text)], strict=True)]
    key = (*outside, *(type(value).__name__ for value in values))
    fixed = _shapes.get(key)
    if fixed is not None:
        shape = _known.get((key, *(found[number][0] for number in fixed)))
        if shape is not None:
            spans = [Span(one.start(), one.end()) for one in found]
            return _filled(shape, spans, values)
    tree = parse(text)
    _learn(key, text, tree, found, values)
    return tree, None


def _value(found: re.Match[str]) -> Value:
    if found[1] is not None:
        return found[1]
    return Decimal(found[2]) if "." in found[2] else int(found[2])


def _learn(
    key: tuple[str, ...], text: str, tree: syntax.Query, found: list[re.Match[str]], values: tuple[Value, ...]
) -> None:
    """Store the first text of a shape."""
    at = {(node.span.start, node.span.end): node for node in nodes(tree) if isinstance(node, syntax.Literal)}
    literals = [at.get(one.span()) for one in found]
    fixed = tuple(
        number
        for number, (literal, value) in enumerate(zip(literals, values, strict=True))
        if literal is None or literal.value != value or type(literal.value) is not type(value)
    )
    if len(_known) >= _SHAPES_MAX:
        _known.clear()
        _shapes.clear()
    _shapes[key] = fixed
    filled = tuple(number for number in range(len(found)) if number not in fixed)
    free = _free(tree.where, {id(literals[number]): number for number in filled})
    spans = tuple(Span(*one.span()) for one in found)
    make = _tree_maker(tree, spans[0].start if spans else len(text), {spans[k].start: k for k in filled})
    _known[key, *(found[number][0] for number in fixed)] = _Shape(text, tree, spans, filled, make, free)


def _free(where: syntax.Expr | None, numbers: Mapping[int, int]) -> tuple[int, ...]:
    """The literals in WHERE that are compared with other values, if WHERE has no other literals."""
    if where is None:
        return ()
    compared: set[int] = set()
    valued: set[int] = set()
    for node in nodes(where):
        match node:
            case syntax.Binary(operator=operator, left=left, right=right) if operator in _COMPARISONS:
                compared |= {id(left), id(right)}
            case syntax.In(items=items):
                compared |= {id(item) for item in items}
            case syntax.Between(low=low, high=high):
                compared |= {id(low), id(high)}
            case syntax.Literal(value=str() | int() | Decimal()):
                valued.add(id(node))
            case syntax.Percent() | syntax.Temporal() | syntax.Duration() | syntax.Parameter() | syntax.Like():
                return ()
    return tuple(sorted(numbers[one] for one in valued)) if valued <= compared & numbers.keys() else ()


# ── Trees ──────────────────────────────────────────────────────────────────────────────────────────


def _filled(shape: _Shape, spans: list[Span], values: tuple[Value, ...]) -> tuple[syntax.Query, Filled]:
    by = [0, *(new.end - old.end for new, old in zip(spans, shape.spans, strict=True))]
    moves = _Moves([span.start for span in shape.spans], by)
    tree = shape.make(moves, values)
    return tree, Filled(tree, shape, values, moves)


class _Moves(dict[Span, Span]):
    """Maps positions in the first text to positions in another text."""

    def __init__(self, starts: list[int], by: list[int]) -> None:
        self._starts, self._by = starts, by

    def __missing__(self, span: Span) -> Span:
        start = span.start + self._by[bisect_left(self._starts, span.start)]
        end = span.end + self._by[bisect_left(self._starts, span.end)]
        moved = span if span == syntax.NOWHERE else Span(start, end)
        self[span] = moved
        return moved


_names: dict[type, tuple[str, ...] | None] = {}


def _names_of(kind: type) -> tuple[str, ...] | None:
    """The fields of a node; None for values that are the same in every text."""
    if kind not in _names:
        walked = is_dataclass(kind) and issubclass(kind, _PARTS)
        _names[kind] = tuple(one.name for one in fields(kind)) if walked else None
    return _names[kind]


# Makes a part of a tree from the spans and values of another text.
_Make = Callable[[Mapping[Span, Span], Sequence[Value]], Any]


def _maker(part: Any, first: int, slot: Callable[[Any], _Make | None]) -> _Make | None:
    """A function that makes a tree (syntax or bound) for another text; None if the tree is the same there.

    `first` is the position of the first literal. `slot` returns the function that makes a node with a literal.
    """
    kind = part.__class__
    if kind is Span:
        return None if part.end <= first else lambda moves, values: moves[part]
    if kind is tuple:
        items = [_maker(item, first, slot) for item in part]
        if not any(items):
            return None
        pairs = list(zip(items, part, strict=True))
        return lambda moves, values: tuple([item if make is None else make(moves, values) for make, item in pairs])
    names = _names_of(kind)
    if names is None:
        return None
    filled = slot(part)
    if filled is not None:
        return filled
    makers = {name: make for name in names if (make := _maker(getattr(part, name), first, slot)) is not None}
    same = {name: getattr(part, name) for name in names if name not in makers}
    changing = list(makers.items())

    def made(moves: Mapping[Span, Span], values: Sequence[Value]) -> Any:
        return kind(**same, **{name: make(moves, values) for name, make in changing})

    return made if makers else None


def _tree_maker(tree: syntax.Query, first: int, literals: Mapping[int, int]) -> _Make:
    """A function that makes the syntax tree for another text. `literals` maps positions to the numbers of the literals
    to fill in.
    """

    def slot(node: Any) -> _Make | None:
        number = literals.get(node.span.start) if node.__class__ is syntax.Literal else None
        if number is None:
            return None
        return lambda moves, values: syntax.Literal(values[number], span=moves[node.span])

    return _maker(tree, first, slot) or (lambda moves, values: tree)


# ── Bound queries ──────────────────────────────────────────────────────────────────────────────────


def is_right(filled: Filled, catalog: Catalog) -> bool:
    """Whether it is known that the query binds to a catalog without an error."""
    form = _form_of(filled, catalog, False)
    return form is not None and form.bound is not None


def bound(filled: Filled, text: str, catalog: Catalog, *, name: str, streaming: bool) -> BoundQuery | None:
    """The query as `bind` returns it; None if it must be bound from its own text."""
    form = _form_of(filled, catalog, streaming)
    if form is None or form.bound is None:
        return None
    changes = {part: make(filled.moves, filled.values) for part, make in form.makers.items()}
    tree = filled.tree
    result_type = (tree.returns.name if tree.returns else None) or tree.into or name
    return replace(form.bound, name=name, text=text, result_type=result_type, catalog=catalog, **changes)


# Every field that holds positions.
_MOVED = ("components", "conjuncts", "equivalences", "returns", "group_by", "aggregates", "having")


def _form_of(filled: Filled, catalog: Catalog, streaming: bool) -> _Form | None:
    shape, values = filled.shape, filled.values
    equal = _equalities([values[number] for number in shape.free])
    if not equal:
        return None
    fixed = tuple(values[number] for number in shape.filled if number not in shape.free)
    forms = shape.forms.setdefault((streaming, fixed, equal), [])
    for form in forms:
        if form.catalog is catalog or form.catalog == catalog:
            return form
    if sum(map(len, shape.forms.values())) >= _FORMS_MAX:
        shape.forms.clear()
    form = _form(filled, catalog, streaming, equal)
    shape.forms.setdefault((streaming, fixed, equal), []).append(form)
    return form


def _equalities(values: list[Value]) -> tuple[int, ...] | None:
    """For each literal, the first literal that equals it; None if two equal numbers are written differently."""
    first: dict[Any, int] = {}
    for number, value in enumerate(values):
        known = first.setdefault(value, number)
        if type(values[known]) is not type(value):
            return None
    return tuple(first[value] for value in values)


def _form(filled: Filled, catalog: Catalog, streaming: bool, equal: tuple[int, ...]) -> _Form:
    """The form of a shape: its first tree is bound with a unique stand-in for each literal, and the stand-ins are then
    found by value.
    """
    shape, values = filled.shape, filled.values
    given = list(values)
    numbers: dict[Any, int] = {}
    for number, first in zip(shape.free, equal, strict=True):
        stand_in = _stand_in(values[number], first)
        given[number] = stand_in
        numbers[stand_in] = shape.free[first]
        if not isinstance(stand_in, str):
            numbers[float(stand_in)] = shape.free[first]

    tree = shape.make(_Still(), given)
    try:
        made = bind_with(tree, shape.text, catalog, Parameters({}), name="query", streaming=streaming)
    except QueryError:
        return _Form(catalog)
    tests = [one for one in _constants(made.conjuncts) if one.value in numbers]
    others = [one for part in _MOVED if part != "conjuncts" for one in _constants(getattr(made, part))]
    is_certain = (
        not made.defaults
        and {numbers[one.value] for one in tests} == set(numbers.values())
        and all(one.type == _TYPES[type(one.value)] for one in tests)
        and not any(one.value in numbers for one in others)
    )
    if not is_certain:
        return _Form(catalog)

    def slot(node: Any) -> _Make | None:
        if node.__class__ is not Constant or node.value not in numbers:
            return None
        number: int = numbers[node.value]
        kind: Any = node.value.__class__
        return lambda moves, values: Constant(kind(values[number]), type=node.type, span=moves[node.span])

    makers = {part: _maker(getattr(made, part), shape.spans[0].start, slot) for part in _MOVED}
    return _Form(catalog, made, {part: make for part, make in makers.items() if make is not None})


class _Still(dict[Span, Span]):
    def __missing__(self, span: Span) -> Span:
        return span


def _stand_in(value: Value, number: int) -> Value:
    """A value of the same type that occurs in no query. `number` makes it unique."""
    if isinstance(value, str):
        return f"\ufdd0 {number}"
    if isinstance(value, int):
        return 4_000_000_000_000 + number
    return Decimal(f"{5_000_000_000 + number}.1")


def _constants(part: Any) -> Iterator[Constant]:
    if part.__class__ is tuple:
        for item in part:
            yield from _constants(item)
    elif isinstance(part, Constant):
        yield part
    elif (names := _names_of(part.__class__)) is not None:
        for name in names:
            yield from _constants(getattr(part, name))
