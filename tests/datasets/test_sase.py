"""The generators of SASE section 5, measured: shares, domains, and the selectivity that formula (1) promises."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from operator import ge, gt, le, lt, ne
from statistics import fmean, stdev

import pyarrow as pa
import pytest

from benchmarks.sase_generators import SaseQuery, sase_events, sase_matches_per_event, sase_query, sase_selectivity
from ouzel.errors import InputError

OPERATORS = {"<": lt, "<=": le, ">": gt, ">=": ge, "!=": ne}


def test_the_same_seed_gives_the_same_events() -> None:
    assert sase_events(1_000, seed=5).equals(sase_events(1_000, seed=5))
    assert not sase_events(1_000, seed=5).equals(sase_events(1_000, seed=6))


def test_columns_have_the_types_that_queries_expect() -> None:
    table = sase_events(10)
    assert table.schema.field("type").type == pa.string()
    assert {table.schema.field(name).type for name in table.column_names if name != "type"} == {pa.int64()}
    assert table.column_names == ["type", "ts", "attr1", "attr2", "attr3", "attr4", "attr5"]


def test_types_and_values_are_uniform_by_default() -> None:
    table = sase_events(200_000, values=(10, 7), seed=1)
    types = Counter(table.column("type").to_pylist())
    assert set(types) == {f"E{number}" for number in range(1, 21)}
    assert all(abs(count - 10_000) < 500 for count in types.values())
    values = Counter(table.column("attr2").to_pylist())
    assert set(values) == set(range(7))
    assert all(abs(count - 200_000 / 7) < 1_000 for count in values.values())


def test_zipf_skews_types_by_their_rank() -> None:
    types = Counter(sase_events(200_000, types=4, type_zipf=1.0, seed=2).column("type").to_pylist())
    total = 1 + 1 / 2 + 1 / 3 + 1 / 4
    for rank in range(1, 5):
        assert types[f"E{rank}"] / 200_000 == pytest.approx(1 / rank / total, abs=0.005)


def test_queries_follow_their_parameters() -> None:
    query = sase_query(4, equivalence_tests=2, inequalities=1, simple_predicates=1, negations=2, window=777, seed=11)
    assert len(query.types) == len(set(query.types)) == 4
    assert len(query.negations) == 2 and all(1 <= gap <= 3 for gap, _ in query.negations)
    assert not {name for _, name in query.negations} & set(query.types)
    assert query.equivalences == ("attr1", "attr2")
    assert [attribute for attribute, _ in query.comparisons] == ["attr3"]
    assert query.simple == (("attr4", 500),)
    assert query.text.count("!(") == 2 and query.text.endswith("WITHIN 777")


def test_skewed_steps_prefer_the_frequent_types() -> None:
    first = Counter(name for seed in range(300) for name in sase_query(1, step_zipf=2.0, seed=seed).types)
    assert first["E1"] > 300 * 0.5


def test_negated_ends_are_drawn_when_allowed() -> None:
    places = {
        gap for seed in range(60) for gap, _ in sase_query(2, negations=1, negated_ends=True, seed=seed).negations
    }
    assert places == {0, 1, 2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 19, "negations": 2}, "need as many types"),
        ({"equivalence_tests": 3, "inequalities": 2, "simple_predicates": 1}, "need an attribute each"),
        ({"length": 1, "inequalities": 1}, "compares two events"),
        ({"length": 1, "negations": 1}, "no inside to negate"),
        ({"types": 0}, "at least one event type"),
        ({"attributes": 9}, "of 5 attributes, not of 9"),
        ({"values": (1, 0)}, "at least one value"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sase_query(**arguments)  # type: ignore[arg-type]


def test_formula_1_gives_the_papers_figures() -> None:
    def paper(values: int, window: int) -> float:
        return sase_selectivity(length=3, types=20, values=values, window=window)

    assert paper(100, 10_000) == pytest.approx(0.2, rel=0.05)  # experiment 1: 0.2 down to 0.2e-4
    assert paper(10_000, 10_000) == pytest.approx(0.2e-4, rel=0.05)
    assert paper(10_000, 100_000) == pytest.approx(0.2e-2, rel=0.05)  # experiment 2: up to 0.2e-2


@pytest.mark.parametrize(("length", "types", "values", "window"), [(2, 10, 20, 1_000), (3, 5, 10, 400), (4, 4, 5, 120)])
def test_measured_selectivity_agrees_with_formula_1(length: int, types: int, values: int, window: int) -> None:
    query = sase_query(length, types=types, values=(values,), window=window, seed=3)
    formula = sase_selectivity(length=length, types=types, values=values, window=window)
    in_batches, sliding = [], []
    for seed in range(8):
        table = sase_events(30 * window, types=types, values=(values,), seed=seed)
        batches = [table.slice(number * window, window) for number in range(30)]
        in_batches.append(sum(_count(query, batch) for batch in batches) / len(table))
        sliding.append(_count(query, table) / len(table))
    _assert_mean(in_batches, formula)
    # A sliding window also sees what lies across two batches.
    _assert_mean(sliding, length * formula)


@pytest.mark.parametrize(
    "arguments",
    [
        {"length": 3, "equivalence_tests": 2},
        {"length": 2, "inequalities": 1, "simple_predicates": 1},
        {"length": 3, "negations": 1},
        {"length": 2, "negations": 2, "negated_ends": True, "window": 20},
        {"length": 3, "equivalence_tests": 0, "simple_predicates": 2, "simple_share": 0.2, "negations": 2},
    ],
)
@pytest.mark.parametrize("type_zipf", [0.0, 0.7])
def test_measured_matches_agree_with_the_general_formula(arguments: dict[str, int], type_zipf: float) -> None:
    values = (3, 2, 4, 5)
    query = sase_query(**{"window": 40, **arguments}, types=6, values=values, seed=1)  # type: ignore[arg-type]
    measured = []
    for seed in range(8):
        table = sase_events(20_000, types=6, type_zipf=type_zipf, values=values, seed=seed)
        measured.append(_count(query, table) / len(table))
    _assert_mean(measured, sase_matches_per_event(query, types=6, type_zipf=type_zipf, values=values))


def _assert_mean(measured: list[float], expected: float) -> None:
    """The mean of independent runs is the expected one, up to chance and the 2 % that a stream's edges may cost."""
    error = stdev(measured) / math.sqrt(len(measured))
    assert error < 0.08 * expected, "too few matches to tell"
    assert fmean(measured) == pytest.approx(expected, abs=4 * error + 0.02 * expected)


