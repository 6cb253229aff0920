"""The planner: which kernel answers a query, and the plan for it. `plan = make_plan(bound, statistics)`."""

from __future__ import annotations

from collections.abc import Collection

from ouzel.bind.model import BoundQuery
from ouzel.engines.aggregate.plan import plan_aggregate
from ouzel.engines.incomplete.plan import build_incomplete
from ouzel.engines.kleene.plan import build_runs, needs_runs
from ouzel.loss import LossModel
from ouzel.plan.model import Plan, Statistics, build
from ouzel.plan.rules import check_rules, optimize


def make_plan(
    query: BoundQuery,
    statistics: Statistics | None = None,
    *,
    off: Collection[str] = (),
    model: LossModel | None = None,
) -> Plan:
    """The plan of a query, without the rules named in `off`; `model` is for queries with THRESHOLD."""
    check_rules(off)
    if query.threshold is not None:
        return build_incomplete(query, model, off)
    if query.aggregates:
        return plan_aggregate(query, statistics, off, make_plan)
    reason = needs_runs(query)
    if reason is not None:
        return build_runs(query, reason, off)
    return optimize(build(query), statistics, off=off)
