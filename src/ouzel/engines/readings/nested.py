"""Negated sequences: finds them, and says which matches of a reading they forbid."""

from __future__ import annotations

from typing import Any

import numpy as np

from ouzel.bind.model import BoundQuery
from ouzel.engines.readings.plan import POSITION, NestedPlan
from ouzel.engines.readings.union import Union
from ouzel.runtime.operator import MatchOperator
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.runtime.values import numbers, one_array


class NestedSequence:
    """A negated sequence: the event pairs between which it was found, with the time of each. They are kept for a
    window, because no later match can have them.
    """

    def __init__(self, plan: NestedPlan, operator: MatchOperator, query: BoundQuery) -> None:
        self.operator = operator
        variables = [component.variable for component in query.positives]
        self._roles = [(variables.index(role.variable), role.last) for role in plan.roles]
        own = [component.variable for component in plan.plan.query.positives]
        self._events = [own.index(event) for event in plan.events]
        # The positions of the events, and the end of the last sequence between them.
        self._found = np.empty((0, len(self._roles)), np.int64)
        self._ends = np.empty(0, np.int64)

    def advance(self, until: int) -> None:
        """Find the sequences that end at or before tick `until`."""
        for part in self.operator.matches(until):
            positions = numbers(one_array(part.table.column(POSITION)))
            found = np.stack([positions[part.first_rows(place)] for place in self._events], axis=1)
            self._found, self._ends = np.concatenate([self._found, found]), np.concatenate([self._ends, part.ends])
        # The last of those between the same events.
        order = np.argsort(-self._ends, kind="stable")
        _, first = np.unique(self._found[order], axis=0, return_index=True)
        kept = order[first]
        self._found, self._ends = self._found[kept], self._ends[kept]

    def evict(self, until: int, window: int | None) -> None:
        """Drop the event pairs that no later match can have."""
        if window is not None:
            kept = self._ends > until - window
            self._found, self._ends = self._found[kept], self._ends[kept]

    def forbidden(self, union: Union, asked: np.ndarray) -> np.ndarray:
        """For each match, whether a sequence was found between its events."""
        if not len(self._found):
            return np.zeros(len(asked), bool)
        matches = union.matches
        columns = [
            union.positions[(matches.last_rows if last else matches.first_rows)(place)[asked]]
            for place, last in self._roles
        ]
        both = np.concatenate([self._found, np.stack(columns, axis=1)])
        numbered = np.unique(both, axis=0, return_inverse=True)[1].reshape(-1)
        return np.isin(numbered[len(self._found) :], numbered[: len(self._found)])

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; returns what `load` needs."""
        found = np.column_stack([self._found, self._ends]).reshape(-1)
        return {"operator": self.operator.dump(writer), "found": writer.add_array(found)}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Restore what `dump` stored."""
        self.operator.load(reader, head["operator"])
        rows = reader.array(head["found"]).reshape(-1, len(self._roles) + 1)
        self._found, self._ends = rows[:, :-1], rows[:, -1]
