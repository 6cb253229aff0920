"""The planner: chooses the engine for a query and makes its plan with `plan = make_plan(bound, statistics)`. Also says
how `match` may divide the events of a query.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

from ouzel.engines import NAMES, Engine, engine
from ouzel.errors import InputError
from ouzel.loss import LossModel
from ouzel.plan.model import KEY_HINTS, KeyStrategy, Plan, Statistics
from ouzel.plan.rules import Rule


def choose(query: Any) -> Engine:
    """The engine for a bound query."""
    return next(found for found in map(engine, NAMES) if found.applies(query))


def make_plan(
    query: Any,
    statistics: Statistics | None = None,
    *,
    off: Collection[str] = (),
    model: LossModel | None = None,
) -> Plan:
    """The plan of a query. `off` names the rules that are switched off. `model` is for queries with THRESHOLD."""
    check_rules(off)
    return choose(query).plan(query, statistics or Statistics(), off, model)


def engine_of(plan: Plan) -> Engine:
    """The engine that runs a plan."""
    return engine(plan.engine)


def by_engine(plans: Mapping[str, Plan]) -> list[tuple[Engine, dict[str, Plan]]]:
    """The plans grouped by engine."""
    found: dict[str, dict[str, Plan]] = {}
    for name, plan in plans.items():
        found.setdefault(plan.engine, {})[name] = plan
    return [(engine(name), own) for name, own in found.items()]


def not_by_key(plan: Plan) -> str:
    """Why `match` cannot divide the events of a query by the columns that are equal in a match; empty if it can."""
    reason = engine_of(plan).not_by_key(plan)
    if reason or plan.shared_columns():
        return reason
    return "no column is the same in all events of a match" + (" and in its group" if plan.query.aggregates else "")


def reach_ticks(plan: Plan) -> int | None:
    """A number of ticks such that no row depends on events so far before its end. None if events cannot be divided by
    time.
    """
    window = plan.window_ticks
    if window is None or engine_of(plan).not_by_time(plan):
        return None
    # A negated start forbids a match from up to a window before it.
    return 2 * window if plan.query.components[0].negated else window


@cache
def all_rules() -> tuple[Rule, ...]:
    """All optimisations of all engines, those of sequences first."""
    return tuple(rule for name in reversed(NAMES) for rule in engine(name).rules)


def check_rules(off: Collection[str]) -> None:
    """Raise InputError for a name that is not that of a rule."""
    known = [rule.name for rule in all_rules()]
    names = [off] if isinstance(off, str) or not isinstance(off, Collection) else off
    unknown = [name for name in names if name not in known]
    if unknown:
        raise InputError(f"there is no rule named {unknown[0]!r}; the rules are {', '.join(known)}")
    if isinstance(off, str):
        raise InputError(f"rules to switch off must be a list of names: [{off!r}]")


def key_strategy_of(hints: Mapping[str, str] | None) -> KeyStrategy | None:
    """How hints say that several equivalence tests are to be used; None if they leave it to the planner.

    >>> key_strategy_of({"key": "dynamic"})
    <KeyStrategy.DYNAMIC: 'dynamic filtering'>
    """
    if hints is None:
        return None
    if not isinstance(hints, Mapping):
        raise InputError(f'hints= must be a dictionary, such as {{"key": "dynamic"}}, got {hints!r}')
    unknown = [name for name in hints if name != "key"]
    if unknown:
        raise InputError(f"there is no hint {unknown[0]!r}; the only one is 'key'")
    asked = hints.get("key")
    if asked is not None and asked not in KEY_HINTS:
        raise InputError(f"the hint 'key' must be one of {', '.join(map(repr, KEY_HINTS))}, got {asked!r}")
    return None if asked is None else KEY_HINTS[asked]
