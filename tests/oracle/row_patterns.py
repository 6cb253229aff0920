"""docs/semantics.md, "Row patterns": MATCH_RECOGNIZE by backtracking, one row after another.

Nothing here is clever: the match at a row is the first complete one in the order of preference, found by trying every
way in that order.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ouzel.bind.expressions import readable_name
from ouzel.lang import row_syntax, syntax
from ouzel.lang.parser import parse_row_pattern
from ouzel.lang.row_syntax import Pattern, RowPattern, Rows, Skip, Visible
from tests.oracle.expressions import Scope, Settings, evaluate
from tests.oracle.values import INT64_MAX, INT64_MIN, compare, sort_key

AGGREGATES = ("count", "sum", "avg", "min", "max", "array_agg", "count_distinct")
Labels = tuple[str, ...]
Row = Mapping[str, Any]


class Budget(Exception):
    """The search takes too many steps for a test."""


class Endless(Exception):
    """AFTER MATCH SKIP TO a row that is not there, or is the first row of the match."""


@dataclass(frozen=True)
class View:
    """What an expression sees: the rows of a partition, where the match starts, its labels, and how many of its rows
    are visible. `at` is the row that a navigation or an aggregate looks at; -1 if there is none."""

    rows: Sequence[Row]
    start: int
    labels: Labels
    visible: int
    number: int
    at: int | None = None


@dataclass
class Oracle:
    """The answer of a row pattern over rows given as dictionaries."""

    tree: RowPattern
    params: Mapping[str, Any] = field(default_factory=dict)
    steps_max: int = 100_000
    steps: int = 0

    def __post_init__(self) -> None:
        found = [node.name for node in _walk(self.tree.pattern) if isinstance(node, row_syntax.Variable)]
        self.spelled = {name.lower(): name for name in reversed(found)}
        self.subsets = {s.name.lower(): {v.lower() for v in s.variables} for s in self.tree.subsets}
        self.conditions = {d.variable.lower(): d.condition for d in self.tree.definitions}
        self.scope = Scope(Settings({}, self.params, None), {})

    # ── Rows and attempts ──────────────────────────────────────────────────────────────────────────

    def answer(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        """The rows of the output; their order means nothing."""
        partitions: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            key = tuple(_key(self._plain(node, row)) for node in self.tree.partition_by)
            partitions.setdefault(key, []).append(row)
        return [made for part in partitions.values() for made in self._partition(self._sorted(part))]

    def _sorted(self, rows: list[Row]) -> list[Row]:
        if not self.tree.order_by:
            return rows
        read = sorted(self._columns())
        if self.tree.rows is not Rows.ONE:
            read += sorted({name for row in rows for name in row} - set(read))
        rows = sorted(rows, key=lambda row: [_key(row.get(name)) for name in read])
        for sort in reversed(self.tree.order_by):
            nulls_first = (not sort.descending) if sort.nulls_first is None else sort.nulls_first
            nulls = [row for row in rows if self._plain(sort.expression, row) is None]
            others = [row for row in rows if self._plain(sort.expression, row) is not None]
            keyed = lambda row, sort=sort: sort_key(self._plain(sort.expression, row))  # noqa: E731
            # Python keeps the order of equal rows, also in reverse.
            others.sort(key=keyed, reverse=sort.descending)
            rows = nulls + others if nulls_first else others + nulls
        return rows

    def _columns(self) -> set[str]:
        """The columns that the clause reads."""
        found = set()
        for node in _walk(self.tree):
            if isinstance(node, syntax.Reference):
                names = node.names
                if names[0].lower() in {*self.spelled, *self.subsets} and len(names) > 1:
                    names = names[1:]
                found.add(names[0])
        return found

    def _plain(self, node: syntax.Expr, row: Row) -> Any:
        return self._value(node, View([row], 0, (), 0, 0, at=0))

    def _partition(self, rows: list[Row]) -> Iterator[dict[str, Any]]:
        start, number = 0, 1
        matched: set[int] = set()
        while start < len(rows):
            labels = self.match_at(rows, start, number)
            if labels is None:
                start += 1
                continue
            matched |= set(range(start, start + len(labels))) or {start}
            yield from self._written(rows, start, labels, number)
            number += 1
            start = self._next(start, labels)
        if self.tree.rows is Rows.WITH_UNMATCHED:
            for place, row in enumerate(rows):
                if place not in matched:
                    yield {**row, **self._keys(row), **{m.name: None for m in self.tree.measures}}

    def _next(self, start: int, labels: tuple[tuple[str, bool], ...]) -> int:
        after = self.tree.after_match
        if not labels or after.skip is Skip.TO_NEXT_ROW:
            return start + 1
        if after.skip is Skip.PAST_LAST_ROW:
            return start + len(labels)
        assert after.variable is not None
        places = [place for place, (label, _) in enumerate(labels) if self._is(label, after.variable)]
        if not places or (place := places[0 if after.skip is Skip.TO_FIRST else -1]) == 0:
            raise Endless
        return start + place

    def _is(self, label: str, name: str) -> bool:
        return label in self.subsets.get(name.lower(), {name.lower()})

    # ── The match at a row ─────────────────────────────────────────────────────────────────────────

    def match_at(self, rows: Sequence[Row], start: int, number: int) -> tuple[tuple[str, bool], ...] | None:
        """The labels of the match, each with whether it is excluded; None if there is none."""
        self.steps = 0
        self._rows, self._start, self._number = rows, start, number
        return next(self._ways(self.tree.pattern, (), False), None)

    def _ways(
        self, pattern: Pattern, taken: tuple[tuple[str, bool], ...], excluded: bool
    ) -> Iterator[tuple[tuple[str, bool], ...]]:
        self.steps += 1
        if self.steps > self.steps_max:
            raise Budget
        place = self._start + len(taken)
        match pattern:
            case row_syntax.Variable(name=name):
                more = (*taken, (name.lower(), excluded))
                if place < len(self._rows) and self._holds(name.lower(), more):
                    yield more
            case row_syntax.Anchor(at_end=at_end):
                if place == (len(self._rows) if at_end else 0):
                    yield taken
            case row_syntax.Excluded(item=item):
                yield from self._ways(item, taken, True)
            case row_syntax.Sequence(items=items):
                yield from self._one_after_another(items, taken, excluded)
            case row_syntax.Alternation(items=items):
                for item in items:
                    yield from self._ways(item, taken, excluded)
            case row_syntax.Permutation(items=items):
                for order in itertools.permutations(items):
                    yield from self._one_after_another(order, taken, excluded)
            case row_syntax.Repeated():
                yield from self._iterations(pattern, 0, taken, excluded)
            case _:
                yield taken

    def _one_after_another(
        self, items: Sequence[Pattern], taken: tuple[tuple[str, bool], ...], excluded: bool
    ) -> Iterator[tuple[tuple[str, bool], ...]]:
        if not items:
            yield taken
            return
        for more in self._ways(items[0], taken, excluded):
            yield from self._one_after_another(items[1:], more, excluded)

    def _iterations(
        self, pattern: row_syntax.Repeated, done: int, taken: tuple[tuple[str, bool], ...], excluded: bool
    ) -> Iterator[tuple[tuple[str, bool], ...]]:
        if done < pattern.least:
            for more in self._ways(pattern.item, taken, excluded):
                yield from self._iterations(pattern, done + 1, more, excluded)
            return
        if not pattern.greedy:
            yield taken
        if pattern.most is None or done < pattern.most:
            for more in self._ways(pattern.item, taken, excluded):
                if len(more) == len(taken):
                    yield more  # An iteration that takes no row is the last one.
                else:
                    yield from self._iterations(pattern, done + 1, more, excluded)
        if pattern.greedy:
            yield taken

    def _holds(self, name: str, taken: tuple[tuple[str, bool], ...]) -> bool:
        labels = tuple(label for label, _ in taken)
        view = View(self._rows, self._start, labels, len(labels), self._number)
        if self.tree.within is not None and not self._in_window(view):
            return False
        condition = self.conditions.get(name)
        return condition is None or self._value(condition, view) is True

    def _in_window(self, view: View) -> bool:
        assert self.tree.within is not None
        order = self.tree.order_by[0].expression
        first, last = (self._plain(order, view.rows[view.start + place]) for place in (0, view.visible - 1))
        if first is None or last is None:
            return False
        return bool(last - first < evaluate(self.tree.within, self.scope))

    # ── Output ─────────────────────────────────────────────────────────────────────────────────────

    def _keys(self, row: Row) -> dict[str, Any]:
        return {
            node.names[-1]
            if isinstance(node, syntax.Reference)
            else readable_name(node) or f"partition_{number}": self._plain(node, row)
            for number, node in enumerate(self.tree.partition_by, 1)
        }

    def _written(
        self, rows: Sequence[Row], start: int, taken: tuple[tuple[str, bool], ...], number: int
    ) -> Iterator[dict[str, Any]]:
        labels = tuple(label for label, _ in taken)
        places = range(len(labels)) if labels else [-1]
        if self.tree.rows is Rows.ONE:
            places = [len(labels) - 1]
        elif self.tree.rows is Rows.OMIT_EMPTY and not labels:
            return
        for place in places:
            if self.tree.rows is not Rows.ONE and labels and taken[place][1]:
                continue
            row = rows[start + max(place, 0)]
            view = View(rows, start, labels, place + 1, number)
            measures = {m.name: self._value(m.expression, view) for m in self.tree.measures}
            yield {**({} if self.tree.rows is Rows.ONE else row), **self._keys(row), **measures}

    # ── Expressions ────────────────────────────────────────────────────────────────────────────────

    def _value(self, node: syntax.Expr, view: View) -> Any:
        return evaluate(self._resolved(node, view), self.scope)

    def _resolved(self, node: Any, view: View) -> Any:
        """The tree with every part that reads rows replaced by its value."""
        if isinstance(node, tuple):
            return tuple(self._resolved(part, view) for part in node)
        if isinstance(node, Visible):
            return self._resolved(node.call, replace(view, visible=len(view.labels)) if node.final else view)
        if isinstance(node, syntax.Reference):
            return _known(self._column(node, view))
        if isinstance(node, syntax.Call):
            special = self._special(node, view)
            if special is not None:
                return special
        if not isinstance(node, syntax.Node):
            return node
        changed = {
            part.name: self._resolved(getattr(node, part.name), view)
            for part in dataclasses.fields(node)
            if part.name != "span"
        }
        return replace(node, **changed)

    def _column(self, node: syntax.Reference, view: View) -> Any:
        variable, path = self._split(node)
        at = view.at
        if at is None:
            visible = self._visible(variable, view)
            at = visible[-1] if visible else -1
        if at < 0:
            return None
        value: Any = view.rows[at].get(path[0])
        for name in path[1:]:
            value = None if value is None else value[name]
        return value

    def _split(self, node: syntax.Reference) -> tuple[str | None, tuple[str, ...]]:
        first = node.names[0].lower()
        if len(node.names) > 1 and first in {*self.spelled, *self.subsets}:
            return first, node.names[1:]
        return None, node.names

    def _visible(self, variable: str | None, view: View) -> list[int]:
        labels = view.labels[: view.visible]
        return [
            view.start + place for place, label in enumerate(labels) if variable is None or self._is(label, variable)
        ]

    def _variable(self, node: syntax.Call) -> str | None:
        """The one variable that a call is about."""
        for part in _walk(node):
            if isinstance(part, row_syntax.RowsOf):
                return part.variable.lower()
            if isinstance(part, syntax.Call) and part.function == "classifier" and part.arguments:
                (argument,) = part.arguments
                assert isinstance(argument, syntax.Reference)
                return argument.names[0].lower()
            if isinstance(part, syntax.Reference):
                found, _ = self._split(part)
                if found is not None:
                    return found
        return None

    def _special(self, node: syntax.Call, view: View) -> syntax.Expr | None:
        name, arguments = node.function, node.arguments
        if name == "match_number":
            return _known(view.number)
        if name == "mod":
            return self._resolved(syntax.Binary("%", *arguments), view)  # type: ignore[no-any-return]
        if name == "concat":
            texts = [self._value(argument, view) for argument in arguments]
            return _known(None if None in texts else "".join(map(_text, texts)))
        if name == "classifier":
            return _known(self._label(node, view))
        if name in AGGREGATES:
            return _known(self._aggregate(node, view))
        if name in ("first", "last"):
            return _known(self._at(arguments[0], self._row(node, view), view))
        if name in ("prev", "next"):
            inner: Any = arguments[0]
            inside = view
            if isinstance(inner, Visible):
                inside = replace(view, visible=len(view.labels)) if inner.final else view
                inner = inner.call
            is_direct = isinstance(inner, syntax.Call) and inner.function in ("first", "last")
            called = inner if is_direct else syntax.Call("last", (inner,))
            row = self._row(called, inside)
            distance = self._number_of(arguments, 1)
            if row >= 0:
                row += -distance if name == "prev" else distance
                row = row if 0 <= row < len(view.rows) else -1
            return _known(self._at(called.arguments[0], row, view))
        return None

    def _at(self, node: syntax.Expr, row: int, view: View) -> Any:
        return None if row < 0 else self._value(node, replace(view, at=row))

    def _row(self, call: syntax.Call, view: View) -> int:
        visible = self._visible(self._variable(replace(call, arguments=call.arguments[:1])), view)
        offset = self._number_of(call.arguments, 0)
        if offset >= len(visible):
            return -1
        return visible[offset] if call.function == "first" else visible[-1 - offset]

    def _number_of(self, arguments: Sequence[syntax.Expr], default: int) -> int:
        return int(evaluate(arguments[1], self.scope)) if len(arguments) > 1 else default

    def _label(self, node: syntax.Call, view: View) -> str | None:
        at = view.at
        if at is None:
            visible = self._visible(self._variable(node), view)
            at = visible[-1] if visible else -1
        place = at - view.start
        return self.spelled[view.labels[place]] if 0 <= place < len(view.labels) else None

    def _aggregate(self, node: syntax.Call, view: View) -> Any:
        rows = self._visible(self._variable(node), view)
        if not node.arguments or isinstance(node.arguments[0], row_syntax.RowsOf):
            return len(rows)
        values = [self._value(node.arguments[0], replace(view, at=row)) for row in rows]
        values = [value for value in values if value is not None]
        if node.function == "count":
            return len(values)
        if node.function == "count_distinct":
            return len({sort_key(value) for value in values})
        if not values:
            return None
        if node.function == "array_agg":
            return values
        if node.function == "avg":
            total = 0.0
            for value in values:
                total += float(value)
            return total / len(values)
        if node.function == "sum":
            return _sum(values)
        best = values[0]
        for value in values[1:]:
            order = compare(value, best, None)
            if order is not None and (order < 0 if node.function == "min" else order > 0):
                best = value
        return best


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _sum(values: list[Any]) -> Any:
    total = values[0]
    for value in values[1:]:
        total = total + value
        if isinstance(total, int) and not INT64_MIN <= total <= INT64_MAX:
            return None
    return total


def _known(value: Any) -> syntax.Expr:
    assert not isinstance(value, Decimal | Fraction)
    return syntax.Literal(value)


def _key(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, sort_key(value))


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for part in dataclasses.fields(node):
        value = getattr(node, part.name)
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, syntax.Node):
                yield from _walk(item)


def answer(rows: Sequence[Row], clause: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
    """The rows that MATCH_RECOGNIZE gives.

    >>> answer([{"i": 1}, {"i": 2}, {"i": 3}], "ORDER BY i MEASURES LAST(i) AS e PATTERN (A A) DEFINE A AS i > 0")
    [{'e': 2}]
    """
    return Oracle(parse_row_pattern(clause), params or {}).answer(rows)