def _count(query: SaseQuery, table: pa.Table) -> int:
    """Matches by plain search within each key, written from the meaning of the query and from nothing else."""
    comparisons, simple = _conditions(query)
    wanted = {name: number for number, name in enumerate(query.types)}
    rows = table.to_pylist()
    positive: dict[tuple[int, ...], list[list[dict[str, int]]]] = defaultdict(lambda: [[] for _ in query.types])
    forbidden: dict[tuple[tuple[int, ...], str], list[int]] = defaultdict(list)
    negative = {name for _, name in query.negations}
    for row in rows:
        key = tuple(row[attribute] for attribute in query.equivalences)
        if row["type"] in negative:
            forbidden[key, row["type"]].append(row["ts"])
        place = wanted.get(row["type"])
        if place is not None and all(row[attribute] < bound for attribute, bound in simple.get(place, [])):
            positive[key][place].append(row)

    def stands(key: tuple[int, ...], times: list[int]) -> bool:
        for gap, name in query.negations:
            low = times[gap - 1] if gap else times[-1] - query.window
            high = times[gap] if gap < len(times) else times[0] + query.window
            found = forbidden[key, name]
            if bisect_right(found, low) < bisect_left(found, high):
                return False
        return True

    def extend(key: tuple[int, ...], lists: list[list[dict[str, int]]], chosen: list[dict[str, int]]) -> int:
        place = len(chosen)
        if place == len(lists):
            pairs = (
                (chosen[first][name], OPERATORS[sign], chosen[last][name]) for first, name, sign, last in comparisons
            )
            return all(test(left, right) for left, test, right in pairs) and stands(key, [row["ts"] for row in chosen])
        low = chosen[-1]["ts"] + 1 if chosen else 0
        high = chosen[0]["ts"] + query.window if chosen else math.inf
        candidates = lists[place]
        start = bisect_left(candidates, low, key=lambda row: row["ts"])
        stop = bisect_left(candidates, high, key=lambda row: row["ts"])
        return sum(extend(key, lists, [*chosen, row]) for row in candidates[start:stop])

    return sum(extend(key, lists, []) for key, lists in positive.items())


def _conditions(query: SaseQuery) -> tuple[list[tuple[int, str, str, int]], dict[int, list[tuple[str, int]]]]:
    """The conjuncts of the text: comparisons as (component, attribute, operator, component), bounds by component."""
    comparisons: list[tuple[int, str, str, int]] = []
    simple: dict[int, list[tuple[str, int]]] = defaultdict(list)
    where = next((line for line in query.text.splitlines() if line.startswith("WHERE ")), "WHERE ")
    for conjunct in where.removeprefix("WHERE ").split(" AND "):
        if not conjunct or conjunct.startswith("["):
            continue
        left, operator, right = conjunct.split()
        variable, attribute = left.split(".")
        if right.isdigit():
            simple[int(variable[1:]) - 1].append((attribute, int(right)))
        else:
            comparisons.append((int(variable[1:]) - 1, attribute, operator, int(right.split(".")[0][1:]) - 1))
    return comparisons, simple
