"""Normal forms of conditions: NOT pushed into comparisons, then conjunctive form by distribution, duplicates removed.

The unit is one comparison: = != < <= > >=, BETWEEN, IN, LIKE, IS NULL, or anything else that is true or false and not
made of AND, OR and NOT. Nothing is simplified beyond that, since the conjuncts decide where they are tested.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from ouzel.bind.mistakes import Source
from ouzel.bind.model import Bound, Operation, Range

OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
CONJUNCTS_MAX = 5_000
COMPARISONS_MAX = 50_000

Disjunction = tuple[Bound, ...]


def conjunctive_form(condition: Bound, source: Source) -> list[Disjunction]:
    """The condition as a conjunction of disjunctions of comparisons.

    Refused where distribution would give too many: ten times (a AND b) OR'ed together are 1,024 conjuncts, twenty a
    million.
    """
    pushed = with_not_pushed_in(condition)
    conjuncts, comparisons = _size(pushed)
    if conjuncts > CONJUNCTS_MAX or comparisons > COMPARISONS_MAX:
        raise source.mistake(
            f"in conjunctive form the condition has more than {CONJUNCTS_MAX:,} parts or {COMPARISONS_MAX:,} tests",
            condition.span,
            "write ORs of ANDs shorter, or use several queries",
        )
    return list(dict.fromkeys(_distributed(pushed)))


def with_not_pushed_in(condition: Bound, negate: bool = False) -> Bound:
    """De Morgan, down to single comparisons: `not` is left only around those that have no opposite operator."""
    match condition:
        case Range() if not negate:
            return condition
        case Range(operands=(low, high)):
            opposites = (with_not_pushed_in(low, True), with_not_pushed_in(high, True))
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


def _is_logical(condition: Bound) -> bool:
    is_junction = isinstance(condition, Operation) and condition.operator in ("and", "or")
    return is_junction and not isinstance(condition, Range)


def _size(condition: Bound) -> tuple[int, int]:
    """How many conjuncts, and comparisons in all of them, distribution gives; never much above the limits."""
    if not _is_logical(condition):
        return 1, 1
    assert isinstance(condition, Operation)
    conjuncts, comparisons = (0, 0) if condition.operator == "and" else (1, 0)
    for operand in condition.operands:
        more_conjuncts, more_comparisons = _size(operand)
        if condition.operator == "and":
            conjuncts, comparisons = conjuncts + more_conjuncts, comparisons + more_comparisons
        else:
            comparisons = comparisons * more_conjuncts + more_comparisons * conjuncts
            conjuncts *= more_conjuncts
        conjuncts, comparisons = min(conjuncts, CONJUNCTS_MAX + 1), min(comparisons, COMPARISONS_MAX + 1)
    return conjuncts, comparisons


def _distributed(condition: Bound) -> list[Disjunction]:
    if not _is_logical(condition):
        return [(condition,)]
    assert isinstance(condition, Operation)
    forms = [_distributed(operand) for operand in condition.operands]
    if condition.operator == "and":
        return [conjunct for form in forms for conjunct in form]
    return [tuple(dict.fromkeys(itertools.chain(*choice))) for choice in itertools.product(*forms)]
