"""The optimiser: rules that move work down into the scan, in one ordered tuple.

Each rule is a pure function from plan to plan. No rule changes an answer. Each can be switched off by its name, and
tests run every case without each rule that acts on it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import NamedTuple

from ouzel.bind.model import Attribute, Bound, Conjunct, EquivalenceTest, Kind, Operation, TimeWindow
from ouzel.plan.expressions import attribute_of, components_of, equal_values, pairwise_equalities, walk
from ouzel.plan.model import KeyPart, KeyStrategy, NegationStrategy, Plan, Statistics

# Which way of a second equivalence test is best, measured end to end (benchmarks.sase, figure 10: L = 3, W = 10,000,
# 20 types; CPU time of composite : Multi-PAIS : dynamic, the best being 1):
#   V1 x V2 =     500 to  4,000   1 : 1.3 to 2.3 : 1.4 to 1.8
#              10,000 to 20,000   1 : 1.0 to 1.1 : 1.1 to 1.3
#             100,000 and more    1.2 to 1.6 : 1 : 1.1 to 1.2
# Composite keys cost a second look-up for each event, Multi-PAIS a walk down two stacks, which is short only where
# the first key alone leaves few events of a window in a stack. Dynamic filtering was never the best of the three.
COMPOSITE_KEYS_MAX = 20_000
# Events of any type in a window for each value of the first key. Above it, the number of sequences that only the second
# test refuses would grow with a power of the length; a composite key never costs more than the figures above.
STACK_EVENTS_MAX = 20


class Rule(NamedTuple):
    """An optimisation: the name by which it is switched off, and what it does."""

    name: str
    meaning: str


PREDICATES_INTO_ROLES = "predicates_into_roles"
EQUIVALENCE_INTO_KEY = "equivalence_into_key"
WRITTEN_EQUALITIES = "written_equalities_into_key"
SECOND_EQUIVALENCE = "way_of_second_equivalence"
PREDICATES_INTO_CONSTRUCTION = "predicates_into_construction"
WINDOW_INTO_SCAN = "window_into_scan"
WINDOW_INTO_CONSTRUCTION = "window_into_construction"
NEGATION_INTO_CONSTRUCTION = "negation_into_construction"


def predicates_into_roles(plan: Plan, statistics: Statistics) -> Plan:
    roles = {position: list(conjuncts) for position, conjuncts in plan.roles.items()}
    kept: list[Conjunct] = []
    moved = 0
    for conjunct in plan.selection:
        if conjunct.single_event:
            roles[next(iter(conjunct.components))].append(conjunct)
            moved += 1
        else:
            kept.append(conjunct)
    forbidding = {}
    for position, conjuncts in plan.forbidding.items():
        alone = tuple(c for c in conjuncts if c.single_event)
        roles[position].extend(alone)
        moved += len(alone)
        forbidding[position] = tuple(c for c in conjuncts if not c.single_event)
    if not moved:
        return plan
    return replace(
        plan, roles={p: tuple(c) for p, c in roles.items()}, selection=tuple(kept), forbidding=forbidding
    ).with_note(PREDICATES_INTO_ROLES, f"{_count(moved, 'single-event predicate')} decided before the scan")


def equivalence_into_key(plan: Plan, statistics: Statistics) -> Plan:
    # An event that lacks the attribute may join every partition, so such a test cannot be a key.
    keyed = [t for t in plan.equivalences if not any(t.lacked_by.get(c.position) for c in plan.positives)]
    if not keyed:
        return plan
    parts = []
    for test in keyed:
        covered = [c.position for c in plan.query.components if not test.lacked_by.get(c.position)]
        parts.append(KeyPart(".".join(test.path), test.type, {p: attribute_of(plan.query, p, test) for p in covered}))
    # A negative component of which only some types lack the attribute: its other events must still be equal.
    partly = [test for test in keyed if any(test.lacked_by.get(c.position) for c in plan.negatives)]
    others = tuple(test for test in plan.equivalences if test not in keyed)
    changed = replace(plan, key=(*plan.key, *parts), equivalences=others)
    changed = _keep_negatives_apart(_spell_out(changed, partly, negatives_only=True))
    return changed.with_note(EQUIVALENCE_INTO_KEY, f"partitioned by {', '.join(part.label for part in parts)}")


def spell_out_equivalences(plan: Plan, statistics: Statistics) -> Plan:
    """The plan with equalities between events in place of the equivalence tests that are not a key."""
    return _spell_out(replace(plan, equivalences=()), plan.equivalences, negatives_only=False)


def _spell_out(plan: Plan, tests: Collection[EquivalenceTest], *, negatives_only: bool) -> Plan:
    """The plan with equality conjuncts between events in place of some equivalence tests."""
    selection = list(plan.selection)
    forbidding = {position: list(conjuncts) for position, conjuncts in plan.forbidding.items()}
    for test in tests:
        for conjunct in pairwise_equalities(plan.query, test):
            if conjunct.negative is None:
                if not negatives_only:
                    selection.append(conjunct)
            elif not negatives_only or test.lacked_by.get(conjunct.negative):
                forbidding[conjunct.negative].append(conjunct)
    return replace(
        plan,
        selection=tuple(selection),
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
    )


def written_equalities_into_key(plan: Plan, statistics: Statistics) -> Plan:
    """The plan with equalities such as `a.id = b.id AND b.id = c.id` as part of the key, like [id]. They are not a
    partition in the sense of the language.
    """
    parts: list[KeyPart] = []
    implied: list[Conjunct] = []
    forbidding = {position: list(conjuncts) for position, conjuncts in plan.forbidding.items()}
    for group in _equality_classes(plan.selection):
        # If a class has two values of one component, the first is hashed and the other equality stays.
        chosen: dict[int, Bound] = {}
        for position, expression in group:
            chosen.setdefault(position, expression)
        if set(chosen) != {c.position for c in plan.positives} or len(chosen) < 2:
            continue
        expressions = dict(chosen)
        for negative in plan.negatives:
            for conjunct in forbidding[negative.position]:
                sides = _plain_equality(conjunct)
                if sides and all(chosen.get(p) == e for p, e in sides.items() if p != negative.position):
                    expressions[negative.position] = sides[negative.position]
                    forbidding[negative.position].remove(conjunct)
                    break
        label = " = ".join(_label(plan, chosen[position]) for position in sorted(chosen))
        parts.append(KeyPart(label, chosen[min(chosen)].type, expressions))
        for conjunct in plan.selection:
            sides = _plain_equality(conjunct)
            if sides and all(chosen.get(p) == e for p, e in sides.items()):
                implied.append(conjunct)
    if not parts:
        return plan
    changed = replace(
        plan,
        key=(*plan.key, *parts),
        selection=tuple(c for c in plan.selection if c not in implied),
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
    )
    return _keep_negatives_apart(changed).with_note(
        WRITTEN_EQUALITIES, f"hashed by {'; '.join(part.label for part in parts)}"
    )


def _keep_negatives_apart(plan: Plan) -> Plan:
    """If some key part leaves out a negative component, its events forbid matches in every partition. So its other key
    parts are turned into equalities.
    """
    forbidding = dict(plan.forbidding)
    for negative in plan.unguarded:
        neighbour = min((c.position for c in plan.positives), key=lambda position: abs(position - negative.position))
        for part in plan.key:
            if negative.position in part.expressions:
                values = {position: part.expressions[position] for position in (neighbour, negative.position)}
                equality = equal_values(plan.query, values, values[negative.position].span)
                if equality not in forbidding[negative.position]:
                    forbidding[negative.position] += (equality,)
    return replace(plan, forbidding=forbidding)


def _equality_classes(conjuncts: Collection[Conjunct]) -> list[list[tuple[int, Bound]]]:
    """Sets of values that must all be equal, connected by plain equalities. A value is (component, expression)."""
    classes: list[list[tuple[int, Bound]]] = []
    for conjunct in conjuncts:
        sides = _plain_equality(conjunct)
        if sides is None:
            continue
        merged = list(sides.items())
        for group in [group for group in classes if any(side in group for side in sides.items())]:
            classes.remove(group)
            merged = group + [side for side in merged if side not in group]
        classes.append(merged)
    return classes


def _plain_equality(conjunct: Conjunct) -> dict[int, Bound] | None:
    """The two sides, by component, of a conjunct that is one equality between attributes of two components; None for
    other conjuncts.
    """
    if len(conjunct.comparisons) != 1 or len(conjunct.components) != 2:
        return None
    comparison = conjunct.comparisons[0]
    if not isinstance(comparison, Operation) or comparison.operator != "=":
        return None
    sides: dict[int, Bound] = {}
    for side in comparison.operands:
        owners = components_of(side)
        optional = any(isinstance(part, Attribute) and part.present_in is not None for part in walk(side))
        if len(owners) != 1 or optional or side.type.kind is Kind.UNKNOWN:
            return None
        sides[next(iter(owners))] = side
    return sides if len(sides) == 2 else None


def _label(plan: Plan, expression: Bound) -> str:
    if isinstance(expression, Attribute):
        return f"{plan.query.components[expression.component].variable}.{'.'.join(expression.path)}"
    return "an expression"


def way_of_second_equivalence(plan: Plan, statistics: Statistics) -> Plan:
    if len(plan.key) < 2:
        return plan
    asked = statistics.key_strategy
    known = [statistics.distinct.get(part.label) for part in plan.key]
    if asked is not None and any(count is None for count in known):
        return replace(plan, key_strategy=asked).with_note(SECOND_EQUIVALENCE, f"{asked.value}, as the hint asks")
    if any(count is None for count in known):
        return plan.with_note(SECOND_EQUIVALENCE, "one composite key: the number of distinct values is unknown")
    counts = [count for count in known if count is not None]
    product = 1
    for count in counts:
        product *= max(1, count)
    best = max(range(len(counts)), key=counts.__getitem__)
    ordered = (plan.key[best], *(part for i, part in enumerate(plan.key) if i != best))
    if asked is not None:
        return replace(plan, key=ordered, key_strategy=asked).with_note(
            SECOND_EQUIVALENCE, f"{asked.value}, as the hint asks"
        )
    window, rate = plan.window_ticks, statistics.events_per_tick
    stack_events = None if window is None or rate is None else window * rate / max(1, counts[best])
    if product <= COMPOSITE_KEYS_MAX or stack_events is None or stack_events > STACK_EVENTS_MAX or plan.negatives:
        return plan.with_note(SECOND_EQUIVALENCE, f"one composite key: about {product:,} combinations")
    return replace(plan, key=ordered, key_strategy=KeyStrategy.MULTI_PAIS).with_note(
        SECOND_EQUIVALENCE,
        f"Multi-PAIS: about {product:,} combinations, and few events of a window for each value of {ordered[0].label}",
    )


def predicates_into_construction(plan: Plan, statistics: Statistics) -> Plan:
    if not plan.selection:
        return plan
    return replace(plan, construction=(*plan.construction, *plan.selection), selection=()).with_note(
        PREDICATES_INTO_CONSTRUCTION,
        f"{_count(len(plan.selection), 'predicate')} tested as soon as the events are bound",
    )


def window_into_scan(plan: Plan, statistics: Statistics) -> Plan:
    if not isinstance(plan.query.window, TimeWindow):
        return plan
    return replace(plan, window_in_scan=True).with_note(
        WINDOW_INTO_SCAN, "an event whose latest predecessor has left the window is not stacked"
    )


def window_into_construction(plan: Plan, statistics: Statistics) -> Plan:
    if not isinstance(plan.query.window, TimeWindow):
        return plan
    return replace(plan, window_in_construction=True).with_note(
        WINDOW_INTO_CONSTRUCTION, "the backward search stops at the window's edge"
    )


def negation_into_construction(plan: Plan, statistics: Statistics) -> Plan:
    if not plan.negatives:
        return plan
    return replace(plan, negation=NegationStrategy.CONSTRUCTION).with_note(
        NEGATION_INTO_CONSTRUCTION, "a forbidden event cuts the backward search short"
    )


_Rewrite = Callable[[Plan, Statistics], Plan]
REWRITES: tuple[tuple[Rule | None, _Rewrite], ...] = (
    (Rule(PREDICATES_INTO_ROLES, "single-event predicates decide an event's roles"), predicates_into_roles),
    (Rule(EQUIVALENCE_INTO_KEY, "equivalence tests partition the events (SASE 4.2.1)"), equivalence_into_key),
    (Rule(WRITTEN_EQUALITIES, "written equalities are hashed too"), written_equalities_into_key),
    (Rule(SECOND_EQUIVALENCE, "how a second equivalence is pushed (SASE 4.2.2)"), way_of_second_equivalence),
    # Not an optimisation, so it has no name and cannot be switched off.
    (None, spell_out_equivalences),
    (Rule(PREDICATES_INTO_CONSTRUCTION, "other predicates are tested in construction"), predicates_into_construction),
    (Rule(WINDOW_INTO_SCAN, "the window filters transitions (SASE 4.3)"), window_into_scan),
    (Rule(WINDOW_INTO_CONSTRUCTION, "the window bounds the backward search (SASE 4.3)"), window_into_construction),
    (Rule(NEGATION_INTO_CONSTRUCTION, "negation is checked during construction"), negation_into_construction),
)


def optimize(plan: Plan, statistics: Statistics | None = None, *, off: Collection[str] = ()) -> Plan:
    """The plan after all rules, in order, except those named in `off`."""
    for rule, rewrite in REWRITES:
        if rule is None or rule.name not in off:
            plan = rewrite(plan, statistics or Statistics())
    return plan


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
