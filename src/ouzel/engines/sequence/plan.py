"""The engine for sequences without Kleene closure under skip_till_any_match (SASE). It uses the common plan."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ouzel.bind.model import BoundQuery
from ouzel.engines import Engine
from ouzel.plan.division import ends_with_an_event
from ouzel.plan.model import Plan, Statistics, build
from ouzel.plan.rules import REWRITES, optimize

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.plan.explain import Explanation
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


class _Sequence(Engine):
    rules = tuple(rule for rule, _ in REWRITES if rule is not None)

    def applies(self, query: BoundQuery) -> bool:
        return True

    def plan(self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None) -> Plan:
        return optimize(build(query), statistics, off=off)

    def not_by_time(self, plan: Plan) -> str:
        return ends_with_an_event(plan)

    def not_by_key(self, plan: Plan) -> str:
        return ends_with_an_event(plan)

    def explain(self, plan: Plan) -> Explanation:
        from ouzel.engines.sequence.explain import explain

        return explain(plan)

    def operator(self, plan: Plan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.sequence.operator import SequenceOperator

        return SequenceOperator(plan, layout, limits)


ENGINE = _Sequence()
