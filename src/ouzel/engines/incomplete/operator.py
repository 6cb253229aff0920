"""Runs one query over an incomplete stream: scores arrivals, finds paths, and returns them as columns. These include
the missing components of a path, the loss rates that apply to it, and whether it is the best match of its event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.bind.model import Attribute, Bound, BoundQuery, BoundThreshold, Intrinsic
from ouzel.engines.incomplete.plan import IncompletePlan, LoweredTests, lower_incomplete, with_defaults
from ouzel.engines.incomplete.scores import (
    EdgeCurves,
    Rates,
    best_rates,
    curve_tables,
    edge_curves,
    edges_of,
    highest_rates,
    lacking_for_probability,
    lossy_components,
    rates_of,
    weights_of,
)
from ouzel.engines.incomplete.search import allowed_at_end, describe, rebase, rekey, scan
from ouzel.engines.incomplete.tables import (
    ArrivalCounter,
    ArrivalOutput,
    ArrivalTables,
    build_arrival_tables,
    new_output,
    new_state,
    reserve,
)
from ouzel.errors import LimitError
from ouzel.kernels.events import NO_LIMIT, Instances, Status
from ouzel.kernels.order import gather
from ouzel.kernels.rows import TICKS
from ouzel.lang.syntax import OutputForm
from ouzel.loss.curves import Curve
from ouzel.loss.scoring import ENTRY
from ouzel.plan.expressions import components_of
from ouzel.plan.model import Plan
from ouzel.runtime.buffer import Block
from ouzel.runtime.expressions import holds
from ouzel.runtime.frames import EventFrame, take, ticks_to_time
from ouzel.runtime.inbox import GrowingRows
from ouzel.runtime.layout import Layout, tie_break_columns
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import NO_TICKS, Answer, InstanceOperator
from ouzel.runtime.output import Output, returned
from ouzel.runtime.small_answers import SmallAnswer, Taken
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import arrow, empty_table, one_array, ranks


@dataclass(frozen=True, slots=True)
class Explanations:
    """Paths, column by column. `slots` has a row for each positive component, with -1 where it is missing. An unknown
    probability is NaN.
    """

    slots: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    score: np.ndarray
    probability: np.ndarray
    threshold: BoundThreshold

    @property
    def count(self) -> int:
        return len(self.score)

    def followed_by(self, other: Explanations) -> Explanations:
        """These paths, then others."""
        return self.with_arrays(lambda name: np.concatenate([getattr(self, name), getattr(other, name)], axis=-1))

    def chosen(self, rows: np.ndarray) -> Explanations:
        """Some of the paths."""
        return self.with_arrays(lambda name: getattr(self, name)[..., rows])

    def with_arrays(self, values: Callable[[str], np.ndarray]) -> Explanations:
        """The same number of arrays, with other values by name."""
        changed: dict[str, Any] = {name: values(name) for name in ARRAYS}
        return replace(self, **changed)

    def by_missing(self) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Each set of missing positions, with the rows of the paths that miss exactly these."""
        bits = ((self.slots < 0) * (np.int64(1) << np.arange(len(self.slots), dtype=np.int64))[:, None]).sum(axis=0)
        for found in np.unique(bits):
            missing = tuple(place for place in range(len(self.slots)) if found >> place & 1)
            yield missing, np.flatnonzero(bits == found)


# Those of `Explanations`.
ARRAYS = ("slots", "starts", "ends", "score", "probability")


# ── Loss rates by disjunct ─────────────────────────────────────────────────────────────────────────


