"""Sequences in EXPLAIN: SASE's six operators."""

from __future__ import annotations

from ouzel.bind.model import EventWindow
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
from ouzel.plan.model import KeyStrategy, Plan
from ouzel.plan.render import render_conjunct


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
