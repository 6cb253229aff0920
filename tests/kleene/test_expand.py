"""Listing what compressed rows hold: read back from a file, the first few, and samples that are uniform."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import ouzel

TEXT = "PATTERN SEQ(A+ a[], B b) WHERE [k] WITHIN 20 OUTPUT COMPRESSED RETURN R(a.ts AS a, b.ts AS b)"
EVENTS = pa.table({"type": ["A", "A", "A", "B", "A", "B", "A", "B"], "ts": range(1, 9), "k": [1, 1, 1, 1, 1, 1, 2, 2]})


def choices() -> list[tuple[list[int], int]]:
    """Every choice of events of A before a B of the same k, by hand."""
    found = []
    for before, last in (([1, 2, 3], 4), ([1, 2, 3, 5], 6), ([7], 8)):
        for size in range(1, len(before) + 1):
            found += [(list(chosen), last) for chosen in itertools.combinations(before, size)]
    return found


def listed(table: pa.Table) -> list[tuple[list[int], int]]:
    return [(row["a"], row["b"]) for row in table.to_pylist()]


def test_rows_read_back_from_parquet_hold_the_same(tmp_path: Path) -> None:
    rows = ouzel.match(EVENTS, TEXT)
    pq.write_table(rows, tmp_path / "rows.parquet")
    back = pq.read_table(tmp_path / "rows.parquet")
    assert sorted(listed(ouzel.expand(back, TEXT))) == sorted(choices())
    # Some of the rows hold their own matches.
    assert len(ouzel.expand(back.slice(1, 1), TEXT)) == int(rows["count"][1].as_py())


@pytest.mark.parametrize("first", [0, 1, 5, 7, 8, 100])
def test_the_first_ones_are_the_first_of_all(first: int) -> None:
    rows = ouzel.match(EVENTS, TEXT)
    assert listed(ouzel.expand(rows, TEXT, first=first)) == listed(ouzel.expand(rows, TEXT))[:first]


def test_samples_are_uniform_and_repeatable() -> None:
    rows = ouzel.match(EVENTS, TEXT)
    query = ouzel.query(TEXT)
    drawn: Counter[str] = Counter()
    for seed in range(300):
        sample = listed(ouzel.expand(rows, query, sample=3, seed=seed))
        assert len(sample) == 3 and len({repr(match) for match in sample}) == 3
        drawn.update(map(repr, sample))
    assert sample == listed(ouzel.expand(rows, query, sample=3, seed=299))
    assert set(drawn) == {repr(match) for match in choices()}
    # Fixed seeds: this is the same number in every run.
    assert stats.chisquare(list(drawn.values())).pvalue > 0.01


def test_more_than_there_are_is_all_of_them() -> None:
    rows = ouzel.match(EVENTS, TEXT)
    assert sorted(listed(ouzel.expand(rows, TEXT, sample=1_000, seed=1))) == sorted(choices())