def refined(
    found: Explanations,
    query: BoundQuery,
    layout: Layout,
    rates: Sequence[Rates],
    curves: Sequence[EdgeCurves],
    instances: Instances,
    table: pa.Table,
    ticks: np.ndarray,
    places: Sequence[np.ndarray],
) -> tuple[Explanations, np.ndarray]:
    """Exact scores, if the disjuncts of WHERE imply different loss rates; before this, scores are upper bounds. Returns
    each path with its largest score, and the rows of the paths that still reach the threshold.
    """
    score = np.zeros(found.count)
    position = {c.position: i for i, c in enumerate(query.positives)}
    for missing, rows in found.by_missing():
        local = [one[rows] for one in places]
        frame = EventFrame(query, layout, table, ticks, lambda c, local=local: local[position[c]], len(rows))  # type: ignore[misc]
        absent = frozenset(query.positives[place].position for place in missing)
        known: dict[Bound, np.ndarray] = {}
        for one, own in zip(rates, curves, strict=True):
            assert one.disjuncts is not None
            satisfied = np.zeros(len(rows), bool)
            for disjunct in one.disjuncts:
                tests = [_test(comparison, absent, query, frame, known) for comparison in disjunct]
                satisfied |= np.logical_and.reduce([np.ones(len(rows), bool), *tests])
            scores = _scores(found.slots[:, rows], own, instances, query)
            score[rows] = np.where(satisfied, np.maximum(scores, score[rows]), score[rows])
    kept = np.arange(found.count)
    if not found.threshold.on_probability:
        kept = np.flatnonzero((score > 0) & (score >= found.threshold.value))
    return replace(found, score=score).chosen(kept), kept


def _test(
    comparison: Bound, absent: frozenset[int], query: BoundQuery, frame: EventFrame, known: dict[Bound, np.ndarray]
) -> np.ndarray:
    if comparison not in known:
        named = components_of(comparison)
        if len(named) == 1 and named <= absent:
            # The own predicates of a missing component are not tested.
            known[comparison] = np.ones(frame.rows, bool)
        else:
            known[comparison] = holds(with_defaults(comparison, absent, query.defaults), frame)
    return known[comparison]


def _scores(slots: np.ndarray, curves: EdgeCurves, instances: Instances, query: BoundQuery) -> np.ndarray:
    """The scores of paths that bind the same components."""
    bound = [place for place in range(len(slots)) if slots[place, 0] >= 0]
    window = query.window.ticks  # type: ignore[union-attr]
    score, ends = np.ones(slots.shape[1]), instances.end[slots[-1]]
    if query.negated_end:
        score = curves.at_end(instances.start[slots[0]] + window - ends)
    for source, target in zip([ENTRY, *bound], bound, strict=False):
        before = ends - window if source == ENTRY else instances.end[slots[source]]
        score = score * curves.score(source, target)(instances.start[slots[target]] - before)
    return score


# ── OUTPUT BEST ────────────────────────────────────────────────────────────────────────────────────


def best_of_each(
    found: Explanations,
    criterion: np.ndarray,
    plan: Plan,
    layout: Layout,
    table: pa.Table,
    ticks: np.ndarray,
    places: Sequence[np.ndarray],
) -> np.ndarray:
    """For each last event, the row of its most likely path. Of equal ones, the path with the earliest start is taken,
    then the one with the lexicographically smallest stream positions, then with the smallest component numbers. With a
    negated end, paths whose windows end at different times are not compared.
    """
    events = np.stack([found.slots[-1], found.ends])
    completing = np.unique(events, axis=1, return_inverse=True)[1].ravel()
    order = np.lexsort((found.starts, -criterion, completing))
    last, value, start = completing[order], criterion[order], found.starts[order]
    first = np.concatenate([[True], last[1:] != last[:-1]])
    group = np.cumsum(first) - 1
    leader = np.flatnonzero(first)[group]
    tied = order[(value == value[leader]) & (start == start[leader])]
    if len(tied) == first.sum():
        return np.sort(tied)
    position = _stream_positions(plan, layout, table, ticks)
    best: dict[int, tuple[tuple[list[int], list[int]], int]] = {}
    for row in tied.tolist():
        bound = [place for place in range(len(found.slots)) if found.slots[place, row] >= 0]
        key = ([int(position[places[place][row]]) for place in bound], bound)
        event = int(completing[row])
        if event not in best or key < best[event][0]:
            best[event] = (key, row)
    return np.sort(np.array([row for _, row in best.values()], np.int64))


