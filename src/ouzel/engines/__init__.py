"""The engines. Each engine is a package whose module `plan` defines `ENGINE`. To add one, add a package and its name
here.

Modules are imported on first use, because the compiled code of an engine is most of what a process loads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import pyarrow as pa

    from ouzel.loss import LossModel
    from ouzel.plan.explain import Explanation
    from ouzel.plan.model import Plan, Statistics
    from ouzel.plan.rules import Rule
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import Operator, QueryOperator

# The first one that applies to a query answers it.
NAMES = ("automata", "rows", "incomplete", "aggregate", "readings", "kleene", "sequence")


@cache
def engine(name: str) -> Engine:
    """The engine with this name."""
    found = import_module(f"ouzel.engines.{name}.plan").ENGINE
    assert isinstance(found, Engine)
    return found


class Engine(ABC):
    """The interface of an engine for the planner and the runtime."""

    # The optimisations that only this engine has.
    rules: ClassVar[tuple[Rule, ...]] = ()

    @abstractmethod
    def applies(self, query: Any) -> bool:
        """Whether this engine can answer a bound query. The first engine that applies answers it."""

    @abstractmethod
    def plan(self, query: Any, statistics: Statistics, off: Collection[str], model: LossModel | None) -> Plan:
        """The plan of a query. `off` names the rules that are switched off."""

    def check_stream(self, query: Any, off: Collection[str]) -> None:  # noqa: B027  WITHIN bounds most engines
        """Raise QueryError for a query whose state would grow without bound on a stream."""

    def lacking_in_model(self, query: Any, model: LossModel) -> str | None:
        """What is missing from the answer of a query because the loss model lacks it, as a sentence."""
        return None

    def not_by_time(self, plan: Any) -> str:
        """Why `match` must not divide the events of this query by time over threads; empty if it may.

        It may if each row of the answer depends only on the events of its window, and rows are ordered by their
        ends.
        """
        return "this engine reads all events in one thread"

    def not_by_key(self, plan: Any) -> str:
        """Why `match` must not divide the events of this query by key over threads; empty if it may."""
        return "this engine reads all events in one thread"

    @abstractmethod
    def explain(self, plan: Any) -> Explanation:
        """What EXPLAIN shows of a plan."""

    def explain_together(
        self, plans: Mapping[str, Any], statistics: Statistics | None, off: Collection[str]
    ) -> list[str]:
        """What EXPLAIN shows of several queries that run together."""
        return [f"{name} is answered alone: it asks for matches" for name in plans]

    def derived_schema(self, query: Any, layout: Layout) -> pa.Schema:
        """The columns of the stream that a query writes INTO."""
        from ouzel.runtime.output import output_schema

        return output_schema(query, layout)

    @abstractmethod
    def operator(self, plan: Any, layout: Layout, limits: Limits) -> QueryOperator:
        """The operator of one query, before its first event."""

    def operators(
        self,
        plans: Mapping[str, Any],
        layouts: Mapping[str, Layout],
        limits: Limits,
        statistics: Statistics,
        off: Collection[str],
        *,
        partial: bool = False,
        together: Sequence[Sequence[str]] | None = None,
    ) -> list[Operator]:
        """The operators of queries over one stream: one for each query, or one for several queries that the engine runs
        together.

        `together` gives the queries of each operator, if a snapshot is restored. With `partial`, the operators see only
        a part of the stream and emit partial results, which the caller merges.
        """
        assert not partial, "only counters emit partial results"
        return [self.operator(plan, layouts[name], limits) for name, plan in plans.items()]
