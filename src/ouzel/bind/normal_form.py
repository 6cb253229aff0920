"""Normal forms of conditions: NOT pushed into comparisons, then conjuncts by the events that they name.

The unit is one comparison: = != < <= > >=, BETWEEN, IN, LIKE, IS NULL, or anything else that is true or false and not
made of AND, OR and NOT. Nothing is simplified beyond that, since the conjuncts decide where they are tested.
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
    """The condition as a conjunction of disjunctions: one for each set of events that a conjunct names.

    Distribution would give exponentially many conjuncts: 2^n for n times (x AND y) joined by OR. Where a conjunct is
    tested depends only on the events that it names. So all conjuncts that name the same events are tested as one,
    together with those that name fewer of them. They are the condition itself with every comparison that names another
    event made true. An alternative of a disjunction is a comparison, or ANDs and ORs of comparisons.

    The number of sets of events can grow exponentially, too, but only with the length of the pattern.
    """
    found: dict[Disjunction, None] = {}
    for part in _operands("and", with_not_pushed_in(condition)):
        found |= dict.fromkeys(_conjuncts(part, source))
    return list(found)


def with_not_pushed_in(condition: Bound, negate: bool = False) -> Bound:
    """De Morgan, down to single comparisons: `not` is left only around those that have no opposite operator."""
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
    """AND or OR of comparisons, which is not one comparison."""
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
    """The operands of nested ANDs or ORs; a condition of another kind is its own only operand."""
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
    # What all alternatives demand is a conjunct of its own, which the planner may use as a key.
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
    """What every alternative of an OR demands."""
    first, *others = _operands("or", condition)
    common = dict.fromkeys(_operands("and", first))
    for other in others:
        if not common:
            break
        common = {part: None for part in _operands("and", other) if part in common}
    return common


class _Events:
    """The events that comparisons of a condition name, as bits of a number."""

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
            # By identity: comparing and hashing would walk through every comparison again and again.
            self.named[id(comparison)] = mask

    def sets_of(self, condition: Bound) -> frozenset[int] | None:
        """The sets of events that conjuncts in conjunctive form name; None where there are too many."""
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
        # Joining is commutative and associative, so sets that change nothing now never will again.
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
        """The condition with every comparison that names other events made true; None where it is true then."""
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
