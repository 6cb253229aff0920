"""Sequences from docs/semantics.md, "Event selection": every choice of instances, then every condition in turn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

from ouzel.engines.sequence.tables import StackConjunct
from ouzel.kernels.events import EVERY_KEY, Instances
from tests.engines.sequence.predicate_twin import conjunct_holds

Match = tuple[tuple[int, ...], int]


@dataclass(frozen=True)
class Query:
    negated: Sequence[bool]
    window: int | None
    conjuncts: Sequence[StackConjunct] = ()
    everywhere: Collection[int] = ()

    @property
    def positives(self) -> list[int]:
        return [component for component, negative in enumerate(self.negated) if not negative]

    @property
    def negatives(self) -> list[int]:
        return [component for component, negative in enumerate(self.negated) if negative]

    def naming(self, component: int) -> list[StackConjunct]:
        return [conjunct for conjunct in self.conjuncts if component in conjunct.components]


def every_match(query: Query, instances: Instances, used: int) -> set[Match]:
    """(slots of the positive components, end) of each match."""
    start, end = instances.start.tolist(), instances.end.tolist()
    fillers = [[s for s in range(used) if instances.component[s] == c] for c in range(len(query.negated))]
    matches = set()
    for slots in product(*(fillers[component] for component in query.positives)):
        if any(end[before] >= start[after] for before, after in pairwise(slots)):
            continue
        if query.window is not None and end[slots[-1]] - start[slots[0]] >= query.window:
            continue
        if len({partition(instances, slot) for slot in slots}) > 1:
            continue
        bound = [-1] * len(query.negated)
        for component, slot in zip(query.positives, slots, strict=True):
            bound[component] = slot
        if not all(
            conjunct_holds(conjunct, instances, bound)
            for conjunct in query.conjuncts
            if conjunct.components.isdisjoint(query.negatives)
        ):
            continue
        if any(forbids(query, instances, bound, c, slot) for c in query.negatives for slot in fillers[c]):
            continue
        if query.negated[-1]:
            assert query.window is not None
            matches.add((slots, start[slots[0]] + query.window - 1))
        else:
            matches.add((slots, end[slots[-1]]))
    return matches


def partition(instances: Instances, slot: int) -> tuple[int, ...]:
    second = instances.second_key
    return (int(instances.key[slot]), *(() if second.size == 0 else (int(second[slot]),)))


def forbids(query: Query, instances: Instances, bound: list[int], component: int, slot: int) -> bool:
    """Whether this negative instance lies in its interval, in the partition, and satisfies what names it."""
    low, high = interval(query, instances, bound, component)
    if not (low < int(instances.start[slot]) and int(instances.end[slot]) < high):
        return False
    mine, theirs = partition(instances, slot), partition(instances, bound[query.positives[0]])
    everywhere = component in query.everywhere
    if any(a != b and not (everywhere and a == EVERY_KEY) for a, b in zip(mine, theirs, strict=True)):
        return False
    with_it = [*bound[:component], slot, *bound[component + 1 :]]
    return all(conjunct_holds(conjunct, instances, with_it) for conjunct in query.naming(component))


def interval(query: Query, instances: Instances, bound: list[int], component: int) -> tuple[int, int]:
    """A forbidden event lies strictly inside."""
    before = [positive for positive in query.positives if positive < component]
    behind = [positive for positive in query.positives if positive > component]
    first_start = int(instances.start[bound[query.positives[0]]])
    last_end = int(instances.end[bound[query.positives[-1]]])
    if before and behind:
        return int(instances.end[bound[before[-1]]]), int(instances.start[bound[behind[0]]])
    assert query.window is not None
    return (last_end, first_start + query.window) if before else (last_end - query.window, first_start)
