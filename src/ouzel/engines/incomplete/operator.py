"""Runs one query over an incomplete stream: scores arrivals, finds paths, and returns them with their missing
components."""

from __future__ import annotations

from typing import Any

import numpy as np

from ouzel.engines.incomplete.output import Explanations, best_of_each, refined, transform_incomplete
from ouzel.engines.incomplete.plan import IncompletePlan, LoweredTests, lower_incomplete
from ouzel.engines.incomplete.queues import rebase, rekey
from ouzel.engines.incomplete.scores import EdgeCurves, best_rates, edge_curves, edges_of, lossy_components, rates_of
from ouzel.engines.incomplete.search import scan
from ouzel.engines.incomplete.tables import (
    ArrivalCounter,
    ArrivalTables,
    build_arrival_tables,
    new_output,
    new_state,
    reserve,
)
from ouzel.errors import LimitError
from ouzel.kernels.events import NO_LIMIT, Instances, Status
from ouzel.kernels.order import gather
from ouzel.lang.syntax import OutputForm
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.buffer import Block
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.operator import NO_TICKS, Answer, InstanceOperator
from ouzel.runtime.output import output_schema
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.stream_order import tie_break_columns

_OUTPUT_MATCHES = 1 << 14


class IncompleteOperator(InstanceOperator):
    """The state of one query. `stage` takes in events; `advance` moves time and returns the matches."""

    def __init__(self, plan: IncompletePlan, layout: Layout, limits: Limits) -> None:
        lowered = lower_incomplete(plan)
        super().__init__(plan, layout, limits, lowered.lanes)
        query, model, window = plan.query, plan.model, plan.window_ticks
        assert model is not None and window is not None and query.threshold is not None
        self._threshold = query.threshold
        self._rates = rates_of(query, model)
        self._curves = [edge_curves(lossy_components(query, model, one.losses), window) for one in self._rates]
        best = edge_curves(lossy_components(query, model, best_rates(self._rates, query)), window)
        self._tables = _tables(plan, lowered, best, limits)
        self._state = new_state(self._tables, 0, 1)
        self._output = new_output(self._tables, _OUTPUT_MATCHES)
        if query.output.form is OutputForm.BEST:
            ordering = {*self._buffer.columns, *tie_break_columns(plan, layout), *layout.order}
            self._buffer.columns = [name for name in layout.schema.names if name in ordering]
        self.schema = output_schema(query, layout)

    def _rebase(self, dead: int, used: int) -> None:
        rebase(self._state, dead, used)

    def _rekey(self, renamed: np.ndarray) -> None:
        self._state = rekey(self._state, self._tables.components, renamed)

    # ── Moving time on ─────────────────────────────────────────────────────────────────────────────

    def _read(self, ready: Block[Instances] | None, until: int) -> Answer:
        if ready is not None:
            self._scan(ready)
        return self._collect()

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
            raise LimitError(
                f"query '{self._query.name}' found more than "
                f"max_matches_per_timestamp={self._limits.max_matches_per_timestamp:,} "
                "matches that complete at one timestamp; "
                "give a higher THRESHOLD, a smaller WITHIN window or a more selective WHERE, or raise the limit"
            )
        if status is Status.OUTPUT_FULL:
            self._limits.check_answer(self._query.name, self._limits.max_answer_events + 1)
        assert status is Status.DONE

    # ── Giving matches out ─────────────────────────────────────────────────────────────────────────

    def _collect(self) -> Answer:
        count = int(self._output.written[0])
        if not count:
            return Answer(empty_table(self.schema), NO_TICKS, NO_TICKS)
        found = self._found(count)
        self._output.written[0] = 0
        if len(self._output.criterion) > 8 * _OUTPUT_MATCHES:
            self._output = new_output(self._tables, _OUTPUT_MATCHES)
        bound = found.slots >= 0
        # A missing component points to the row of the last one, which is never read.
        slots = np.where(bound, found.slots, found.slots[-1])
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
        made = transform_incomplete(self._query, self._layout, table, ticks, places, found)
        return Answer(made, found.starts, found.ends)

    def _found(self, count: int) -> Explanations:
        """A copy of what the kernel wrote, because its buffers are reused."""
        output = self._output
        slots = output.slots[:, :count].copy()
        criterion, other = output.criterion[:count].copy(), output.other[:count].copy()
        score, probability = (other, criterion) if self._threshold.on_probability else (criterion, other)
        first = slots[np.argmax(slots >= 0, axis=0), np.arange(count)]
        return Explanations(
            slots=slots,
            starts=gather(self._buffer.events.start, first),
            ends=output.match_end[:count].copy(),
            score=score,
            probability=np.where(output.subsumed[:count] != 0, np.nan, probability),
            threshold=self._threshold,
        )

    # ── What is open ───────────────────────────────────────────────────────────────────────────────

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; `load` takes what this returns."""
        state = {name: writer.add_array(getattr(self._state, name)) for name in ("queues", "counters")}
        for name in ("links", "upper"):
            state[name] = writer.add_array(getattr(self._state, name)[: self._buffer.count])
        return {**super().dump(writer), "state": state}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        super().load(reader, head)
        stored: dict[str, Any] = {name: reader.array(number) for name, number in head["state"].items()}
        state = self._state._replace(**stored)
        self._state = reserve(self._tables, state, self._buffer.count, self._stager.keys.count)

    @property
    def statistics(self) -> dict[str, int]:
        """The counters of the kernel, by the names of `ArrivalCounter`."""
        return {counter.name.lower(): int(self._state.counters[counter]) for counter in ArrivalCounter}


def _tables(plan: IncompletePlan, lowered: LoweredTests, curves: EdgeCurves, limits: Limits) -> ArrivalTables:
    query, window = plan.query, plan.window_ticks
    assert query.threshold is not None and window is not None
    edges, curve_tables = edges_of(
        query,
        curves,
        threshold=query.threshold.value,
        on_probability=query.threshold.on_probability,
        bounds=plan.bounds,
    )
    some_missing = any(edge.target - edge.source > 1 for edge in edges)
    return build_arrival_tables(
        [c.negated for c in query.components],
        window,
        query.threshold.value,
        edges,
        curve_tables,
        lowered.tests,
        lowered.negative_tests,
        everywhere=[c.position for c in plan.unguarded],
        bounds=plan.bounds,
        criterion_is_probability=query.threshold.on_probability,
        find_subsumed=some_missing and curves.knows_probability,
        max_matches_per_timestamp=min(limits.max_matches_per_timestamp, NO_LIMIT),
    )
