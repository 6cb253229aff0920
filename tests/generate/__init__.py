"""Random cases for every engine: queries that are valid, with events that make them match often."""

from __future__ import annotations

import random
from typing import Any

from tests.generate.aggregates import random_aggregate
from tests.generate.expressions import random_expression
from tests.generate.incomplete import random_incomplete
from tests.generate.lasting import random_lasting
from tests.generate.patterns import random_pattern
from tests.generate.readings import random_readings

PROFILES = ("sase", "kleene", "readings", "aggregate", "lasting", "incomplete", "algebra")


def random_case(rng: random.Random, profile: str, **options: Any) -> Any:
    """A case of a profile; the same generator state gives the same case.

    >>> random_case(random.Random(1), "kleene") == random_case(random.Random(1), "kleene")
    True
    """
    match profile:
        case "sase" | "kleene":
            return random_pattern(rng, profile, **options)
        case "readings":
            return random_readings(rng, **options)
        case "aggregate":
            return random_aggregate(rng, **options)
        case "lasting":
            return random_lasting(rng, **options)
        case "incomplete":
            return random_incomplete(rng, **options)
        case "algebra":
            return random_expression(rng, **options)
    raise AssertionError(f"there is no profile {profile!r}")
