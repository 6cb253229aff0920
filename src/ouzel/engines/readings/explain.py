"""Readings in EXPLAIN: the components of each, and how its matches are found."""

from __future__ import annotations

from dataclasses import replace

from ouzel.engines.readings.plan import ReadingsPlan
from ouzel.lang.syntax import OutputForm
from ouzel.plan.diagram import merged, pattern_label, window_of
from ouzel.plan.explain import (
    Explanation,
    OperatorLine,
    explained,
    explanation,
    key_labels,
    negation_lines,
    role_lines,
    transformation_line,
)


def explain(plan: ReadingsPlan) -> Explanation:
    """Describe a plan of several readings."""
    lines = [OperatorLine("roles", tuple(role_lines(plan)))]
    if plan.key:
        lines.append(OperatorLine("key", (f"every reading is partitioned by {key_labels(plan)}",)))
    kernels = []
    for number, part in enumerate(plan.parts, 1):
        kernel = explanation(part).kernel
        kernels.append(kernel)
        tests = [f"  {line}" for line in negation_lines(part)] if part.negatives else []
        lines.append(OperatorLine(f"reading {number}, kernel {kernel}", (pattern_label(part.query), *tests)))
    window = window_of(plan.query)
    if window is not None:
        lines.append(OperatorLine("window", (f"within {window}",)))
    is_furthest = plan.query.output.form is OutputForm.FURTHEST
    chosen = "the matches of all readings, in order of their end, then of the reading"
    if is_furthest:
        chosen = "of the runs from one event the longest: at once if it is complete, else when its window has passed"
    lines.append(OperatorLine("union", (chosen,)))
    lines.append(OperatorLine("transformation", (transformation_line(plan),)))
    reason = f"optional parts and alternatives mean {len(plan.parts)} linear patterns, which are answered one by one"
    if is_furthest:
        reason = f"OUTPUT FURTHEST chooses among the {len(plan.parts)} beginnings of the pattern"
    found = explained(plan, " and ".join(dict.fromkeys(kernels)), reason, lines)
    return replace(found, automaton=merged(plan.parts))