def _stream_positions(plan: Plan, layout: Layout, table: pa.Table, ticks: np.ndarray) -> np.ndarray:
    """For each row of a table, its position in stream order. Equal rows have the same position."""
    keys = [ticks]
    if layout.start is not None:
        keys.append(ranks(one_array(table.column(layout.start))))
    for name in (*layout.order, *tie_break_columns(plan, layout)):
        if name in table.column_names:
            keys.append(ranks(one_array(table.column(name))))
    order = np.lexsort(keys[::-1])
    stacked = np.stack([key[order] for key in keys])
    changed = np.concatenate([[0], (stacked[:, 1:] != stacked[:, :-1]).any(axis=0)])
    position = np.empty(len(ticks), np.int64)
    position[order] = np.cumsum(changed)
    return position


class PathOutput:
    """Turns paths into composite events. What is the same for every answer of a query is computed once."""

    def __init__(self, query: BoundQuery, layout: Layout) -> None:
        self._query = query
        self._layout = layout
        self._output = Output(query, layout)
        self.schema = self._output.schema
        self._names = pa.array([component.variable for component in query.positives], pa.string())
        has_defaults = any(column.expression in query.defaults for column in query.returns or ())
        self._taken = None if has_defaults else self._output.taken
        self._small: SmallAnswer | None = None
        if self._taken is not None and not query.components[-1].negated and layout.start is None:
            # One more position is the first event that is not missing.
            count = len(query.positives)
            columns: list[Taken] = [(count, TICKS), (count - 1, TICKS), *self._taken]
            small = SmallAnswer(columns, pa.schema(list(self.schema)[: len(columns)]), layout.scale)
            self._small = small if small.writes_times else None

    def of_slots(self, growing: GrowingRows, base: int, numbers: np.ndarray, output: ArrivalOutput) -> pa.Table | None:
        """The composite events of the kernel's output, if its events are rows of small pushes; None if a column is
        computed.
        """
        if self._small is None:
            return None
        count, positions = int(output.written[0]), len(output.slots)
        slots, offsets = np.empty((positions + 1, count), np.int32), np.empty(count + 1, np.int32)
        missing = np.empty(positions * count, np.int64)
        total = describe(output.slots, count, slots, offsets, missing)
        made = self._small.batch(growing, base, numbers, slots, count)
        if made is None:
            return None
        score, probability = output.score[:count].copy(), output.probability[:count].copy()
        return self._completed(made.columns, offsets, missing[:total], score, probability)

    def table(self, table: pa.Table, ticks: np.ndarray, places: Sequence[np.ndarray], found: Explanations) -> pa.Table:
        """The composite events of paths. `places` has, for each positive component, the row of its event in `table` for
        each path. The entry of a missing component has no meaning.
        """
        if self._taken is not None:
            values = [self._taken_column(table, name, places[place], found, place) for place, name in self._taken]
            return self._made(values, found)
        parts, order = [], []
        for missing, rows in found.by_missing():
            parts.append(self._part(table, ticks, [one[rows] for one in places], found.chosen(rows), missing))
            order.append(rows)
        if not parts:
            return empty_table(self.schema)
        joined = pa.concat_tables(parts)
        if len(parts) == 1:
            return joined
        back = np.empty(found.count, np.int64)
        back[np.concatenate(order)] = np.arange(found.count)
        return joined.take(pa.array(back)).combine_chunks()

    def _made(self, values: Sequence[pa.Array], found: Explanations) -> pa.Table:
        """Composite events, given the values of RETURN."""
        time = self.schema.field(0).type
        columns = [ticks_to_time(found.starts, time), ticks_to_time(found.ends, time), *values]
        matches, places = (found.slots < 0).T.nonzero()
        offsets = np.searchsorted(matches, np.arange(found.count + 1)).astype(np.int32)
        return self._completed(columns, offsets, places, found.score, found.probability)

    def _completed(
        self,
        columns: list[pa.Array],
        offsets: np.ndarray,
        missing: np.ndarray,
        score: np.ndarray,
        probability: np.ndarray,
    ) -> pa.Table:
        """Composite events with the columns of THRESHOLD after the others."""
        names = self._names.take(arrow(missing)) if len(missing) else self._names.slice(0, 0)
        is_unknown = np.isnan(probability)
        columns.append(pa.ListArray.from_arrays(arrow(offsets), names))
        columns.append(arrow(score))
        columns.append(pa.array(probability, mask=is_unknown) if is_unknown.any() else arrow(probability))
        return pa.Table.from_arrays(columns, schema=self.schema)

    def _taken_column(self, table: pa.Table, name: str, rows: np.ndarray, found: Explanations, place: int) -> pa.Array:
        """A column of the input for one component of each path; null where its event is missing."""
        values = take(one_array(table.column(name)), rows)
        is_bound = found.slots[place] >= 0
        return values if is_bound.all() else pc.if_else(pa.array(is_bound), values, pa.scalar(None, values.type))

    def _part(
        self,
        table: pa.Table,
        ticks: np.ndarray,
        places: Sequence[np.ndarray],
        found: Explanations,
        missing: tuple[int, ...],
    ) -> pa.Table:
        """The composite events of paths that all miss the same components."""
        query, schema = self._query, self.schema
        position = {c.position: i for i, c in enumerate(query.positives)}
        frame = EventFrame(query, self._layout, table, ticks, lambda c: places[position[c]], found.count)
        time = schema.field("start").type
        absent = frozenset(query.positives[place].position for place in missing)
        values = []
        if query.returns is None:
            for component in query.positives:
                kind = schema.field(component.variable).type
                if component.position in absent:
                    values.append(pa.nulls(found.count, kind))
                else:
                    values.append(self._output.structs(frame, component, kind))
        else:
            for column in query.returns:
                kind = schema.field(column.name).type
                values.append(_returned(query, frame, column.expression, absent, time, kind))
        return self._made(values, found)


