"""Negated sequences: which matches of a reading they forbid."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.engines.readings.forms import position_lists
from ouzel.engines.readings.plan import NestedPlan
from ouzel.runtime.operator import Answer, QueryOperator
from ouzel.runtime.snapshot import Reader, Writer


class NestedSequence:
    """The events between which a negated sequence was found, and since when. They are kept for a window: no later match
    has them."""

    def __init__(self, plan: NestedPlan, operator: QueryOperator) -> None:
        self.operator = operator
        self._roles = plan.roles
        self._events = plan.events
        self._found: dict[tuple[int, ...], int] = {}

    def allowed(self, answer: Answer, until: int, window: int | None) -> Answer:
        """The matches that the sequences up to a tick do not forbid."""
        found = self.operator.answer(until)
        if found.table.num_rows:
            columns = [[one[0] for one in position_lists(found.table, name)] for name in self._events]
            self._found.update(zip(zip(*columns, strict=True), found.ends.tolist(), strict=True))
        kept = None
        if self._found and answer.table.num_rows:
            lists = {role.variable: position_lists(answer.table, role.variable) for role in self._roles}
            columns = [[one[-role.last] for one in lists[role.variable]] for role in self._roles]
            kept = np.array([events not in self._found for events in zip(*columns, strict=True)], bool)
        if window is not None:
            self._found = {events: end for events, end in self._found.items() if end > until - window}
        if kept is None or kept.all():
            return answer
        return Answer(answer.table.filter(pa.array(kept)), answer.starts[kept], answer.ends[kept])

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        rows = [(*events, end) for events, end in self._found.items()]
        held = np.array(rows, np.int64).reshape(-1)
        return {"operator": self.operator.dump(writer), "found": writer.add_array(held)}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self.operator.load(reader, head["operator"])
        rows = reader.array(head["found"]).reshape(-1, len(self._roles) + 1).tolist()
        self._found = {tuple(events): end for *events, end in rows}
