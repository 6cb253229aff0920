"""EXPLAIN of readings: the components of each reading, and how its matches are found."""

from __future__ import annotations

from dataclasses import replace

from ouzel.engines.readings.plan import NestedPlan, ReadingsPlan
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
from ouzel.plan.expressions import render_conjunct


def _nested_lines(nested: NestedPlan) -> list[str]:
    """How a negated sequence is found."""
    query = nested.plan.query
    names = {event: role.variable for role, event in zip(nested.roles, nested.events, strict=True)}
    labels = [names.get(c.variable) or " or ".join(c.types or ("any",)) + "+" * c.kleene for c in query.components]
    tests = [f"with {render_conjunct(query, c)}" for c in query.conjuncts]
    return [f"not between: {', '.join(labels)}, kernel {explanation(nested.plan).kernel}", *tests]


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
        tests += [f"  {line}" for one in plan.nested[number - 1] for line in _nested_lines(one)]
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
    if len(plan.parts) == 1:
        reason = "negated sequences are found by queries of their own"
    else:
        reason = (
            f"optional parts and alternatives mean {len(plan.parts)} linear patterns, which are answered one by one"
        )
    if is_furthest:
        reason = f"OUTPUT FURTHEST chooses among the {len(plan.parts)} beginnings of the pattern"
    found = explained(plan, " and ".join(dict.fromkeys(kernels)), reason, lines)
    return replace(found, automaton=merged(plan.parts))
