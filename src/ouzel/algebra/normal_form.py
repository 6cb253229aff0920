"""Theorem 3 of the CESAR paper as a rewrite rule: any sequence of unary operators equals one selection, one renaming,
one extension and one projection, F = π ∘ α ∘ ρ ∘ σ.

The rule shows what an expression computes, and whether two expressions are equal. The binder does not need it, because
it expresses every condition in terms of input events.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ouzel.algebra.binding import bind
from ouzel.algebra.streams import (
    UNARY,
    Alias,
    Extend,
    Fold,
    Next,
    Project,
    Rename,
    Select,
    Stream,
    Union,
    parsed,
)
from ouzel.bind.model import Catalog
from ouzel.lang import format_expression
from ouzel.lang.stream_syntax import reference_to
from ouzel.lang.syntax import NOWHERE, Expr, Logical, Node, Reference


def normal_form(
    expression: Stream, catalog: Catalog | None = None, *, time: str | None = None, type: str | None = None
) -> Stream:
    """An equal expression, in which every sequence of unary operators is in normal form.

    A sequence of operators stays unchanged if its names conflict and the columns of the input are not known.

    >>> from ouzel.algebra.streams import stream
    >>> normal_form(stream("A").extend(n="x + 1").rename({"n": "m"}).select("m > 3").project(["m"]))
    A.select('x + 1 > 3').extend(m='x + 1').project(['m'])
    """
    return _Rule(catalog or Catalog(), time, type).rewritten(expression)


@dataclass(frozen=True)
class _Rule:
    catalog: Catalog
    time: str | None
    type: str | None

    def rewritten(self, expression: Stream) -> Stream:
        row: list[Stream] = []
        below = expression
        while isinstance(below, UNARY):
            row.insert(0, below)
            below = below.input
        match below:
            case Union(left=left, right=right):
                made: Stream = Union(self.rewritten(left), self.rewritten(right))
            case Next(left=left, right=right, theta=theta):
                made = Next(self.rewritten(left), self.rewritten(right), theta)
            case Fold(left=left, right=right, theta=theta, step=each, first=first):
                made = Fold(self.rewritten(left), self.rewritten(right), theta, self._step(each), first)
            case _:
                made = below
        return self._row(row, made, self._columns(below)) if row else made

    def _step(self, each: Stream) -> Stream:
        row: list[Stream] = []
        below = each
        while isinstance(below, UNARY):
            row.insert(0, below)
            below = below.input
        # The result of an iteration depends on the fold around it.
        return self._row(row, below, None, in_step=True) if row else each

    def _columns(self, below: Stream) -> tuple[str, ...] | None:
        """The attributes of a stream, in order; None if not all of them are known."""
        (*_, stream) = bind(below, self.catalog, time=self.time, type=self.type).streams
        return None if stream.branches[0].open else tuple(stream.columns)

    def _row(
        self, row: list[Stream], below: Stream, columns: tuple[str, ...] | None, *, in_step: bool = False
    ) -> Stream:
        meaning = _Meaning(columns, in_step)
        try:
            for operator in row:
                meaning.apply(operator)
            return meaning.written_over(below)
        except _InTheWay:
            made = below
            for operator in row:
                made = replace(operator, input=made)  # type: ignore[call-arg]
            return made


class _InTheWay(Exception):
    """Raised if the names in a sequence of operators conflict, and too little is known about the input to choose other
    names.
    """


class _Meaning:
    """The result of a sequence of unary operators, in terms of the attributes below it."""

    def __init__(self, columns: tuple[str, ...] | None, in_step: bool) -> None:
        self._below = columns
        self._in_step = in_step
        # Attributes that are known to exist, each as an expression over those below.
        self._values: dict[str, Expr] = {name: _named(name) for name in columns or ()}
        # All other attributes pass through, except these.
        self._passes_others = columns is None
        self._gone: set[str] = set()
        # Names below that a renaming removed, and names that an extension may have overwritten.
        self._left: set[str] = set()
        self._covered: set[str] = set()
        self._conditions: list[Expr] = []

    def apply(self, operator: Stream) -> None:
        match operator:
            case Select(condition=text):
                self._conditions.append(self._said_below(parsed(text)))
            case Extend(values=values):
                more = {name: self._said_below(parsed(text)) for name, text in values}
                self._values |= more
                self._gone -= set(more)
                self._covered |= set(more)
            case Rename(names=pairs):
                found = {new: self._value(old) for old, new in pairs}
                for old, _ in pairs:
                    self._values.pop(old, None)
                    self._gone.add(old)
                    self._left.add(old)
                self._values |= found
                self._gone -= set(found)
            case Alias(name=alias):
                if self._passes_others:
                    raise _InTheWay
                self.apply(Rename(operator, tuple((name, f"{alias}.{name}") for name in self._values)))
            case Project(names=kept):
                self._values = {name: self._value(name) for name in dict.fromkeys(kept)}
                self._passes_others, self._gone = False, set()

    def _value(self, name: str) -> Expr:
        if name in self._values:
            return self._values[name]
        if not self._passes_others or name in self._gone:
            raise _InTheWay
        return _named(name)

    def _said_below(self, text: Expr) -> Expr:
        """An expression over the attributes of the result, rewritten over the attributes below."""
        made: Expr = _changed(text, self._reference)
        return made

    def _reference(self, reference: Reference) -> Expr:
        if self._in_step and reference.names[1:] and reference.names[-1] == "last":
            return reference
        if reference.names == ("DUR",):
            if "DUR" in self._values:
                raise _InTheWay
            return reference
        starts = _starts(reference)
        if any(name in self._gone for name, _ in starts):
            raise _InTheWay
        name, rest = next((start for start in starts if start[0] in self._values), starts[-1])
        value = self._value(name)
        if not rest:
            return value
        if not isinstance(value, Reference):
            raise _InTheWay
        return replace(value, names=(*value.names, *rest))

    def written_over(self, below: Stream) -> Stream:
        """The normal form of the operators, applied to a stream."""
        made = below
        if self._conditions:
            condition = self._conditions[0] if len(self._conditions) == 1 else _all(self._conditions)
            made = Select(made, _said(condition))
        renamed = self._renamed()
        if renamed:
            made = Rename(made, tuple(renamed.items()))
        extended = {
            name: value
            for name, value in self._values.items()
            if not (
                isinstance(value, Reference) and renamed.get(value.names[0], value.names[0]) == name and _is_name(value)
            )
        }
        if extended:
            values = {name: _renamed_in(value, renamed, self._in_step) for name, value in extended.items()}
            written = [(name, _said(value)) for name, value in values.items()]
            made = Extend(made, tuple(written))
        if not self._passes_others:
            made = self._projected(made, renamed, extended)
        return made

    def _renamed(self) -> dict[str, str]:
        """The attributes that only get a new name, if nothing below has that name."""
        found: dict[str, str] = {}
        for name, value in self._values.items():
            if not (isinstance(value, Reference) and _is_name(value)):
                continue
            (old,) = value.names
            free = name not in self._below if self._below is not None else self._passes_others
            if old != name and free and old not in found and not self._stays(old):
                found[old] = name
        if self._passes_others:
            # Nothing is projected away: each attribute below must be renamed or overwritten.
            targets = set(found.values())
            lost = {name for name in self._left if name not in found and (name in targets or name not in self._values)}
            if lost or (self._covered & targets) - set(found):
                raise _InTheWay
        return found

    def _stays(self, name: str) -> bool:
        """Whether an attribute from below still exists under its name."""
        if name in self._values:
            return self._values[name] == _named(name)
        return self._passes_others and name not in self._gone

    def _projected(self, made: Stream, renamed: Mapping[str, str], extended: Mapping[str, Expr]) -> Stream:
        """The stream with exactly the wanted attributes, in their order."""
        if self._below is not None:
            kept = [name for name in self._below if name not in renamed] + list(renamed.values())
            natural = [*kept, *(name for name in extended if name not in kept)]
            if natural == list(self._values):
                return made
        return Project(made, tuple(self._values))


def _named(name: str) -> Reference:
    return Reference((name,), span=NOWHERE)


def _starts(reference: Reference) -> list[tuple[str, tuple[str, ...]]]:
    """The ways to read a reference as (name of an attribute, fields after it), the longest name first: `a.price` is one
    name if the stream has the alias a.
    """
    names = reference.names
    return [(".".join(names[:count]), names[count:]) for count in range(len(names), 0, -1)]


def _said(expression: Expr) -> str:
    def change(reference: Reference) -> Expr:
        parts = (part for name in reference.names for part in reference_to(name).names)
        return replace(reference, names=tuple(parts))

    return format_expression(_changed(expression, change))


def _is_name(reference: Reference) -> bool:
    plain = reference.index is None and reference.default is None
    return plain and len(reference.names) == 1 and reference.names != ("DUR",)


def _renamed_in(expression: Expr, names: Mapping[str, str], in_step: bool) -> Expr:
    """An expression over the attributes below, adapted to the renaming of some of them."""

    def change(reference: Reference) -> Expr:
        if in_step and reference.names[1:] and reference.names[-1] == "last":
            return reference
        found = (replace(reference, names=(names[name], *rest)) for name, rest in _starts(reference) if name in names)
        return next(found, reference)

    made: Expr = _changed(expression, change)
    return made


def _changed(node: Any, change: Callable[[Reference], Expr]) -> Any:
    """A syntax tree in which every reference is replaced by `change(reference)`."""
    if isinstance(node, Reference):
        return change(node)
    if isinstance(node, tuple):
        return tuple(_changed(one, change) for one in node)
    if isinstance(node, Node):
        return replace(node, **{f.name: _changed(getattr(node, f.name), change) for f in fields(node)})
    return node


def _all(conditions: list[Expr]) -> Expr:
    return Logical("AND", tuple(conditions), span=NOWHERE)
