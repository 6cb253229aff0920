"""The counter kernels against their naive twin."""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from ouzel.engines.aggregate import matrix
from ouzel.engines.aggregate.matrix import MatrixCounters
from ouzel.engines.aggregate.per_start import RowCounters
from ouzel.engines.aggregate.scan import Counters
from ouzel.engines.aggregate.tables import (
    Counter,
    CounterInstances,
    Measure,
    MeasureKind,
    Over,
    Way,
    build_counter_tables,
    new_counter_instances,
    new_counter_output,
)
from tests.engines.aggregate.counter_twin import Query, Row, random_counter_instances, random_query, reported, rows

pytestmark = pytest.mark.compiled

# Without compilation everything is some fifty times slower.
CASES = 60 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 400
LATEST = 2**63 - 1


def tables_of(query: Query, way: Way):  # type: ignore[no-untyped-def]
    return build_counter_tables(
        query.negated,
        query.kleene,
        query.window,
        query.measures,
        way=way,
        on_change=query.on_change,
        split=query.split,
    )


def batch_end(rng: random.Random, instances: CounterInstances, first: int, used: int) -> tuple[int, int]:
    """A batch ends where a moment ends; time may then run on to just before the next."""
    last = rng.randint(first + 1, used)
    while last < used and instances.tick[last] == instances.tick[last - 1]:
        last += 1
    if last == used:
        return last, LATEST
    return last, rng.randint(int(instances.tick[last - 1]), int(instances.tick[last]) - 1)


def by_rows(
    rng: random.Random, query: Query, instances: CounterInstances, used: int, key_group: list[int]
) -> list[Row]:
    """One row of counters for each first event, in batches, in small arenas, widened some time."""
    tables = tables_of(query, Way.PER_START)
    counters = RowCounters(tables, rows=8)
    counters.output = new_counter_output(tables, 1)
    counters.reserve(0, np.array(key_group, np.int32), 3)
    first = 0
    while first < used:
        last, until = batch_end(rng, instances, first, used)
        counters.count(instances, first, last, until)
        if rng.random() < 0.2 and not counters.state.counters[Counter.WIDE]:
            counters.rebuild(widen=True)
        if rng.random() < 0.2:
            counters.rebuild()
        first = last
    return reported(query, counters.output)


def test_rows_agree_with_the_twin() -> None:
    told = 0
    for seed in range(CASES):
        rng = random.Random(f"rows {seed}")
        query = random_query(rng)
        instances, used, key_group = random_counter_instances(rng, query)
        expected = rows(query, instances, used, key_group)
        assert by_rows(rng, query, instances, used, key_group) == expected, (seed, query)
        told += len(expected)
    assert told > CASES


def by_matrix(
    rng: random.Random, query: Query, way: Way, instances: CounterInstances, used: int, key_group: list[int]
) -> list[Row]:
    """Matrices, in batches, the front of the buffer dropped now and then, widened some time."""
    tables = tables_of(query, way)
    counters = MatrixCounters(tables)
    counters.output = new_counter_output(tables, 1)
    counters.reserve(used, np.array(key_group, np.int32), 2)
    first = dropped = 0
    while first < used:
        last, until = batch_end(rng, instances, first, used)
        live = CounterInstances(*(np.ascontiguousarray(array[..., dropped:]) for array in instances))
        counters.count(live, first - dropped, last - dropped, until)
        if rng.random() < 0.2 and not counters.state.counters[Counter.WIDE]:
            counters.widen(live, last - dropped)
        dead = int(counters.state.counters[Counter.OLDEST])
        if way is not Way.UNBOUNDED and dead and rng.random() < 0.5:
            counters.rebase(dead, last - dropped)
            dropped += dead
        first = last
    return reported(query, counters.output)


def supported(query: Query, way: Way) -> bool:
    """What a kind of matrix can count."""
    if query.split is not None or (query.window is None) != (way is Way.UNBOUNDED):
        return False
    if way is Way.UNBOUNDED:
        return True
    if query.everywhere and any(query.negated):
        return False
    if any(measure.over is not Over.EVERY for measure in query.measures):
        return False
    plain = all(measure.kind is MeasureKind.INTEGER for measure in query.measures)
    return way is Way.STACKS or (plain and not any(query.kleene) and not any(query.negated))


