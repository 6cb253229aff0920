"""By which columns the events of a whole set of queries can be kept apart."""

from __future__ import annotations

from collections.abc import Iterable

from ouzel.algebra.model import CURRENT, BoundStream, Branch, Round
from ouzel.bind.model import Attribute, Bound, Kind, Operation
from ouzel.runtime.query_groups import Group
from ouzel.runtime.queryset import QuerySet
from ouzel.runtime.queryset_sessions import Standing
from ouzel.spark.keys import keys_of
from ouzel.spark.slices import is_about_single_events


def shared_key(sets: Iterable[QuerySet]) -> frozenset[str] | None:
    """The columns that are equal in all events of one answer, whichever query gives it; None: any column will do."""
    found: frozenset[str] | None = None
    for held in sets:
        for _, part in held.parts():
            own = key_of(part)
            if own is not None:
                found = own if found is None else found & own
    return found


def key_of(part: Group | Standing) -> frozenset[str] | None:
    """The columns that are equal in all events of one answer of some queries; None: every answer is one event."""
    if isinstance(part, Group):
        return _key_of_stream(part.stream)
    program = part.program
    if program.algebra:
        (expression,) = program.algebra
        # What one stream finds another reads, wherever in the input that was.
        return _key_of_stream(expression.streams[0]) if len(expression.streams) == 1 else frozenset()
    (plan,) = program.plans().values()
    if is_about_single_events(plan):
        return None
    return frozenset(path[0] for path in keys_of(plan, program.layout) if len(path) == 1)


def _key_of_stream(stream: BoundStream) -> frozenset[str] | None:
    keys = [_key_of_branch(branch) for branch in stream.branches if branch.hops]
    return frozenset.intersection(*keys) if keys else None


def _key_of_branch(branch: Branch) -> frozenset[str]:
    """An event is equal with one that the instance has, which is equal with those before it."""
    return frozenset.intersection(*(_equal_columns(each) for hop in branch.hops for each in hop.rounds))


def _equal_columns(each: Round) -> frozenset[str]:
    found = set()
    pending: list[Bound] = list(each.theta)
    while pending:
        one = pending.pop()
        if not isinstance(one, Operation):
            continue
        if one.operator == "and":
            pending += one.operands
        elif one.operator == "=":
            found |= _equal_column(*one.operands)
    return frozenset(found)


def _equal_column(left: Bound, right: Bound) -> set[str]:
    if not (isinstance(left, Attribute) and isinstance(right, Attribute)) or left.path != right.path:
        return set()
    both = {left.component, right.component}
    # Floats that are equal, as the two zeros are, need not have the same hash.
    comparable = len(left.path) == 1 and left.type.kind is not Kind.FLOAT
    return {left.path[0]} if comparable and CURRENT in both and max(both) >= 0 else set()
