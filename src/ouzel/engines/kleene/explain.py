"""Kleene queries in EXPLAIN: events and the runs of NFA^b."""

from __future__ import annotations

from ouzel.bind.model import EventWindow
from ouzel.engines.kleene.plan import RunPlan
from ouzel.plan.diagram import window_of
from ouzel.plan.explain import (
    Explanation,
    OperatorLine,
    explained,
    key_labels,
    negation_lines,
    role_lines,
    transformation_line,
)


def explain(plan: RunPlan) -> Explanation:
    """Describe how NFA^b treats events and runs; the tests are on the automaton's edges."""
    reading = ["every event is shown to the runs of its partition"]
    if plan.key:
        reading[0] += f", by {key_labels(plan)}"
    if plan.coded:
        labels = ", ".join(".".join(test.path) for test in plan.coded)
        lacked = any(any(test.lacked_by.values()) for test in plan.coded)
        reading.append(f"[{labels}] is compared between events" + (", since a type lacks it" if lacked else ""))
    if plan.needs_positions:
        counted = "their partition" if plan.key and not plan.query.is_strict else "the whole stream"
        reading.append(f"events that fill no component count too, in {counted}")
    window = window_of(plan.query)
    if window is not None:
        reading.append(f"runs that have left the window of {window} end")
    if isinstance(plan.query.window, EventWindow) and plan.key:
        reading.append(
            "a window counts the events of its key: every key seen keeps its last ones (max_buffered_events)"
        )
    lines = [OperatorLine("roles", tuple(role_lines(plan))), OperatorLine("runs", tuple(reading))]
    if plan.negatives:
        lines.append(OperatorLine("negation", tuple(negation_lines(plan))))
    lines.append(OperatorLine("transformation", (transformation_line(plan),)))
    return explained(plan, plan.kernel.value, plan.reason, lines)
