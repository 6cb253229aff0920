"""The basic plan of SASE 3.1: everything after construction, nothing pushed down."""

from __future__ import annotations

from ouzel.bind.model import BoundQuery, Conjunct
from ouzel.plan.expressions import fixed_value, lacked_entirely, not_null
from ouzel.plan.model import Plan


def build(query: BoundQuery) -> Plan:
    """Lay out the operators for a sequence query without Kleene components, under skip_till_any_match."""
    roles: dict[int, list[Conjunct]] = {c.position: [] for c in query.components}
    forbidding: dict[int, list[Conjunct]] = {c.position: [] for c in query.negatives}
    selection: list[Conjunct] = []
    for test in query.equivalences:
        for component in query.components:
            if not lacked_entirely(query, component.position, test):
                # Not a matter of any rule: an event with a null there takes part in nothing.
                roles[component.position].append(not_null(query, component.position, test))
                if test.value is not None:
                    roles[component.position].append(fixed_value(query, component.position, test))
    for conjunct in query.conjuncts:
        if conjunct.negative is not None:
            forbidding[conjunct.negative].append(conjunct)
        else:
            selection.append(conjunct)
    return Plan(
        query=query,
        roles={position: tuple(conjuncts) for position, conjuncts in roles.items()},
        selection=tuple(selection),
        equivalences=query.equivalences,
        forbidding={position: tuple(conjuncts) for position, conjuncts in forbidding.items()},
    )
