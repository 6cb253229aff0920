"""The generator of random cases: its queries are valid, and enough of them match to be worth running."""

from __future__ import annotations

import random

import pytest

from ouzel.bind.binder import bind
from ouzel.bind.model import FLOAT, INT, STRING, Catalog, TimeDomain, list_type
from ouzel.lang import parse
from tests.generate import random_case
from tests.generate.cases import RandomCase
from tests.oracle.oracle import answer

CASES = 300
COLUMNS = {
    "type": STRING,
    "time": INT,
    "n": INT,
    "id": INT,
    "x": INT,
    "y": INT,
    "f": FLOAT,
    "s": STRING,
    "l": list_type(INT),
}


def catalog(case: RandomCase) -> Catalog:
    time = TimeDomain(INT)
    if case.types is None:
        return Catalog(common=COLUMNS, time=time)
    declared = {name: {column: COLUMNS[column] for column in columns} for name, columns in case.types.items()}
    return Catalog(declared=declared, time=time)


@pytest.mark.parametrize("profile", ["sase", "kleene"])
def test_random_cases_are_valid_and_match_often(profile: str) -> None:
    matched = 0
    for seed in range(CASES):
        case = random_case(random.Random(seed), profile)
        query = parse(case.text)
        bind(query, case.text, catalog(case))
        matched += bool(answer(query, case.events, types=case.types)["q1"])
    print(f"{profile}: {matched} of {CASES} cases match")
    assert matched > CASES / 2
