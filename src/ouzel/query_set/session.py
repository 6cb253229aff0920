"""The session of a set, whose queries change while events arrive.

All merged automata are one operator. Queries that cannot be merged have operators of their own. A query sees the events
after the watermark at its registration, so rows are held in order of arrival until the watermark passes them. Queries
are planned together if no call of `advance` comes between their registrations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import StateError
from ouzel.query_set.merged import MERGED, Merged
from ouzel.query_set.unmerged import UnmergedQueries
from ouzel.query_set.unseen import Unseen, named_by
from ouzel.runtime.problems import Problem
from ouzel.runtime.program import Program, load
from ouzel.runtime.session import Session, together
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.sealing import SNAPSHOT, decoding

KIND = "query set"


class GrowingSession(Session):
    """The session of a set. `advance` returns answers by template or by query, without empty ones.

    `program` has the layout and the limits; its queries are the unmerged ones.
    """

    def __init__(self, program: Program, merged: Merged, *, together: Sequence[Sequence[str]] | None = None) -> None:
        super().__init__(program, isolates=True, together=together)
        # Counting late events by query would take longer than matching those in time.
        self.late_by_query = {}
        self.merged = merged
        self.unmerged = UnmergedQueries()
        self.unseen = Unseen(program.layout)
        self._pending: list[tuple[pa.Table, np.ndarray]] = []

    # ── Queries ────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the queries that were registered since the last call. They read the events after the watermark."""
        self.merged.bring_up_to_date()
        fresh = self.unmerged.fresh()
        if not fresh:
            return
        part = self._program.of(()).joined(fresh)
        for operator in self._run(part):
            operator.advance(self._until(operator, self._watermark))
        self._program, self._stored_program = self._program.joined([part]), None
        self.unmerged.begin(self._watermark)

    def remove(self, id: Any) -> None:
        """Remove an unmerged query. What also runs for other queries continues."""
        name = self.unmerged.remove(id)
        if name is None:
            return
        operator = self._operator_of.get(name)
        if not self.drop(name):
            return
        # With its last query an operator ends, and those that were removed before leave the program.
        others = [] if operator is None else [one for one in operator.schemas if not self.unmerged.is_needed(one)]
        self.unmerged.end({name, *(one for one in others if one != name and self.drop(one))})

    def resume(self, id: Any) -> bool:
        """Continue an unmerged query that has stopped, with the events after the watermark. Returns False if there is
        none with this id.
        """
        name = next((name for name in self.problems if name != MERGED and id in self.unmerged.members(name)), None)
        if name is None:
            return False
        registration = dict(self.unmerged.items())[id]
        self.remove(id)
        self.unmerged.add(id, registration.program, registration.owner, self._watermark, self.problems)
        return True

    def _stop(self, name: str, problem: Problem) -> None:
        if name != MERGED:
            super()._stop(name, problem)
            return
        self.problems[name] = problem
        self.merged.stop()

    def stopped(self) -> dict[Any, Problem]:
        """The queries that have stopped or are suspended, and why, by the names of their answers."""
        found: dict[Any, Problem] = dict(self.merged.problems)
        for name, problem in self.problems.items():
            if name == MERGED:
                found |= dict.fromkeys((MERGED, *self.merged.names()), problem)
            else:
                found |= {id: replace(problem, query=id) for id in self.unmerged.members(name)}
        return found

    def silent(self) -> list[Problem]:
        """Queries that have not stopped but name a type or a column which no event has had so far, as problems."""
        found = []
        for group in self.merged.groups:
            reason = self.unseen.reason(named_by(group))
            if reason is not None and group.alive.any():
                ids = [group.name] if group.is_template else group.ids[group.alive].tolist()
                found += [Problem(id, None, f"query '{id}' found nothing: {reason}") for id in ids]
        for id, registration in self.unmerged.items():
            reason = self.unseen.reason(named_by(registration.program))
            if reason is not None:
                found.append(Problem(id, None, f"query '{id}' found nothing: {reason}"))
        return found

    @property
    def is_running(self) -> bool:
        """Whether some query has not stopped."""
        if MERGED not in self.problems and self.merged.is_running:
            return True
        return sum(len(self.unmerged.members(name)) for name in self.problems if name != MERGED) < len(self.unmerged)

    # ── Events ─────────────────────────────────────────────────────────────────────────────────────

    def _take(self, table: pa.Table, ticks: np.ndarray, zero_copy: bool) -> None:
        self.unseen.look_at(table)
        self._pending.append((table, ticks))
        if self._moments is not None:
            super()._take(table, ticks, zero_copy)

    def _take_ready(self, until: int) -> tuple[pa.Table, np.ndarray] | None:
        """The pending events at or before tick `until`, in order of time."""
        if not self._pending:
            return None
        table = pa.concat_tables([t for t, _ in self._pending]).combine_chunks()
        ticks = np.concatenate([k for _, k in self._pending])
        if (ticks[1:] < ticks[:-1]).any():
            order = np.argsort(ticks, kind="stable")
            table, ticks = table.take(pa.array(order)), ticks[order]
        ready = int(np.searchsorted(ticks, until, side="right"))
        self._pending = [(table.slice(ready), ticks[ready:])] if ready < len(ticks) else []
        return (table.slice(0, ready), ticks[:ready]) if ready else None

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        """Read the events up to `watermark`, and return the answers that this completes."""
        watermark = max(self._watermark, watermark)
        self.start()
        ready = self._take_ready(watermark)
        answers: dict[Any, pa.Table] = {}
        if ready is not None:
            if self._moments is None:
                super()._take(*ready, zero_copy=False)
            answers = self._read_merged(*ready)
        self.merged.evict(watermark)
        for name, rows in super().advance(watermark).items():
            if rows.num_rows:
                answers |= dict(self.unmerged.answers(name, rows))
        return answers

    def _read_merged(self, table: pa.Table, ticks: np.ndarray) -> dict[Any, pa.Table]:
        if MERGED in self.problems:
            return {}
        try:
            return self.merged.read(table, ticks)
        except Exception as error:
            self._fail(MERGED, error)
            return {}

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which answers are due without a further event; None if there is none."""
        found = [int(ticks.min()) for _, ticks in self._pending]
        deadline = super().next_deadline
        return min(found if deadline is None else [*found, deadline], default=None)

    @property
    def held_events(self) -> int:
        """The number of held events, over all queries."""
        return super().held_events + len(self.merged.rows) + sum(len(ticks) for _, ticks in self._pending)

    # ── Snapshots ──────────────────────────────────────────────────────────────────────────────────

    def _dump(
        self, writer: Writer, feeder: dict[str, Any] | None, owed: Mapping[Any, pa.Table], *, with_program: bool
    ) -> dict[str, Any]:
        self.start()
        return {
            **super()._dump(writer, feeder, owed, with_program=with_program),
            "kind": KIND,
            "pending": [[writer.add_table(table), writer.add_array(ticks)] for table, ticks in self._pending],
            "merged": self.merged.dump(writer, self._watermark),
            "unmerged": self.unmerged.dump(),
            "unseen": self.unseen.dump(),
        }

    @classmethod
    def restore(cls, blob: bytes | memoryview, program: Program | None = None) -> GrowingSession:
        """The session of a snapshot."""
        reader = Reader(blob)
        if reader.head.get("kind") != KIND:
            raise StateError("this snapshot is not one of a QuerySet; try Engine.restore")
        with decoding(SNAPSHOT):
            stored = load(reader.bytes(reader.head["program"]))
            feeder = reader.head["feeder"]
            merged = Merged(stored.layout, stored.limits, time_unit=feeder["time_unit"], merge=feeder["merge"])
            session = cls(stored, merged, together=together(reader.head))
            merged.load(reader, reader.head["merged"])
            session._load(reader, reader.head)
            if MERGED in session.problems:
                merged.stop()
            session._pending = [(reader.table(table), reader.array(ticks)) for table, ticks in reader.head["pending"]]
            session.unmerged.load(reader.head["unmerged"], stored)
            session.unseen.load(reader.head.get("unseen"))
        return session
