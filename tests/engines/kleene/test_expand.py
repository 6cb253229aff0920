"""Listing what compressed rows hold: read back from a file, the first few, and samples that are uniform."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import ouzel
from ouzel.engines.kleene.compressed import graph_of
from ouzel.engines.kleene.graph_paths import _count_long, count_matches, paths_to_cells, rows_of

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


def written(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


def test_conditions_and_their_parameters_are_not_asked_again() -> None:
    text = (
        "PATTERN SEQ(A+ a[], B b) WHERE a[i].x > a[i-1].x AND b.x < :most WITHIN 20 "
        "OUTPUT {} RETURN R(a.ts AS a, b.ts AS b)"
    )
    events = pa.table({"type": ["A", "A", "A", "B"], "ts": [1, 2, 3, 4], "x": [1, 3, 2, 0]})
    compressed = ouzel.query(text.format("COMPRESSED"), params={"most": 9})
    rows = ouzel.match(events, compressed)
    assert listed(ouzel.expand(rows, compressed)) == [([1, 2], 4), ([1, 3], 4), ([1], 4), ([2], 4), ([3], 4)]


def test_declared_attributes_that_are_not_shown_are_not_asked_for() -> None:
    types = {"A": {"k": "int64", "x": "int64"}, "B": {"k": "int64", "y": "string"}}
    text = "PATTERN SEQ(A+ a[], B b) WHERE [k] AND a.x > 0 WITHIN 20 OUTPUT {} RETURN R(b.k AS k, a.LEN AS length)"
    events = EVENTS.append_column("x", [list(range(8))]).append_column("y", [["u"] * 8])
    compressed = ouzel.query(text.format("COMPRESSED"), types)
    found = ouzel.expand(ouzel.match(events, compressed), compressed)
    assert written(found) == written(ouzel.match(events, ouzel.query(text.format("ALL"), types)))


@pytest.mark.parametrize("returned", ["", "RETURN R(a.x AS a, b.y AS b)"])
def test_several_inputs_need_their_schemas(returned: str) -> None:
    inputs = {"A": pa.table({"ts": [1, 2, 3], "x": [7, 8, 9]}), "B": pa.table({"ts": [4], "y": ["u"]})}
    text = f"PATTERN SEQ(A+ a[], B b) WITHIN 20 OUTPUT {{}} {returned}"
    rows = ouzel.match(inputs, text.format("COMPRESSED"))
    schemas = {name: table.schema for name, table in inputs.items()}
    found = ouzel.expand(rows, text.format("COMPRESSED"), schema=schemas)
    assert written(found) == written(ouzel.match(inputs, text.format("ALL")))
    with pytest.raises(ouzel.InputError, match="give the columns of the input"):
        ouzel.expand(rows, text.format("COMPRESSED"))


@pytest.mark.parametrize("returned", ["", "RETURN R(p.n AS n, q.ts AS last)"])
def test_what_a_query_found_among_matches_is_listed(returned: str) -> None:
    """Composite events last, and a row's matches come in the order of their start."""
    script = (
        "pairs: PATTERN SEQ(A a, B b) WHERE skip_till_next_match {{ [k] }} WITHIN 9 RETURN Pair(a.n AS n) INTO pairs; "
        f"sets: PATTERN SEQ(Pair+ p[], C q) WITHIN 50 OUTPUT {{}} {returned} FROM pairs, input;"
    )
    events = pa.table(
        {"type": ["A", "A", "B", "B", "A", "B", "C"], "ts": range(1, 8), "k": [1, 2, 2, 1, 1, 1, 0], "n": range(7)}
    )
    queries = ouzel.queries(script.format("COMPRESSED"))
    rows = ouzel.match(events, queries)["sets"]
    found = ouzel.expand(rows, queries, schema=events.schema)
    assert written(found) == written(ouzel.match(events, ouzel.queries(script.format("ALL")))["sets"])
    assert found.num_rows == int(rows["count"][0].as_py()) == 5
    assert found["start"].to_pylist() == sorted(found["start"].to_pylist())


def test_of_several_queries_one_must_be_compressed() -> None:
    rows = ouzel.match(EVENTS, TEXT)
    with pytest.raises(ouzel.InputError, match="2 of these queries have OUTPUT COMPRESSED: x, y"):
        ouzel.expand(rows, {"x": TEXT, "y": TEXT})
    with pytest.raises(ouzel.InputError, match="none of these queries has OUTPUT COMPRESSED"):
        ouzel.expand(rows, "PATTERN SEQ(A a, B b) WITHIN 5")


def test_more_matches_than_can_be_listed_are_refused_with_advice() -> None:
    events = pa.table({"type": ["A"] * 200 + ["B"], "ts": range(201)})
    text = "PATTERN SEQ(A+ a[], B b) WITHIN 1000 OUTPUT COMPRESSED"
    rows = ouzel.match(events, text)
    with pytest.raises(ouzel.LimitError, match=r"about 10\^60 matches.*first ones.*sample"):
        ouzel.expand(rows, text)
    assert ouzel.expand(rows, text, first=3).num_rows == 3
    assert ouzel.expand(rows, text, sample=3, seed=1).num_rows == 3
    with pytest.raises(ouzel.InputError, match="seed= needs a sample; say how many matches to choose with sample=10"):
        ouzel.expand(rows, text, seed=1)


