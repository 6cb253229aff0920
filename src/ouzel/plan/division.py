"""Which events may meet in a match: the columns by which the events of a query are divided over threads or tasks."""

from __future__ import annotations

from ouzel.bind.model import Attribute
from ouzel.plan.choose import engine_of
from ouzel.plan.model import Plan


def shared_columns(plan: Plan) -> list[str]:
    """The columns that have the same value in all events of a match, including negative ones; for aggregates, only
    those that also have one value in each group."""
    found = []
    # A total over all keys, or over groups that span several keys, must be computed in one place.
    grouped = {key.path for key in plan.query.group_by} if plan.query.aggregates else None
    for part in plan.key:
        attributes = [e for e in part.expressions.values() if isinstance(e, Attribute) and len(e.path) == 1]
        names = {a.path[0] for a in attributes}
        alike = len(attributes) == len(plan.query.components) and len(names) == 1
        if alike and (grouped is None or all((name,) in grouped for name in names)):
            found += sorted(names)
    return found


def not_by_key(plan: Plan) -> str:
    """Why `match` cannot divide the events of a query by `shared_columns`; empty if it can."""
    reason = engine_of(plan).not_by_key(plan)
    if reason or shared_columns(plan):
        return reason
    return "no column is the same in all events of a match" + (" and in its group" if plan.query.aggregates else "")


def reach_ticks(plan: Plan) -> int | None:
    """No row depends on events that are this far before its end; None if events cannot be divided by time."""
    window = plan.window_ticks
    if window is None or engine_of(plan).not_by_time(plan):
        return None
    # A negated start forbids a match from up to a window before it.
    return 2 * window if plan.query.components[0].negated else window


def ends_with_an_event(plan: Plan) -> str:
    """Empty if matches complete at their last event, else the reason why their order is that of the whole stream."""
    if plan.query.ends_with_window:
        return "matches wait for the end of their window"
    return ""
