"""Finds the matches of a row pattern in the rows of partitions, except those that a later row can still change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.bind.model import Aggregation
from ouzel.bind.row_patterns import MATCH_NUMBER, Row
from ouzel.engines.rows.conditions import Conditions, build_conditions, enlarged_path, no_conditions
from ouzel.engines.rows.frames import RowFrame, SortedRows, shifted
from ouzel.engines.rows.measures import OVERLAPPING_ROWS_MAX, MatchView
from ouzel.engines.rows.partitions import alive, window_ends
from ouzel.engines.rows.plan import RowPlan
from ouzel.engines.rows.search import STEPS_UNPAUSED, search
from ouzel.engines.rows.tables import At, Ended, Matches, Partitions, Skipping
from ouzel.errors import InputError, LimitError, argument
from ouzel.kernels.arrays import INT64_MAX
from ouzel.kernels.pauses import pause
from ouzel.kernels.predicate_tables import new_values
from ouzel.lang import row_syntax
from ouzel.runtime.expressions import evaluate
from ouzel.runtime.values import Column, split, truths

_BYTE = 8
_ROOM_FIRST = 16
# All searches of a call together may take as many steps as so many matches at their limit, and so many for each row.
_MATCHES_OF_STEPS = 100
_STEPS_PER_ROW = 1_000
_SIGN = np.uint64(1 << 63)
_SKIPPING = {
    row_syntax.Skip.PAST_LAST_ROW: Skipping.PAST_LAST_ROW,
    row_syntax.Skip.TO_NEXT_ROW: Skipping.TO_NEXT_ROW,
    row_syntax.Skip.TO_FIRST: Skipping.TO_FIRST,
    row_syntax.Skip.TO_LAST: Skipping.TO_LAST,
}


@dataclass(slots=True)
class Finder:
    """The search in the rows of some partitions. All rows up to tick `until` have arrived. The function `place` names a
    row in error messages.
    """

    plan: RowPlan
    rows: SortedRows
    partitions: Partitions
    until: int
    place: Callable[[int], str]
    state: np.ndarray = field(init=False)
    can: np.ndarray = field(init=False)
    _in_time: np.ndarray | None = field(init=False, default=None)
    _window_end: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self._window_end = self._window_ends()
        self.can = np.empty((self.rows.count, len(self.plan.tables.accepting)), np.uint64)
        alive(self._symbols(), self.partitions, self.plan.tables, self.can)
        self.state = np.zeros(len(At), np.int64)
        self.state[At.NUMBER] = 1
        self.state[[At.DEPTH, At.ANSWER]] = -1

    def matches(self) -> Matches:
        """All decided matches, in the order in which they are found."""
        plan = self.plan
        targets = np.zeros(max(len(plan.query.variables), 1), bool)
        targets[list(plan.query.skip_to)] = True
        skipping = int(_SKIPPING[plan.query.skip])
        run = self._search(targets, skipping)
        room = _room(max(self.rows.count // 2, _ROOM_FIRST), max(self.rows.count, _ROOM_FIRST))
        while True:
            ended = run(room)
            if ended == Ended.DONE:
                found, used = int(self.state[At.MATCHES]), int(self.state[At.POSITIONS])
                partition, start, length, number = (array[:found] for array in room[:-1])
                return Matches(partition, start, length, number, room.positions[:used])
            if ended == Ended.MATCHES_FULL:
                room = _resized(room, 2 * len(room.start), len(room.positions))
            elif ended == Ended.POSITIONS_FULL:
                self._check_overlaps(2 * len(room.positions))
                room = _resized(room, len(room.start), 2 * len(room.positions))
            else:
                raise self._stopped(ended)

    def _check_overlaps(self, positions: int) -> None:
        """Raise an error if matches overlap so much that their rows do not fit memory."""
        if positions > max(2 * self.rows.count, OVERLAPPING_ROWS_MAX):
            raise LimitError(
                f"the matches overlap: together they have more than {OVERLAPPING_ROWS_MAX:,} rows. Write AFTER MATCH "
                "SKIP PAST LAST ROW, or make matches shorter with WITHIN"
            )

    def _symbols(self) -> np.ndarray:
        """For each row, the variables whose conditions in `near` hold, one bit each."""
        rows, query = self.rows, self.plan.query
        dtype: Any = np.uint8 if len(query.variables) <= _BYTE else np.uint64
        near: dict[int, np.ndarray] = {}

        def rows_of(component: int) -> np.ndarray | None:
            row = query.rows[component]
            assert isinstance(row, Row) and row.is_near
            if not row.shift:
                return None
            if row.shift not in near:
                near[row.shift] = shifted(rows.bounds, row.shift)
            return near[row.shift]

        frame = RowFrame(rows.count, rows, rows_of)
        symbols: np.ndarray = np.zeros(rows.count, dtype)
        always = 0
        for variable in range(len(query.variables)):
            condition = self.plan.near.get(variable)
            if condition is None:
                always |= 1 << variable
                continue
            truth = evaluate(condition, frame)
            if not pa.types.is_null(truth.type):
                symbols |= truths(truth).astype(dtype) << dtype(variable)
        symbols |= dtype(always)
        if self._in_time is not None:
            symbols[~self._in_time] = 0
        return symbols

    def _search(self, targets: np.ndarray, skipping: int) -> Callable[[Matches], int]:
        plan = self.plan
        conditions = build_conditions(plan, self.rows, self._window_end) if plan.is_searched else no_conditions()
        # Room for any match, unless its steps are kept too.
        room = _ROOM_FIRST if plan.is_searched else int(np.diff(self.rows.bounds).max(initial=0))
        path = conditions.path(room, plan.automaton.positions if plan.is_searched else 0)
        values = new_values(conditions.predicates)
        bound = np.zeros(len(plan.query.rows) + conditions.reading.register.size + 1, np.int32)
        # Without conditions on the match no step is taken back.
        steps_of_match = plan.query.steps_max if plan.is_searched else INT64_MAX
        steps, steps_max = 0, _MATCHES_OF_STEPS * steps_of_match + _STEPS_PER_ROW * self.rows.count

        def run(room: Matches) -> int:
            nonlocal path, steps
            while True:
                ended = int(
                    search(
                        self.state, self.can, self.partitions, plan.tables, plan.automaton.ends, conditions.reading,
                        conditions.predicates, conditions.instances, values, bound, path, skipping, targets,
                        steps_of_match, room,
                    )
                )  # fmt: skip
                if ended == Ended.TEST:
                    pause()
                    self.state[At.ANSWER] = self._holds(conditions, bound, path.position)
                elif ended == Ended.PATH_FULL:
                    path = enlarged_path(path)
                elif ended == Ended.PAUSE:
                    pause()
                    steps += STEPS_UNPAUSED
                    if steps > steps_max:
                        raise self._too_many_steps("all matches together", steps_max)
                else:
                    return ended

        return run

    def _window_ends(self) -> np.ndarray:
        """For each row, the first row that is outside the window that begins with it; see `Reading`."""
        query, bounds = self.plan.query, self.rows.bounds
        if query.window is None:
            return np.zeros(0, np.int64)
        frame = RowFrame(self.rows.count, self.rows, lambda component: None)
        ends = np.empty(self.rows.count, np.int64)
        column = evaluate(query.order[0].expression, frame)
        if isinstance(query.window, float):
            reals, valid = split(column, np.float64)
            valid = valid & ~np.isnan(reals)
            window_ends(reals, valid, bounds, query.window, ends)
        else:
            times, valid = split(column, np.int64)
            # Without a sign, differences of times in order cannot overflow.
            window_ends(times.view(np.uint64) ^ _SIGN, valid, bounds, np.uint64(query.window), ends)
            may_grow = np.repeat(~self.partitions.complete, np.diff(bounds))
            if may_grow.any():
                may_grow &= (times > self.until + 1 - query.window) & (ends == np.repeat(bounds[1:], np.diff(bounds)))
                ends += may_grow
        if not valid.all():
            self._in_time = valid
        return ends

    def _holds(self, conditions: Conditions, bound: np.ndarray, positions: np.ndarray) -> bool:
        """Whether the conditions that the kernel cannot test hold for the row that it is testing."""
        start, depth = int(self.state[At.ROW]), int(self.state[At.DEPTH])
        query, variables = self.plan.query, self.plan.tables.variable
        nothing = self.rows.count
        here = [int(row) if row < nothing else -1 for row in bound[: len(query.rows)]]

        def label(component: int) -> Column:
            at = here[component] - start
            name = query.variables[variables[positions[at]]] if 0 <= at <= depth else None
            return pa.array([name], pa.large_string())

        def total(expression: Aggregation) -> Column:
            if expression.function == MATCH_NUMBER:
                return pa.array([int(self.state[At.NUMBER])])
            here = [np.array([value], np.int64) for value in (0, start, depth + 1, 1)]
            one = Matches(here[0], here[1], here[2], here[3], positions[: depth + 1].copy())
            found = MatchView(self.plan, self.rows, one).total(expression)
            return found.slice(len(found) - 1)

        frame = RowFrame(1, self.rows, lambda component: np.array([here[component]]), label, total)
        variable = int(variables[positions[depth]])
        return all(truths(evaluate(condition, frame))[0] for condition in conditions.asked[variable])

    def _stopped(self, ended: int) -> Exception:
        place = self.place(int(self.state[At.ROW]))
        query = self.plan.query
        names = ", ".join(query.variables[variable] for variable in sorted(query.skip_to))
        if ended == Ended.NO_TARGET:
            return InputError(f"AFTER MATCH SKIP TO {names}: the match that starts at {place} has no row of {names}")
        if ended == Ended.TARGET_IS_FIRST:
            return InputError(
                f"AFTER MATCH SKIP TO {names}: the match that starts at {place} begins with {names}, so the search "
                "would find it again for ever"
            )
        return self._too_many_steps(f"a match from {place}", query.steps_max)

    def _too_many_steps(self, what: str, steps_max: int) -> LimitError:
        query = self.plan.query
        searched = ", ".join(query.variables[variable] for variable in self.plan.searched) or "WITHIN"
        return LimitError(
            f"the search for {what} takes more than {steps_max:,} steps to test the conditions of {searched} on the "
            "match; make them stricter, bound the match by WITHIN or {m,n}, or give a larger ",
            argument("max_steps_per_match"),
        )


def _room(matches: int, positions: int) -> Matches:
    partition, start, length, number = np.empty((4, matches), np.int64)
    return Matches(partition, start, length, number, np.empty(positions, np.int32))


def _resized(room: Matches, matches: int, positions: int) -> Matches:
    """The same matches, in arrays of these sizes."""
    other = _room(matches, positions)
    for name in Matches._fields:
        new, old = getattr(other, name), getattr(room, name)
        size = min(len(new), len(old))
        new[:size] = old[:size]
    return other
