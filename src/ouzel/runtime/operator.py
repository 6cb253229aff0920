"""Which runner runs a plan. Every kernel has one; a session only knows what is said here.

Runners are loaded when the first plan needs them: their kernels are most of what a fresh process would load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from ouzel.plan.choose import by_engine, engine_of
from ouzel.plan.model import Plan, Statistics
from ouzel.runtime.arrays import empty_table
from ouzel.runtime.layout import Layout
from ouzel.runtime.limits import Limits
from ouzel.runtime.snapshot import Reader, Writer


class Runner(Protocol):
    """One query running over one stream."""

    @property
    def schema(self) -> pa.Schema:
        """The columns of the answer."""

    @property
    def moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Start and end, in ticks, of the rows that the last `advance` gave."""

    @property
    def next_deadline(self) -> int | None:
        """The earliest tick at which something that is held could lead to an answer by time alone."""

    @property
    def held_events(self) -> int:
        """How many events are pending or live."""

    @property
    def statistics(self) -> dict[str, int]:
        """What the kernel counted."""

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take rows in, in any order."""

    def advance(self, until: int) -> pa.Table:
        """No event at or before `until` can come any more: give what that completes."""

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store everything; gives what `load` needs to find it again."""

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take the place of the runner that `dump` stored."""


class Silent:
    """A query that nobody asks for any more, where runners are stored by name: it takes nothing in and tells nothing,
    and what it held goes into snapshots as it was."""

    next_deadline: int | None = None
    held_events = 0

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.schema = runner.schema
        self.moments = np.empty(0, np.int64), np.empty(0, np.int64)
        self.statistics: dict[str, int] = {}

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take nothing in."""

    def advance(self, until: int) -> pa.Table:
        """Nothing."""
        return empty_table(self.schema)

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store what was held."""
        return self._runner.dump(writer)

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take back what was held."""
        self._runner.load(reader, head)


class Stopped:
    """In the place of a query that stopped because of an error: holds nothing, takes nothing in, gives nothing."""

    next_deadline: int | None = None
    held_events = 0

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.moments = np.empty(0, np.int64), np.empty(0, np.int64)
        self.statistics: dict[str, int] = {}

    def stage(self, table: pa.Table, ticks: np.ndarray, *, keep_whole: bool = False) -> None:
        """Take nothing in."""

    def advance(self, until: int) -> pa.Table:
        """Nothing."""
        return empty_table(self.schema)

    def dump(self, writer: Writer) -> dict[str, Any]:
        """Store nothing."""
        return {}

    def load(self, reader: Reader, head: dict[str, Any]) -> None:
        """Take nothing back."""


def stopped(runner: Runner) -> Runner:
    """A runner in the place of one whose state cannot be trusted any more. Queries that are counted together with
    others have no state of their own: those only tell nothing from now on."""
    from ouzel.engines.aggregate.shared import SharedRunner

    if isinstance(runner, SharedRunner):
        runner.silence()
        return runner
    return Stopped(runner.schema)


def silenced(runner: Runner) -> Runner:
    """A runner in the place of another that is to tell nothing; what is counted together goes on for the others."""
    from ouzel.engines.aggregate.shared import SharedRunner

    if isinstance(runner, SharedRunner):
        runner.silence()
        return runner
    return runner if isinstance(runner, Silent) else Silent(runner)


def runners_for(
    plans: Mapping[str, Plan],
    layouts: Mapping[str, Layout],
    limits: Limits,
    statistics: Statistics,
    rules_off: Collection[str],
    *,
    partial: bool = False,
) -> dict[str, Runner]:
    """The runners of some queries over one stream, before their first event. Aggregates may be counted together.

    `partial`: only a part of the stream is seen, and aggregates tell changes, out of which totals are made elsewhere.
    """
    made: dict[str, Runner] = {}
    for engine, own in by_engine(plans):
        made |= engine.operators(own, layouts, limits, statistics, rules_off, partial=partial)
    return {name: made[name] for name in plans}


def runner_for(plan: Plan, layout: Layout, limits: Limits) -> Runner:
    """The runner of a plan, before its first event."""
    return engine_of(plan).operator(plan, layout, limits)
