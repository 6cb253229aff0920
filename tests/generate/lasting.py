"""Random queries over events that last: a first query makes them, and a random one reads them among other events."""

from __future__ import annotations

import random
import re

from tests.generate.aggregates import random_aggregate
from tests.generate.cases import LastingCase
from tests.generate.events import VALUES, random_events
from tests.generate.patterns import random_pattern
from tests.generate.readings import random_readings

PROFILES = ("sase", "sase", "kleene", "kleene", "aggregate", "readings")


def _text(rng: random.Random, profile: str) -> str:
    if profile == "aggregate":
        return random_aggregate(rng, declared=False).text
    if profile == "readings":
        return random_readings(rng, declared=False).text
    return random_pattern(rng, profile, declared=False).text


def random_lasting(rng: random.Random) -> LastingCase:
    """A script; the same generator state gives the same case. Pairs of two types take the place of a third, A.

    >>> random_lasting(random.Random(1)) == random_lasting(random.Random(1))
    True
    """
    profile = rng.choice(PROFILES)
    while True:
        text = _text(rng, profile)
        # Declared types are another matter, and so are windows in events.
        if re.search(r"\bA\b", text) and "EVENTS" not in text and "time" not in text:
            break
    first, last = rng.sample("BCD", 2)
    joined = rng.choice(("u.id = v.id", "u.x <= v.x", "u.x <= 3"))
    if re.search(r"[+*}]", text) or rng.random() < 0.5:
        # At most one pair for each first event: Kleene plus chooses any subset of them.
        joined = f"skip_till_next_match(u, v) {{ {joined} }}"
    returned = ", ".join(f"{rng.choice('uv')}.{name} AS {name}" for name in VALUES)
    made = f"pairs: PATTERN SEQ({first} u, {last} v) WHERE {joined} WITHIN {rng.randint(2, 6)}"
    made += f"\nINTO pairs RETURN P(u.n + 100 * v.n AS n, {returned});"
    source = "pairs, input" if re.search(r"\b[BCD]\b", text) or rng.random() < 0.2 else "pairs"
    text = re.sub(r"\bA\b", "P", text)
    named = [first, last, first, last, *re.findall(r"\b[BCD]\b", text)]
    events = random_events(rng, rng.randint(6, 10), named, others=0, steps=(0, 1, 1, 2))
    return LastingCase(f"{made}\nquery: {text}\nFROM {source};", events)
