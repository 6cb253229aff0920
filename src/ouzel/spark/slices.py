"""Time cut into slices, for queries that no key spreads and for keys that are too hot.

A match that starts at t depends on nothing outside (t - window, t + window). So an event is sent to the slice of its
own time and to the neighbours whose matches it may be part of, or forbid, and a match counts where it starts. At ten
windows a slice, about one event in ten travels twice. An aggregate at t looks back one window from there, and its row
counts where t is.
"""

from __future__ import annotations

from collections.abc import Sequence

from ouzel.bind.model import TimeWindow
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm
from ouzel.plan.model import Plan
from ouzel.runtime.composition import is_composed
from ouzel.spark.catalyst import INT_MAX
from ouzel.spark.spreading import Slices

WINDOWS_PER_SLICE = 10


def cannot_be_cut(plan: Plan) -> str | None:
    """Why the matches of a query are not a matter of the events around their start; None where they are."""
    query = plan.query
    if is_composed(query):
        return "it reads what other queries find"
    if query.threshold is not None:
        return "what is missing before a match starts counts in its score"
    if query.output.form not in (OutputForm.ALL, OutputForm.FIRST):
        return f"OUTPUT {query.output.form.value.replace('_', ' ')} decides by what was found before"
    if not isinstance(query.window, TimeWindow) or query.window.ticks is None:
        return "only a window in time, WITHIN, says how far a match may reach"
    return None


def is_about_single_events(plan: Plan) -> bool:
    """Whether every match is one event, whatever the others are."""
    query = plan.query
    if len(query.components) > 1 or query.components[0].kleene or is_composed(query):
        return False
    return not query.aggregates and query.threshold is None and query.output.form is OutputForm.ALL


def cut(plans: Sequence[Plan], partitions: int, length_ticks: int | None = None) -> Slices:
    """How queries that can all be cut are cut into slices, of ten windows unless told otherwise."""
    windows = [plan.window_ticks for plan in plans if plan.window_ticks is not None]
    assert len(windows) == len(plans), "what has no window cannot be cut"
    reaches = [_reach(plan, window) for plan, window in zip(plans, windows, strict=True)]
    ahead_ticks, behind_ticks = (max(ticks) for ticks in zip(*reaches, strict=True))
    # No event may reach over a whole slice.
    shortest = max(1, ahead_ticks + behind_ticks)
    if length_ticks is not None and length_ticks < shortest:
        raise InputError(
            f"slices of {length_ticks:,} ticks are shorter than the {shortest:,} that a match may reach; "
            f"{WINDOWS_PER_SLICE} windows, {WINDOWS_PER_SLICE * max(windows):,} ticks, are a good length"
        )
    length = length_ticks or min(INT_MAX, max(shortest, WINDOWS_PER_SLICE * max(windows)))
    # A round of all parts fits 64 bits.
    parts = max(1, min(partitions, INT_MAX // length))
    return Slices(length, parts, ahead_ticks, behind_ticks, by_end=bool(plans[0].query.aggregates))


def _reach(plan: Plan, window: int) -> tuple[int, int]:
    """How far ahead and behind of itself what a slice tells may depend on events."""
    negated = plan.query.components[0].negated
    if plan.query.aggregates:
        # What leaves at a moment stood one tick before; what a negated start forbids lies up to a window before that.
        return 0, 2 * window if negated else window
    return window - 1, window - 1 if negated else 0