def test_counts_of_more_than_38_digits_are_null_and_their_matches_are_listed() -> None:
    """126 events have 2^126 - 1 subsets, a number of 38 digits; 127 events have 39 digits."""
    length = 127
    kinds = ["A"] * (length - 1) + ["B", "A", "B"]
    text = f"PATTERN SEQ(A+ a[], B b) WITHIN {2 * length} OUTPUT COMPRESSED RETURN R(a.LEN AS length)"
    rows = ouzel.match(pa.table({"type": kinds, "ts": range(len(kinds))}), text)
    assert rows.schema.field("count").type == pa.decimal128(38, 0)
    assert rows["count"].to_pylist() == [Decimal(2**126 - 1), None]
    assert ouzel.expand(rows.slice(1), text, first=1)["length"].to_pylist() == [length]
    assert len(ouzel.expand(rows.slice(1), text, sample=20, seed=1)) == 20
    with pytest.raises(ouzel.LimitError, match=r"these rows hold about 10\^38 matches"):
        ouzel.expand(rows.slice(1), text)


def test_long_counts_are_exact() -> None:
    length = 15_000
    events = pa.table({"type": ["A"] * length + ["B"], "ts": range(length + 1)})
    rows = ouzel.match(events, f"PATTERN SEQ(A+ a[], B b) WITHIN {2 * length} OUTPUT COMPRESSED")
    assert _exact_counts(rows) == [2**length - 1]


def _exact_counts(rows: pa.Table) -> list[int]:
    """The numbers of matches, whatever their digits."""
    return [count_matches(row) for row in rows_of(graph_of(rows["graph"].combine_chunks())[1])]


@pytest.mark.parametrize(
    "text",
    [
        "PATTERN SEQ(A+ a[], B b)",
        "PATTERN SEQ(A a, A+ b[], B+ c[])",
        "PATTERN SEQ(A+ a[], !(C c), B+ b[])",
        "PATTERN SEQ(A+ a[], B b) WHERE a[i].x >= a[i-1].x",
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { a.x >= 0 }",
    ],
)
def test_long_counts_are_those_of_the_cells(text: str) -> None:
    """Counts that are given up on the way add up to what all of them together do."""
    generator = random.Random(text)
    length = 200
    events = pa.table(
        {
            "type": generator.choices("AAAABC", k=length),
            "ts": sorted(generator.choices(range(length), k=length)),
            "x": generator.choices(range(5), k=length),
        }
    )
    rows = ouzel.match(events, f"{text} WITHIN 150 OUTPUT COMPRESSED")
    _, graph = graph_of(rows["graph"].combine_chunks())
    graphs = rows_of(graph)
    counts = [paths_to_cells(row) for row in graphs]
    wanted = [sum(counts[number][root] for root in row.root_cell) for number, row in enumerate(graphs)]
    assert _exact_counts(rows) == [_count_long(row) for row in graphs] == wanted


@pytest.mark.parametrize("pattern", ["SEQ(A+ a[], B b, B c)", "SEQ(A a, B b)", "SEQ(A x, A+ a[], B b)", "SEQ(A+ a[])"])
def test_rows_of_another_pattern_are_refused(pattern: str) -> None:
    rows = ouzel.match(EVENTS, TEXT)
    with pytest.raises(ouzel.InputError, match=r"row 0 is not an answer of query 'query'.*give expand"):
        ouzel.expand(rows, f"PATTERN {pattern} WHERE [k] WITHIN 20 OUTPUT COMPRESSED")


def test_rows_that_were_damaged_are_refused_or_listed() -> None:
    """What was stored may come back changed. Nothing of it may lead a kernel astray."""
    rows = ouzel.match(EVENTS, TEXT)
    query = ouzel.query(TEXT)
    generator = random.Random(6)
    refused = 0
    for _ in range(300):
        damaged = rows.to_pylist()
        graph = generator.choice(damaged)["graph"]
        part = generator.choice([one for one in (*graph["cells"], *graph["links"], graph["roots"]) if one])
        place = generator.choice(list(part) if isinstance(part, dict) else range(len(part)))
        part[place] = generator.choice([-(2**31), -3, -2, -1, 0, 1, 2, 3, 4, 5, 2**31 - 1])
        try:
            ouzel.expand(pa.Table.from_pylist(damaged, rows.schema), query)
        except ouzel.InputError:
            refused += 1
    assert 50 < refused < 300
    without = pa.Table.from_pylist([*rows.to_pylist(), {"end": 9}], rows.schema)
    with pytest.raises(ouzel.InputError, match="have no graph"):
        ouzel.expand(without, query)
