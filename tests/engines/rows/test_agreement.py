"""Row patterns against the oracle, on random patterns and rows."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from tests.agreement import case_count
from tests.engines.rows.random_patterns import random_clause, random_rows
from tests.oracle.row_patterns import Budget, Endless, answer

SCHEMA = pa.schema({"g": pa.string(), "t": pa.int64(), "v": pa.int64(), "f": pa.float64(), "s": pa.string()})
CASES = case_count(1000)
PARTS = 20

pytestmark = pytest.mark.quick


def comparable(rows: list[dict[str, Any]]) -> list[str]:
    """The rows as sorted texts. The oracle does not know that the 7 of coalesce(f, 7) is a double."""

    def plain(value: Any) -> Any:
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return sorted(json.dumps({name: plain(value) for name, value in row.items()}, sort_keys=True) for row in rows)


def check(seed: int) -> bool:
    """Whether a case has an answer to compare."""
    rng = Random(seed)
    clause, rows = random_clause(rng), random_rows(rng)
    try:
        wanted: list[dict[str, Any]] | None = answer(rows, clause)
    except Budget:
        return False
    except Endless:
        wanted = None
    table = pa.Table.from_pylist(rows, SCHEMA)
    if wanted is None:
        with pytest.raises(ouzel.InputError, match="AFTER MATCH SKIP TO"):
            ouzel.match_recognize(table, clause)
        return True
    found = ouzel.match_recognize(table, clause).to_pylist()
    assert comparable(found) == comparable(wanted), f"seed {seed}\n{clause}\n{rows}"
    return True


@pytest.mark.parametrize("part", range(PARTS))
def test_random_patterns_agree_with_oracle(part: int) -> None:
    seeds = range(part, CASES, PARTS)
    compared = sum(check(seed) for seed in seeds)
    assert 2 * compared > len(seeds)
