"""Normal forms of conditions: pushes NOT into comparisons, then makes conjuncts by the events that they name.

The smallest unit is a comparison: = != < <= > >=, BETWEEN, IN, LIKE, IS NULL, or any other condition without AND, OR
and NOT. Conditions are not simplified further, because the form of a conjunct decides where it is tested.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TypeGuard

from ouzel.bind.diagnostics import Source
from ouzel.bind.model import Aggregation, Attribute, Bound, CompoundComparison, Intrinsic, Length, Operation, parts

OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
EVENT_SETS_MAX = 5_000
TESTS_MAX = 250_000

Disjunction = tuple[Bound, ...]


def conjunctive_form(condition: Bound, source: Source) -> list[Disjunction]:
    """The condition as a conjunction of disjunctions, one for each set of events that a conjunct may name.

    Distributing OR over AND would give exponentially many conjuncts: 2^n for n conditions (x AND y) joined by OR. But
    only the events that a conjunct names decide where it is tested. So all conjuncts that name the same events, or a
    subset of them, become one: the condition itself, in which true replaces every comparison that names other events.
    The parts of a disjunction are comparisons, or ANDs and ORs of comparisons.

    The number of sets of events can also be exponential, but only in the length of the pattern.
    """
    found: dict[Disjunction, None] = {}
    for part in _operands("and", with_not_pushed_in(condition)):
        found |= dict.fromkeys(_conjuncts(part, source))
    return list(found)


def with_not_pushed_in(condition: Bound, negate: bool = False) -> Bound:
    """The condition with NOT pushed down to single comparisons by De Morgan's laws. `not` remains only around
    comparisons without an opposite operator.
    """
    match condition:
        case CompoundComparison() if not negate:
            return condition
        case CompoundComparison(operands=operands):
            opposites = tuple(with_not_pushed_in(operand, True) for operand in operands)
            return replace(condition, operator="or" if condition.operator == "and" else "and", operands=opposites)
        case Operation(operator="not", operands=(operand,)):
            return with_not_pushed_in(operand, not negate)
        case Operation(operator=("and" | "or") as operator, operands=operands):
            if negate:
                operator = "or" if operator == "and" else "and"
            return replace(
                condition, operator=operator, operands=tuple(with_not_pushed_in(o, negate) for o in operands)
            )
        case _ if not negate:
            return condition
        case Operation(operator=operator) if operator in OPPOSITE:
            return replace(condition, operator=OPPOSITE[operator])
    return Operation("not", (condition,), type=condition.type, span=condition.span)


def is_junction(condition: Bound) -> TypeGuard[Operation]:
    """Whether a condition is an AND or OR of comparisons that does not count as one comparison."""
    is_logical = isinstance(condition, Operation) and condition.operator in ("and", "or")
    return is_logical and not isinstance(condition, CompoundComparison)


def comparisons_of(*conditions: Bound) -> Iterator[Bound]:
    """The single comparisons of conditions."""
    stack = list(reversed(conditions))
    while stack:
        condition = stack.pop()
        if is_junction(condition):
            stack.extend(reversed(condition.operands))
        else:
            yield condition


def _operands(operator: str, condition: Bound) -> Iterator[Bound]:
    """The operands of nested ANDs or ORs. Any other condition is its own only operand."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if is_junction(part) and part.operator == operator:
            stack.extend(reversed(part.operands))
        else:
            yield part


def _conjuncts(part: Bound, source: Source) -> Iterator[Disjunction]:
    if not is_junction(part):
        yield (part,)
        return
    # A condition that all alternatives share becomes a conjunct, which the planner may use as a key.
    for common in _common(part):
        yield tuple(dict.fromkeys(_operands("or", common)))
    events = _Events(part)
    sets = events.sets_of(part)
    if sets is None or len(sets) * len(events.named) > TESTS_MAX:
        raise source.mistake(
            f"in conjunctive form the condition names more than {EVENT_SETS_MAX:,} different sets of events",
            part.span,
            "write ORs of ANDs over fewer components, or use several queries",
        )
    for chosen in sorted(sets):
        restricted = events.restricted(part, chosen)
        assert restricted is not None, "every set has a conjunct"
        yield tuple(dict.fromkeys(_operands("or", restricted)))


def _common(condition: Operation) -> Iterable[Bound]:
    """The conditions that every alternative of an OR contains."""
    first, *others = _operands("or", condition)
    common = dict.fromkeys(_operands("and", first))
    for other in others:
        if not common:
            break
        common = {part: None for part in _operands("and", other) if part in common}
    return common


class _Events:
    """Sets of events that comparisons name, as bit sets. They show which conjuncts the conjunctive form has."""

    def __init__(self, condition: Bound) -> None:
        bits: dict[object, int] = {}
        self.named: dict[int, int] = {}
        for comparison in comparisons_of(condition):
            mask = 0
            for part in parts(comparison):
                if isinstance(part, Attribute | Intrinsic):
                    mask |= 1 << bits.setdefault((part.component, part.at), len(bits))
                elif isinstance(part, Aggregation):
                    mask |= 1 << bits.setdefault((part.component, part.scope), len(bits))
                elif isinstance(part, Length):
                    mask |= 1 << bits.setdefault(part.component, len(bits))
            # By identity: comparing and hashing would walk through every comparison repeatedly.
            self.named[id(comparison)] = mask

    def sets_of(self, condition: Bound) -> frozenset[int] | None:
        """The sets of events that conjuncts of the conjunctive form name; None if there are too many."""
        if not is_junction(condition):
            return frozenset((self.named[id(condition)],))
        below = []
        for operand in condition.operands:
            sets = self.sets_of(operand)
            if sets is None:
                return None
            below.append(sets)
        if condition.operator == "and":
            joined = frozenset().union(*below)
            return joined if len(joined) <= EVENT_SETS_MAX else None
        found = below[0]
        # Joining is commutative and associative, so a set that changes nothing now never will.
        idle: set[frozenset[int]] = set()
        for more in below[1:]:
            if more in idle:
                continue
            if len(found) * len(more) > TESTS_MAX:
                return None
            joined = frozenset(one | other for one in found for other in more)
            if joined == found:
                idle.add(more)
            elif len(joined) > EVENT_SETS_MAX:
                return None
            found = joined
        return found

    def restricted(self, condition: Bound, chosen: int) -> Bound | None:
        """The condition in which true replaces every comparison that names other events; None if the whole condition is
        then true.
        """
        if not is_junction(condition):
            return condition if self.named[id(condition)] | chosen == chosen else None
        kept = []
        for operand in condition.operands:
            restricted = self.restricted(operand, chosen)
            if restricted is not None:
                kept.append(restricted)
            elif condition.operator == "or":
                return None
        if len(kept) <= 1:
            return kept[0] if kept else None
        return replace(condition, operands=tuple(kept))
