"""Random queries with AGG and random events, dense enough to complete matches often. Every query is valid.

Sums of the doubles in these events are exact, so that order of addition is not what differs.
"""

from __future__ import annotations

import random
import re

from tests.generate.cases import RandomCase
from tests.generate.events import NUMBERS, TYPES, Component, random_components, random_events

SHAPES = (
    *("..", "..", "...", "...", ".", "....", ".-.", ".-.", "..-.", "-..", "-.-.", "..-"),
    *("+.", ".+", ".+.", "+-.", "+"),
)


def random_aggregate(rng: random.Random, events: int | None = None) -> RandomCase:
    """A query with AGG and its events, as few as the oracle can bear unless said otherwise; the same generator state
    gives the same case.

    >>> random_aggregate(random.Random(1)) == random_aggregate(random.Random(1))
    True
    """
    shape = rng.choice(SHAPES)
    components = random_components(rng, shape, any_share=0.2)
    positives = [c for c in components if not c.negated]
    conjuncts = []
    if rng.random() < 0.4:
        conjuncts.append(rng.choice(("[id]", "[id]", "[s]", "[id, s]")))
    for component in components:
        if rng.random() < 0.2:
            conjuncts.append(f"{component.name}.{rng.choice('xy')} {rng.choice(('>=', '<', '!='))} 1")
    if rng.random() < 0.3:
        conjuncts += _between(rng, components)
    window = rng.randint(2, 12) if "-" in (shape[0], shape[-1]) or rng.random() < 0.8 else None
    clauses = [f"PATTERN SEQ({', '.join(c.text for c in components)})"]
    if conjuncts:
        clauses.append("WHERE " + " AND ".join(conjuncts))
    names = _group_by(rng, positives)
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
    return RandomCase(text, random_events(rng, events or few, named, others=0.1, exact_sums=True), None)


def _between(rng: random.Random, components: list[Component]) -> list[str]:
    """A predicate between two events, neighbours or not, perhaps on a negative one."""
    plain = [c for c in components if not c.kleene]
    if len(plain) < 2:
        return []
    left, right = rng.sample(plain, 2)
    if left.negated and right.negated:
        return []
    comparison = rng.choice(("<=", "<", "!=", "="))
    return [f"{left.name}.{rng.choice('xy')} {comparison} {right.name}.{rng.choice('xy')}"]


def _group_by(rng: random.Random, positives: list[Component]) -> list[str]:
    roll = rng.random()
    if roll < 0.4:
        return []
    if roll < 0.6:
        return [rng.choice(("id", "s"))]
    single = [c for c in positives if not c.kleene]
    if not single:
        return ["id"]
    component = rng.choice(single)
    own = f"{component.name}.{rng.choice(('x', 'y', 's', 'f'))}"
    if roll < 0.85:
        return [own]
    if roll < 0.92:
        return ["id", f"{own} AS own"]
    other = rng.choice(single)
    return [f"{own} AS own", f"{other.name}.x + 1 AS other"]


def _argument(rng: random.Random, positives: list[Component], numbers: tuple[str, ...] = NUMBERS) -> str:
    component = rng.choice(positives)
    index = rng.choice(("", "", "[1]", "[LEN]")) if component.kleene else ""
    attribute = rng.choice(numbers)
    plain = f"{component.name}{index}.{attribute}"
    if component.kleene or attribute not in NUMBERS or rng.random() < 0.8:
        return plain
    first = positives[0].name + "[1]" * positives[0].kleene
    return rng.choice((f"{plain} * 2", f"-{plain}", f"{plain} + {first}.x"))


def _aggregates(rng: random.Random, positives: list[Component]) -> list[str]:
    columns = []
    for number in range(rng.choice((1, 1, 2, 3))):
        function = rng.choice(("COUNT", "COUNT", "COUNT", "SUM", "SUM", "AVG", "MIN", "MAX", "COUNT OF"))
        name = f"c{number}"
        if function == "COUNT":
            columns.append("COUNT AS DECIMAL" if not number and rng.random() < 0.1 else f"COUNT AS {name}")
        elif function == "COUNT OF":
            columns.append(f"COUNT({_argument(rng, positives, (*NUMBERS, 's'))}) AS {name}")
        elif function in ("MIN", "MAX"):
            columns.append(f"{function}({_argument(rng, positives, (*NUMBERS, 's', 'time'))}) AS {name}")
        else:
            columns.append(f"{function}({_argument(rng, positives)}) AS {name}")
    return columns


def _having(rng: random.Random, positives: list[Component]) -> str:
    return rng.choice(
        (
            "COUNT > 1",
            "COUNT % 2 = 1",
            f"SUM({_argument(rng, positives, ('x',))}) >= 2",
            f"MAX({_argument(rng, positives, ('y',))}) > 0 OR COUNT < 3",
            f"AVG({_argument(rng, positives, ('x',))}) > 0.5 AND COUNT >= 1",
        )
    )
