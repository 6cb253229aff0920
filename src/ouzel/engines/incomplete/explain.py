"""Queries over incomplete streams in EXPLAIN: arrivals, paths, threshold."""

from __future__ import annotations

from ouzel.engines.incomplete.plan import IncompletePlan
from ouzel.plan.diagram import label_of, window_of
from ouzel.plan.explain import Explanation, OperatorLine, explained, key_labels, role_lines, transformation_line
from ouzel.plan.render import render_conjunct


def explain(plan: IncompletePlan) -> Explanation:
    """Describe AYAC's operators: arrivals with upper bounds, then paths from each last component backwards."""
    query, threshold = plan.query, plan.query.threshold
    assert threshold is not None
    arrivals = [f"one queue for each of {', '.join(label_of(c) for c in query.components)}"]
    if plan.key:
        arrivals.append(f"hashed by {key_labels(plan)}")
    if plan.bounds:
        arrivals.append("with an upper bound of the score of all paths to each arrival")
    optional = [c.variable for c in plan.positives[:-1]]
    paths = [f"backwards from each {label_of(plan.positives[-1])}"]
    if optional:
        paths.append(f"{', '.join(optional)} may be missing")
    paths += [f"test {render_conjunct(query, c)}" for c in (*plan.selection, *plan.equalities)]
    lines = [
        OperatorLine("roles", tuple(role_lines(plan))),
        OperatorLine("arrivals", tuple(arrivals)),
        OperatorLine("paths", tuple(paths)),
        OperatorLine("window", (f"within {window_of(query)}",)),
    ]
    if plan.negatives:
        forbidding = []
        for negative in plan.negatives:
            tests = [render_conjunct(query, c) for c in plan.forbidding.get(negative.position, ())]
            condition = f" with {' AND '.join(tests)}" if tests else ""
            forbidding.append(f"no {label_of(negative)}{condition} between its nearest bound components")
        lines.append(OperatorLine("negation", tuple(forbidding)))
    on = "probability" if threshold.on_probability else "score"
    lines.append(OperatorLine("threshold", (f"{on} of {threshold.value:g} or more",)))
    lines.append(OperatorLine("transformation", (f"{transformation_line(plan)}, missing, score, probability",)))
    because = "THRESHOLD: components may be missing, and every path has a score"
    return explained(plan, "arrivals", because, lines)