@pytest.mark.parametrize("kernel", ["the one for the query", "the general one"])
@pytest.mark.parametrize("way", [Way.UNBOUNDED, Way.INVERSE, Way.STACKS])
def test_matrices_agree_with_the_twin(way: Way, kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel == "the general one":
        monkeypatch.setattr(matrix, "_is_plain", lambda tables, state: False)
    told = cases = 0
    seed = 0
    while cases < CASES:
        seed += 1
        rng = random.Random(f"{way.name} {seed}")
        query = random_query(rng, kleene=way is not Way.INVERSE, negation=way is not Way.INVERSE, split=False)
        if not supported(query, way):
            continue
        cases += 1
        instances, used, key_group = random_counter_instances(rng, query)
        expected = rows(query, instances, used, key_group)
        assert by_matrix(rng, query, way, instances, used, key_group) == expected, (seed, query)
        told += len(expected)
    assert told > CASES


def counted_exactly(query: Query, instances: CounterInstances, used: int, key_group: list[int]) -> list[Row]:
    """Rows of counters for each first event in Python's integers: for streams too long to build every match.

    Only for queries without negation, Kleene plus and EMIT ON CHANGE, with sums of integers alone.
    """
    length, starts = len(query.negated), []
    told = []
    for tick in sorted(set(instances.tick[:used].tolist())):
        assert query.window is not None
        starts = [start for start in starts if tick - start[0] < query.window]
        slots = [slot for slot in range(used) if instances.tick[slot] == tick]
        completed = set()
        # Last component first, as the instances stand.
        for slot in slots:
            component, key = int(instances.component[slot]), int(instances.key[slot])
            if component == 0:
                starts.append((tick, key, [[0] * (length + 1) for _ in range(1 + len(query.measures))]))
                starts[-1][2][0][0] = 1
            for start in starts:
                if start[1] != key or (component == 0) != (start is starts[-1] and start[0] == tick):
                    continue
                counts = start[2][0]
                for number, measure in enumerate(query.measures, start=1):
                    sums = start[2][number]
                    weight = int(instances.ints[measure.lane, slot]) if measure.component == component else 0
                    sums[component + 1] += sums[component] + weight * counts[component]
                counts[component + 1] += counts[component]
                if component == length - 1 and counts[component]:
                    completed.add(key_group[key])
        for group in sorted(completed):
            mine = [start[2] for start in starts if key_group[start[1]] == group]
            values = [sum(start[number][length] for start in mine) for number in range(1 + len(query.measures))]
            told.append(Row(tick, group, values[0], tuple(values[1:])))
    return sorted(told)


def counted_by(
    query: Query, way: Way, instances: CounterInstances, used: int, key_group: list[int], weight: int
) -> Counters:
    """Counters that have read all instances in one call."""
    tables = tables_of(query, way)
    counters: Counters = RowCounters(tables) if way is Way.PER_START else MatrixCounters(tables)
    counters.reserve(used, np.array(key_group, np.int32), 2)
    counters.count(instances, 0, used, 1500, float(weight))
    return counters


@pytest.mark.parametrize("way", [Way.INVERSE, Way.STACKS, Way.PER_START])
@pytest.mark.parametrize("measured", [False, True])
def test_numbers_that_outgrow_64_bits(way: Way, measured: bool) -> None:
    widened_runs = 0
    for seed in range(6):
        rng = random.Random(f"large {seed}")
        length = (12, 24, 30)[seed % 3]
        weight = 10 ** rng.choice((1, 6, 17))
        measures = (Measure(MeasureKind.INTEGER, rng.randrange(length), 0),) if measured else ()
        query = Query((False,) * length, (False,) * length, (200, 1500)[seed > 0], measures)
        used = 2000
        events = sorted((rng.randrange(1500), -rng.randrange(length), rng.choice((1, 1, 1, 1, 2))) for _ in range(used))
        instances = new_counter_instances(used, 1)
        for slot, (tick, component, key) in enumerate(events):
            instances.tick[slot], instances.component[slot], instances.key[slot] = tick, -component, key
            instances.ints[0, slot] = rng.randint(-weight, weight)
        key_group = rng.choice(([0, 0, 1], [0, 0, 0]))
        expected = counted_exactly(query, instances, used, key_group)
        counters = counted_by(query, way, instances, used, key_group, weight)
        widened_runs += int(counters.state.counters[Counter.WIDE])
        assert reported(query, counters.output) == expected, (seed, query)
        assert max((row.count for row in expected), default=0) < 2**127
    assert widened_runs >= 2, "nothing outgrew 64 bits"


@pytest.mark.parametrize("gap", [3, 60, 900])
def test_a_negated_start_over_long_streams(gap: int) -> None:
    """Rows for each first event and two stacks agree, also where counts outgrow 64 bits; negatives come every `gap`."""
    widened_runs = flips = 0
    for seed in range(4):
        rng = random.Random(f"negated start {gap} {seed}")
        length = (2, 4, 20, 30)[seed]
        weight = 10 ** rng.choice((1, 6, 17))
        kleene = tuple(rng.random() < 0.1 for _ in range(length + 1))
        measures = (Measure(MeasureKind.INTEGER, rng.randint(1, length), 0), Measure(MeasureKind.LEAST, 1, 1))
        query = Query((True,) + (False,) * length, kleene, 300, measures[: seed % 3], seed == 1)
        used = 1500
        instances = new_counter_instances(used, 2)
        events = []
        for _ in range(used):
            component = 0 if rng.randrange(gap) == 0 else rng.randint(1, length)
            events.append((rng.randrange(1200), -component, rng.choice((1, 1, 1, 2))))
        for slot, (tick, component, key) in enumerate(sorted(events)):
            instances.tick[slot], instances.component[slot], instances.key[slot] = tick, -component, key
            instances.ints[:, slot] = rng.randint(-weight, weight), rng.randint(-9, 9)
        key_group = rng.choice(([0, 0, 1], [0, 0, 0]))
        by_start, stacks = (
            counted_by(query, way, instances, used, key_group, weight) for way in (Way.PER_START, Way.STACKS)
        )
        assert reported(query, stacks.output) == reported(query, by_start.output), (seed, query)
        widened_runs += int(stacks.state.counters[Counter.WIDE])
        flips += int(stacks.state.counters[Counter.FLIPS])
    assert flips < 60 and (widened_runs >= 1 or gap < 60), "too many flips, or nothing outgrew 64 bits"