def _returned(
    query: BoundQuery,
    frame: EventFrame,
    expression: Bound,
    absent: frozenset[int],
    time: pa.DataType,
    kind: pa.DataType,
) -> pa.Array:
    is_lone = isinstance(expression, Attribute | Intrinsic) and expression.component in absent
    if is_lone and expression not in query.defaults:
        return pa.nulls(frame.rows, kind)
    value = returned(frame, with_defaults(expression, absent, query.defaults), time)
    return value if value.type == kind else value.cast(kind)


_OUTPUT_MATCHES = 1 << 14


class IncompleteOperator(InstanceOperator):
    """The state of one query. `stage` adds events; `advance` moves time and returns the matches."""

    def __init__(self, plan: IncompletePlan, layout: Layout, limits: Limits) -> None:
        lowered = lower_incomplete(plan)
        super().__init__(plan, layout, limits, lowered.lanes)
        query, model, window = plan.query, plan.model, plan.window_ticks
        assert model is not None and window is not None and query.threshold is not None
        self._threshold = query.threshold
        self._rates = rates_of(query, model)
        self._curves = [edge_curves(lossy_components(query, model, one.losses), window) for one in self._rates]
        best = edge_curves(lossy_components(query, model, best_rates(self._rates, query)), window)
        highest = lossy_components(query, model, highest_rates(self._rates))
        weights = edge_curves(highest, window) if lacking_for_probability(query, model) is None else None
        self._tables = _tables(plan, lowered, best, weights, limits)
        self._state = new_state(self._tables, 0, 1)
        self._output = new_output(self._tables, _OUTPUT_MATCHES)
        # Paths that wait for the end of their window.
        self._waiting = self._found(0) if query.negated_end else None
        if query.output.form is OutputForm.BEST:
            ordering = {*self._buffer.columns, *tie_break_columns(plan, layout), *layout.order}
            self._buffer.columns = [name for name in layout.schema.names if name in ordering]
        self._paths = PathOutput(query, layout)
        self.schema = self._paths.schema
        # Whether every path that the kernel finds is a row, and no query reads it.
        is_best = query.output.form is OutputForm.BEST
        self._is_shown_as_found = len(self._rates) == 1 and not is_best and query.into is None and not query.negated_end

    def _rebase(self, dead: int, used: int) -> None:
        rebase(self._state, dead, used)
        if self._waiting is not None:
            np.subtract(self._waiting.slots, dead, out=self._waiting.slots, where=self._waiting.slots >= 0)

    def _rekey(self, renamed: np.ndarray) -> None:
        self._state = rekey(self._state, self._tables.components, renamed)

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[Instances] | None, until: int) -> Answer:
        if ready is not None:
            self._scan(ready)
        return self._collect(until)

    def _scan(self, ready: Block[Instances]) -> None:
        first = self._buffer.count
        self._buffer.append(ready)
        self._state = reserve(self._tables, self._state, self._buffer.capacity, self._stager.keys.capacity)
        status, _, self._output = scan(
            self._tables,
            self._state,
            self._kernel_events(),
            first,
            self._buffer.count,
            self._output,
            matches_max=self._limits.max_answer_events // self._tables.length,
        )
        if status is Status.MATCH_LIMIT:
            self._raise_match_limit()
        if status is Status.OUTPUT_FULL:
            self._limits.check_answer(self._query.name, self._limits.max_answer_events + 1)
        assert status is Status.DONE

    def _raise_match_limit(self) -> NoReturn:
        raise LimitError(
            f"query '{self._query.name}' found more than "
            f"max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} "
            "matches that complete at one timestamp; "
            "give a higher THRESHOLD, a smaller WITHIN window or a more selective WHERE, or raise the limit"
        )

    def _released(self, waiting: Explanations, until: int) -> Explanations:
        """The paths whose windows have ended without a negative event, in the order in which the windows ended."""
        is_due = waiting.ends <= until
        self._waiting = waiting.chosen(np.flatnonzero(~is_due))
        if self._waiting.count > self._limits.max_partial_matches:
            raise LimitError(
                f"query '{self._query.name}' has more than max_partial_matches={self._limits.max_partial_matches:,} "
                "matches that wait for the end of their window; give a higher THRESHOLD, a smaller WITHIN window or a "
                "more selective WHERE, or raise the limit"
            )
        due = np.flatnonzero(is_due)
        due = due[np.argsort(waiting.ends[due], kind="stable")]
        found = waiting.chosen(due)
        allowed = np.empty(found.count, np.uint8)
        slots = np.ascontiguousarray(found.slots)
        allowed_at_end(self._tables, self._state, self._kernel_events(), slots, allowed)
        found = found.chosen(np.flatnonzero(allowed))
        if np.unique(found.ends, return_counts=True)[1].max(initial=0) > self._limits.max_matches_per_timestamp:
            self._raise_match_limit()
        return found

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    def _collect(self, until: int) -> Answer:
        count = int(self._output.written[0])
        if not count and (self._waiting is None or not self._waiting.count):
            return self.nothing
        read = self._buffer.store.open_rows if self._is_shown_as_found else None
        if read is not None:
            made = self._paths.of_slots(*read, self._buffer.rows, self._output)
            if made is not None:
                self._output.written[0] = 0
                return Answer(made, NO_TICKS, NO_TICKS)
        found = self._found(count)
        self._output.written[0] = 0
        if len(self._output.score) > 8 * _OUTPUT_MATCHES:
            self._output = new_output(self._tables, _OUTPUT_MATCHES)
        if self._waiting is not None:
            found = self._released(self._waiting.followed_by(found), until)
            if not found.count:
                return self.nothing
        # A missing component points to the row of the last one, which is never read.
        slots = np.where(found.slots >= 0, found.slots, found.slots[-1])
        table, ticks, places = self._fetch(list(slots))
        if len(self._rates) > 1:
            found, kept = refined(
                found, self._query, self._layout, self._rates, self._curves, self._buffer.events, table, ticks, places
            )
            places = [rows[kept] for rows in places]
        if self._query.output.form is OutputForm.BEST:
            by = found.probability if self._threshold.on_probability else found.score
            kept = best_of_each(found, by, self._plan, self._layout, table, ticks, places)
            found, places = found.chosen(kept), [rows[kept] for rows in places]
        return Answer(self._paths.table(table, ticks, places, found), found.starts, found.ends)

    def _found(self, count: int) -> Explanations:
        """A copy of the kernel's output, because its buffers are reused."""
        output = self._output
        slots = output.slots[:, :count].copy()
        first = slots[np.argmax(slots >= 0, axis=0), np.arange(count)]
        return Explanations(
            slots=slots,
            starts=gather(self._buffer.events.start, first),
            ends=output.match_end[:count].copy(),
            score=output.score[:count].copy(),
            probability=output.probability[:count].copy(),
            threshold=self._threshold,
        )

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    @property
    def timer(self) -> int | None:
        """The tick at which a match is due without a further event."""
        return None if self._waiting is None or not self._waiting.count else int(self._waiting.ends.min())

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        state = {name: writer.add_array(getattr(self._state, name)) for name in ("queues", "counters")}
        for name in ("links", "upper"):
            state[name] = writer.add_array(getattr(self._state, name)[: self._buffer.count])
        stored: dict[str, Any] = {**super().dump(writer), "state": state}
        if self._waiting is not None:
            stored["waiting"] = [writer.add_array(getattr(self._waiting, name)) for name in ARRAYS]
        return stored

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        stored: dict[str, Any] = {name: reader.array(number) for name, number in head["state"].items()}
        state = self._state._replace(**stored)
        self._state = reserve(self._tables, state, self._buffer.count, self._stager.keys.count)
        if self._waiting is not None:
            fresh = [getattr(self._waiting, name) for name in ARRAYS]
            paths = dict(zip(ARRAYS, reader.arrays_like(head["waiting"], fresh), strict=True))
            self._waiting = self._waiting.with_arrays(lambda name: paths[name].copy())

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel, by the names of `ArrivalCounter`."""
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in ArrivalCounter}


def _tables(
    plan: IncompletePlan, lowered: LoweredTests, curves: EdgeCurves, weights: EdgeCurves | None, limits: Limits
) -> ArrivalTables:
    query, window, threshold = plan.query, plan.window_ticks, plan.query.threshold
    assert threshold is not None and window is not None
    least_score = 0.0 if threshold.on_probability else threshold.value
    listed: list[Curve] = []
    edges = edges_of(query, curves, listed, threshold=least_score, bounds=plan.bounds)
    made = None if weights is None else weights_of(query, weights, listed)
    if query.negated_end:
        listed.append(curves.at_end)
    score_at_end = len(listed) - 1 if query.negated_end else -1
    # Matches that wait for the end of their window are counted when it ends.
    matches_max = NO_LIMIT if query.negated_end else min(limits.max_matches_per_timestamp, NO_LIMIT)
    return build_arrival_tables(
        [c.negated for c in query.components],
        window,
        least_score,
        edges,
        curve_tables(listed),
        lowered.tests,
        lowered.negative_tests,
        everywhere=[c.position for c in plan.unguarded],
        bounds=plan.bounds,
        least_probability=threshold.value if threshold.on_probability else None,
        weights=made,
        score_at_end=score_at_end,
        max_matches_per_timestamp=matches_max,
    )
