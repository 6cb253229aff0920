"""The engine for sequences without Kleene closure under skip_till_any_match (SASE). It uses the common plan; EXPLAIN
shows SASE's six operators."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ouzel.bind.model import BoundQuery, EventWindow
from ouzel.engines import Engine
from ouzel.plan.diagram import label_of, window_of
from ouzel.plan.explain import (
    Explanation,
    OperatorLine,
    explained,
    key_labels,
    negation_lines,
    role_lines,
    transformation_line,
)
from ouzel.plan.expressions import render_conjunct
from ouzel.plan.model import KeyStrategy, Plan, Statistics, build
from ouzel.plan.rules import REWRITES, optimize

if TYPE_CHECKING:
    from ouzel.loss import LossModel
    from ouzel.runtime.layout import Layout
    from ouzel.runtime.limits import Limits
    from ouzel.runtime.operator import QueryOperator


def explain(plan: Plan) -> Explanation:
    """Describe a sequence plan."""
    query = plan.query
    lines = [OperatorLine("roles", tuple(role_lines(plan)))]
    scan = [f"one stack for each of {', '.join(label_of(c) for c in plan.positives)}"]
    if plan.key:
        scan.append(f"partitioned by {key_labels(plan)}")
    if plan.window_in_scan:
        scan.append("events whose latest predecessor has left the window are not stacked")
    lines.append(OperatorLine("sequence scan", tuple(scan)))
    construction = ["backwards from each " + label_of(plan.positives[-1])]
    construction += [f"test {render_conjunct(query, c)}" for c in plan.construction]
    if plan.key_strategy is KeyStrategy.DYNAMIC:
        construction += [f"test [{part.label}]" for part in plan.key[1:]]
    if plan.window_in_construction:
        construction.append("stop at the edge of the window")
    lines.append(OperatorLine("sequence construction", tuple(construction)))
    if plan.selection:
        lines.append(OperatorLine("selection", tuple(render_conjunct(query, c) for c in plan.selection)))
    window = window_of(query)
    if window is not None:
        early = plan.window_in_construction and not isinstance(query.window, EventWindow)
        lines.append(OperatorLine("window", (f"within {window}" + (", already checked" if early else ""),)))
    if plan.negatives:
        lines.append(OperatorLine("negation", tuple(negation_lines(plan))))
    lines.append(OperatorLine("transformation", (transformation_line(plan),)))
    reason = "no Kleene component and skip_till_any_match: every match is a path through stacks of single events"
    return explained(plan, "stacks", reason, lines)


class _Sequence(Engine):
    rules = tuple(rule for rule, _ in REWRITES if rule is not None)

    def applies(self, query: BoundQuery) -> bool:
        return True

    def plan(self, query: BoundQuery, statistics: Statistics, off: Collection[str], model: LossModel | None) -> Plan:
        return optimize(build(query), statistics, off=off)

    def not_by_time(self, plan: Plan) -> str:
        return plan.ends_with_an_event()

    def not_by_key(self, plan: Plan) -> str:
        return plan.ends_with_an_event()

    def explain(self, plan: Plan) -> Explanation:
        return explain(plan)

    def operator(self, plan: Plan, layout: Layout, limits: Limits) -> QueryOperator:
        from ouzel.engines.sequence.operator import SequenceOperator

        return SequenceOperator(plan, layout, limits)


ENGINE = _Sequence()
