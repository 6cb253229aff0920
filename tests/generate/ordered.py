"""Any random case with many events at one time, and columns or the arrival that order them."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.generate.cases import LastingCase, RandomCase


def with_order(case: RandomCase | LastingCase, rng: random.Random) -> RandomCase | LastingCase:
    """The case with coarser times, in the order of some columns or of its rows."""
    grain = rng.choice([1, 2, 4])
    events = []
    for event in case.events:
        time = event.end // grain
        events.append(replace(event, start=time, end=time, attributes={**event.attributes, "time": time}))
    orders = [("n",), ("n",), ("x",), ("s", "x"), ("f",), ("id", "n"), "arrival"]
    return case._replace(events=events, order=rng.choice(orders))
