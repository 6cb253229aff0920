"""`ouzel.why` for row patterns: how far a match got that begins with one row, and which conditions stopped it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Aggregation, Attribute, Bound, Catalog, Intrinsic, Operation, parts
from ouzel.bind.row_patterns import Row
from ouzel.bind.schema import attributes_of
from ouzel.engines.rows.finder import Finder
from ouzel.engines.rows.frames import RowFrame, SortedRows, row_order
from ouzel.engines.rows.measures import MatchView
from ouzel.engines.rows.operator import RowStager
from ouzel.engines.rows.plan import RowPlan, conjuncts, written
from ouzel.engines.rows.tables import ACCEPT, Matches, Partitions
from ouzel.lang.row_syntax import Skip
from ouzel.plan.choose import make_plan
from ouzel.prepared import RowPatternQuery
from ouzel.runtime.buffer import LATEST
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import Column, truths


@dataclass(frozen=True)
class Reason:
    """Why a row begins a match, or does not. The fields are those of `Why`."""

    row: int
    complete: bool
    reached: int
    components: int
    stopped_by: str
    title: str
    steps: tuple[str, ...]
    verdict: str


def reason_of(table: pa.Table, query: RowPatternQuery, rows: list[int], limit: int) -> Reason:
    """How far a match from a row of the input got, and why. If there are several rows, the reason for the row that got
    furthest.
    """
    plan = make_plan(query.bind(Catalog(common=attributes_of(table.schema))))
    assert isinstance(plan, RowPlan)
    codes = RowStager(plan)._keys(table)
    partitions: dict[int, _Partition] = {}
    best: tuple[int, _Attempt] | None = None
    for row in rows:
        code = int(codes[row])
        if code not in partitions:
            partitions[code] = _Partition.of(plan, table, np.flatnonzero(codes == code))
        attempt = partitions[code].attempt(row, limit)
        if best is None or len(attempt.path) > len(best[1].path):
            best = row, attempt
    assert best is not None
    note = f", which got furthest of {len(rows):,} rows" if len(rows) > 1 else ""
    return best[1].reason(best[0], note)


@dataclass
class _Partition:
    """The rows of one partition, in order, and their matches."""

    plan: RowPlan
    rows: SortedRows
    place_of: dict[int, int]  # of a row of the input
    input_rows: np.ndarray
    matches: Matches

    @classmethod
    def of(cls, plan: RowPlan, table: pa.Table, members: np.ndarray) -> _Partition:
        part = table.take(pa.array(members))
        order = row_order(plan.query, SortedRows.of(part))
        order = np.arange(len(members)) if order is None else order
        rows = SortedRows.chosen(part, order)
        bounds, zero = rows.bounds, np.zeros(1, np.int64)
        whole = Partitions(bounds, bounds[1:].copy(), zero, zero.copy(), np.ones(1, bool))
        input_rows = members[order]
        found = Finder(plan, rows, whole, LATEST, lambda row: f"row {input_rows[row] + 1:,} of the input").matches()
        return cls(plan, rows, {int(row): place for place, row in enumerate(input_rows)}, input_rows, found)

    def attempt(self, row: int, limit: int) -> _Attempt:
        attempt = _Attempt(self, self.place_of[row], limit)
        attempt.search()
        return attempt


@dataclass
class _Attempt:
    """The search for a match that begins with one row, in order of preference. It stores the longest path."""

    partition: _Partition
    start: int
    limit: int
    path: list[int] = field(default_factory=list)  # the positions of the longest one
    complete: bool = False
    tested: int = 0

    def search(self) -> None:
        automaton = self.partition.plan.automaton
        first = automaton.follow[-2 if self.start == 0 else -1]
        stack: list[tuple[list[int], tuple[int, ...]]] = [([], first)]
        while stack and self.tested < self.limit:
            path, following = stack.pop()
            if len(path) > len(self.path):
                self.path = path
            if not following:
                continue
            position, rest = following[0], following[1:]
            is_last = self.start + len(path) == self.partition.rows.count
            if position == ACCEPT or (is_last and path and automaton.ends[path[-1]]):
                self.path, self.complete = path, True
                return
            stack.append((path, rest))
            if not is_last and not self.outside_window(self.start + len(path)) and not self.failing([*path, position]):
                longer = [*path, position]
                stack.append((longer, automaton.follow[position]))
                if self.start + len(longer) == self.partition.rows.count and automaton.ends[position]:
                    self.path, self.complete = longer, True
                    return

    # ── Conditions ─────────────────────────────────────────────────────────────────────────────────

    def failing(self, path: list[int]) -> list[Bound]:
        """The conditions that do not hold for the last row of a path."""
        self.tested += 1
        plan = self.partition.plan
        variable = int(plan.automaton.variable[path[-1]])
        tests = (*conjuncts(plan.near.get(variable)), *plan.searched.get(variable, ()))
        frame = self._frame(path)
        return [one for one in tests if not truths(evaluate(one, frame))[0]]

    def outside_window(self, place: int) -> bool:
        """Whether a row is outside the WITHIN window that begins with the first row."""
        query = self.partition.plan.query
        if query.window is None or place >= self.partition.rows.count:
            return False
        frame = RowFrame(self.partition.rows.count, self.partition.rows, lambda component: None)
        times = evaluate(query.order[0].expression, frame)
        first, last = times[self.start].as_py(), times[place].as_py()
        if first is None or last is None:
            return True
        return bool(_number(times, place) - _number(times, self.start) >= query.window)

    def _frame(self, path: list[int]) -> RowFrame:
        """A frame for the last row of a path, with the rows before it as the match so far."""
        partition = self.partition
        query = partition.plan.query
        number = 1 + int(np.count_nonzero(partition.matches.start < self.start))
        first, start, length, one = (np.array([value], np.int64) for value in (0, self.start, len(path), number))
        matches = Matches(first, start, length, one, np.array(path, np.int32))
        view = MatchView(partition.plan, partition.rows, matches)

        def row(component: int) -> Row:
            found = query.rows[component]
            assert isinstance(found, Row)
            return found

        def total(expression: Aggregation) -> Column:
            found = view.total(expression)
            return found.slice(len(found) - 1)

        return RowFrame(
            1, partition.rows, lambda c: view.rows_of(row(c))[-1:], lambda c: view.labels(row(c))[-1:], total
        )

    # ── Words ──────────────────────────────────────────────────────────────────────────────────────

    def reason(self, row: int, note: str) -> Reason:
        plan, matches = self.partition.plan, self.partition.matches
        begun = np.flatnonzero(matches.start == self.start)
        if begun.size:
            end = int(matches.length[: begun[0] + 1].sum())
            self.path = matches.positions[end - int(matches.length[begun[0]]) : end].tolist()
        steps = [f"{self._label(position)} = {self._row(depth)}" for depth, position in enumerate(self.path)]
        before = np.flatnonzero(matches.start < self.start)
        stopped_by, complete = "nothing", True
        if begun.size:
            number = int(matches.number[begun[0]])
            verdict = f"match {number:,} of its partition" + ("" if self.path else ", an empty one")
        elif self.complete and before.size:
            complete, stopped_by = False, "skipped"
            first = int(matches.start[before[-1]])
            skip = plan.query.skip.value + ("" if plan.query.skip in (Skip.PAST_LAST_ROW, Skip.TO_NEXT_ROW) else " …")
            verdict = (
                f"no match: AFTER MATCH SKIP {skip} skips this row after the match from row "
                f"{self.partition.input_rows[first]}"
            )
        else:
            complete = False
            found, stopped_by, verdict = self._stopped()
            steps += found
        title = f"{self._row(0)} as the start of a match of '{plan.query.name}'{note}"
        return Reason(row, complete, len(self.path), plan.automaton.positions, stopped_by, title, tuple(steps), verdict)

    def _stopped(self) -> tuple[list[str], str, str]:
        """Lines about what was tried after the longest path, and why it failed."""
        if self.tested >= self.limit:
            said = f"{self.tested:,} rows were tried, and there are more ways"
            return [said], "search limit", "no match: give a larger search_limit to see what stopped it"
        plan, depth = self.partition.plan, len(self.path)
        following = plan.automaton.follow[self.path[-1] if self.path else -2 if self.start == 0 else -1]
        wanted = list(dict.fromkeys(self._label(position) for position in following if position != ACCEPT))
        names = " or ".join(wanted)
        if self.start + depth == self.partition.rows.count:
            return [], "no row", f"no match: the partition ends before {names}" if names else "no match"
        if self.outside_window(self.start + depth):
            said = f"{self._row(depth)} is not within {plan.query.window_written} of the first row"
            return [said], "window", f"no match: the window ends before {names}"
        steps = []
        for position in dict.fromkeys(position for position in following if position != ACCEPT):
            path = [*self.path, position]
            for condition in self.failing(path):
                steps.append(f"{self._label(position)}: {self._row(depth)}: {self._said(condition, path)}")
        stopped_by = "condition" if self.path else "start"
        return steps, stopped_by, f"no match: {self._row(depth)} is not {names}"

    def _said(self, condition: Bound, path: list[int]) -> str:
        """A condition that does not hold, with the values in it, as text."""
        query, frame = self.partition.plan.query, self._frame(path)
        values: dict[str, str] = {}
        stack = [condition]
        while stack:
            part = stack.pop()
            text = written(query, part)
            inner = part.operands if isinstance(part, Operation) else ()
            is_read = isinstance(part, Attribute | Aggregation | Intrinsic)
            if is_read or (inner and part.span.end and text != written(query, condition) and _is_call(part, text)):
                value = evaluate(part, frame)[0].as_py()
                values[text] = "null" if value is None else repr(value)
            else:
                stack += inner[::-1]
        shown = ", ".join(f"{text} = {value}" for text, value in values.items())
        return f"{written(query, condition)} is not true" + (f", {shown}" if shown else "")

    def _label(self, position: int) -> str:
        plan = self.partition.plan
        return plan.query.variables[int(plan.automaton.variable[position])]

    def _row(self, depth: int) -> str:
        """A row of the input as text, with the columns that the clause reads."""
        partition = self.partition
        place = self.start + depth
        shown = ", ".join(f"{name}={partition.rows.raw(name)[place].as_py()}" for name in partition.plan.query.columns)
        return f"row {partition.input_rows[place]}" + (f" ({shown})" if shown else "")


def _is_call(part: Bound, text: str) -> bool:
    return any(isinstance(one, Attribute) for one in parts(part)) and text.endswith(")")


def _number(column: Column, place: int) -> Any:
    return column.cast(pa.int64())[place].as_py() if not pa.types.is_floating(column.type) else column[place].as_py()
