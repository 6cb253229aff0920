"""Random queries with AGG and random events, dense enough to complete matches often. Every query is valid.

Sums of the doubles in these events are exact, so that order of addition is not what differs.
"""

from __future__ import annotations

import random
import re

from tests.generate.cases import RandomCase
from tests.generate.events import (
    NUMBERS,
    TYPES,
    Component,
    random_components,
    random_events,
    random_types,
)

SHAPES = (
    *("..", "..", "...", "...", ".", "....", ".-.", ".-.", "..-.", "-..", "-.-.", "..-"),
    *("+.", ".+", ".+.", "+-.", "+"),
)


def random_aggregate(rng: random.Random, events: int | None = None, *, declared: bool = True) -> RandomCase:
    """A query with AGG and its events, as few as the oracle can bear unless said otherwise; the same generator state
    gives the same case.

    >>> random_aggregate(random.Random(1)) == random_aggregate(random.Random(1))
    True
    """
    shape = rng.choice(SHAPES)
    types = random_types(rng) if declared and rng.random() < 0.4 else None
    components = random_components(rng, shape, types, any_share=0.2)
    positives = [c for c in components if not c.negated]
    shared = frozenset.intersection(*(c.shared for c in positives))
    conjuncts = []
    if rng.random() < 0.4:
        conjuncts += [test for test in [rng.choice(("[id]", "[id]", "[s]", "[id, s]"))] if _keys(test) <= shared]
    for component in components:
        if rng.random() < 0.2 and (own := _of(component, ("x", "y"))):
            conjuncts.append(f"{component.name}.{rng.choice(own)} {rng.choice(('>=', '<', '!='))} 1")
    if rng.random() < 0.3:
        conjuncts += _between(rng, components)
    window = rng.randint(2, 12) if "-" in (shape[0], shape[-1]) or rng.random() < 0.8 else None
    clauses = [f"PATTERN SEQ({', '.join(c.text for c in components)})"]
    if conjuncts:
        clauses.append("WHERE " + " AND ".join(conjuncts))
    names = _group_by(rng, positives, shared)
    if names:
        clauses.append("GROUP BY " + ", ".join(names))
    columns = _aggregates(rng, positives)
    clauses.append("AGG " + ", ".join(columns))
    if rng.random() < 0.25:
        clauses.append(f"HAVING {_having(rng, positives)}")
    if window is not None:
        clauses.append(f"WITHIN {window}")
        if rng.random() < 0.5:
            clauses.append("EMIT ON CHANGE")
    text = "\n".join(clauses)
    named = [name for name in TYPES if re.search(rf"\b{name}\b", text)]
    few = rng.randint(5, 10 if "+" in shape else 18)
    return RandomCase(text, random_events(rng, events or few, named, types, others=0.1, exact_sums=True), types)


def _between(rng: random.Random, components: list[Component]) -> list[str]:
    """A predicate between two events, neighbours or not, perhaps on a negative one."""
    plain = [c for c in components if not c.kleene and _of(c, ("x", "y"))]
    if len(plain) < 2:
        return []
    left, right = rng.sample(plain, 2)
    if left.negated and right.negated:
        return []
    comparison = rng.choice(("<=", "<", "!=", "="))
    left_value = f"{left.name}.{rng.choice(_of(left, ('x', 'y')))}"
    return [f"{left_value} {comparison} {right.name}.{rng.choice(_of(right, ('x', 'y')))}"]


def _of(component: Component, attributes: tuple[str, ...]) -> list[str]:
    """Those attributes that an event of the component may have; all have a time."""
    return [a for a in attributes if a == "time" or a in component.attributes]


def _keys(test: str) -> set[str]:
    return set(re.findall(r"\w+", test))


def _group_by(rng: random.Random, positives: list[Component], shared: frozenset[str]) -> list[str]:
    roll = rng.random()
    if roll < 0.4:
        return []
    if roll < 0.6:
        return [name for name in [rng.choice(("id", "s"))] if name in shared]
    single = [c for c in positives if not c.kleene and _of(c, ("x", "y", "s", "f"))]
    if not single:
        return [name for name in ("id",) if name in shared]
    component = rng.choice(single)
    own = f"{component.name}.{rng.choice(_of(component, ('x', 'y', 's', 'f')))}"
    if roll < 0.85:
        return [own]
    other = rng.choice(single)
    if roll < 0.92 or "x" not in other.attributes:
        return [*(name for name in ("id",) if name in shared), f"{own} AS own"]
    return [f"{own} AS own", f"{other.name}.x + 1 AS other"]


def _argument(rng: random.Random, positives: list[Component], numbers: tuple[str, ...] = NUMBERS) -> str | None:
    """An attribute of an event, or a value made of it; None if no event has one of these."""
    having = [c for c in positives if _of(c, numbers)]
    if not having:
        return None
    component = rng.choice(having)
    index = rng.choice(("", "", "[1]", "[LEN]")) if component.kleene else ""
    attribute = rng.choice(_of(component, numbers))
    plain = f"{component.name}{index}.{attribute}"
    if component.kleene or attribute not in NUMBERS or rng.random() < 0.8:
        return plain
    first = positives[0].name + "[1]" * positives[0].kleene
    return rng.choice(
        (f"{plain} * 2", f"-{plain}", *([f"{plain} + {first}.x"] if "x" in positives[0].attributes else []))
    )


def _aggregates(rng: random.Random, positives: list[Component]) -> list[str]:
    columns = []
    for number in range(rng.choice((1, 1, 2, 3))):
        function = rng.choice(("COUNT", "COUNT", "COUNT", "SUM", "SUM", "AVG", "MIN", "MAX", "COUNT OF"))
        of = {"COUNT OF": (*NUMBERS, "s"), "MIN": (*NUMBERS, "s", "time"), "MAX": (*NUMBERS, "s", "time")}
        argument = None if function == "COUNT" else _argument(rng, positives, of.get(function, NUMBERS))
        if argument is not None:
            columns.append(f"{function.removesuffix(' OF')}({argument}) AS c{number}")
        else:
            columns.append("COUNT AS DECIMAL" if not number and rng.random() < 0.1 else f"COUNT AS c{number}")
    return columns


def _having(rng: random.Random, positives: list[Component]) -> str:
    x, y, other = (_argument(rng, positives, (name,)) for name in "xyx")
    return rng.choice(
        (
            "COUNT > 1",
            "COUNT % 2 = 1",
            *([f"SUM({x}) >= 2"] if x else []),
            *([f"MAX({y}) > 0 OR COUNT < 3"] if y else []),
            *([f"AVG({other}) > 0.5 AND COUNT >= 1"] if other else []),
        )
    )
