"""What random cases are made of: event types, values, comparisons, components and events."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle.events import Event

TYPES = ("A", "B", "C", "D")
# Few values, so that events agree often. Null comes last.
VALUES: Mapping[str, tuple[Any, ...]] = {
    "id": (1, 1, 1, 2, 2, None),
    "x": (0, 1, 1, 2, 3, None),
    "y": (-1, 0, 1, 1, 2, None),
    "f": (0.0, -0.0, 1.0, 1.5, float("nan"), None),
    "s": ("u", "u", "v", "uv", "é", None),
    "l": ([], [1], [0, 2], [1, None], [3, 1, 1], None),
}
NUMBERS = ("x", "y", "f")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")

Types = dict[str, list[str]]  # the declared attributes of each event type


@dataclass(frozen=True)
class Component:
    name: str
    types: tuple[str, ...]
    attributes: tuple[str, ...]  # those that at least one of its types has
    shared: frozenset[str]  # those that all of its types have
    kleene: bool
    negated: bool

    @property
    def text(self) -> str:
        types = self.types[0] if len(self.types) == 1 else f"ANY({', '.join(self.types)})"
        written = f"{types}+ {self.name}[]" if self.kleene else f"{types} {self.name}"
        return f"!({written})" if self.negated else written


def random_components(
    rng: random.Random, shape: Iterable[str], types: Types | None = None, *, any_share: float = 0.25
) -> list[Component]:
    """Components a, b, c …, one for each sign of the shape: `.` for one event, `+` for Kleene plus, `-` for a negation.
    A share of them takes two event types."""
    return [_component(rng, "abcde"[place], sign, types, any_share) for place, sign in enumerate(shape)]


def _component(rng: random.Random, name: str, sign: str, types: Types | None, any_share: float) -> Component:
    # Early types are likelier, so that a stream of few types still matches.
    names = tuple(sorted(rng.sample(TYPES, 2))) if rng.random() < any_share else (rng.choice("AAABBBCCD"),)
    having = [set(VALUES) if types is None else set(types[t]) for t in names]
    attributes = tuple(a for a in VALUES if any(a in own for own in having))
    return Component(name, names, attributes, frozenset(set.intersection(*having)), sign == "+", sign == "-")


def random_types(rng: random.Random) -> Types:
    return {name: ["n", *(a for a in VALUES if rng.random() < 0.8)] for name in TYPES}


def random_events(
    rng: random.Random,
    count: int,
    named: Sequence[str],
    types: Types | None = None,
    *,
    attributes: Iterable[str] = VALUES,
    others: float = 0.15,
    steps: Sequence[int] = (0, 1, 1, 1, 2, 3),
    exact_sums: bool = False,
) -> list[Event]:
    """Events of the types that the query names, and a share of others. The column `n` numbers them.

    `exact_sums`: most streams have no NaN, which would make every sum of doubles the same.
    """
    events, time = [], rng.randint(0, 5)
    nulls = rng.random() < 0.4
    without_nan = exact_sums and rng.random() >= 0.3
    for number in range(count):
        time += rng.choice(steps)
        name = rng.choice(named if rng.random() < 1 - others else TYPES)
        row: dict[str, Any] = {"type": name, "time": time, "n": number}
        for attribute in attributes:
            values = VALUES[attribute] if nulls else VALUES[attribute][:-1]
            value = rng.choice(values) if types is None or attribute in types[name] else None
            row[attribute] = 2.5 if without_nan and isinstance(value, float) and math.isnan(value) else value
        events.append(Event(name, time, time, row))
    if rng.random() < 0.5:
        # "Arrival is never used."
        rng.shuffle(events)
    return events
