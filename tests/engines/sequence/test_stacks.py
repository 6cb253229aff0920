"""The stack kernel against its naive twin."""

from __future__ import annotations

import os
import random

import pytest

from ouzel.engines.sequence.stacks import release, scan
from ouzel.engines.sequence.tables import ByStage, Counter, Push, StackTables, build_tables, new_output, new_state
from ouzel.kernels.events import Status, new_instances
from tests.engines.sequence.stack_cases import (
    LATEST,
    random_instances,
    random_query,
    random_tables,
    run,
    taken,
)
from tests.engines.sequence.stack_twin import Query, every_match

pytestmark = pytest.mark.compiled

# Without compilation everything is some fifty times slower.
CASES = 150 if os.environ.get("NUMBA_DISABLE_JIT") == "1" else 4000


def check(found: list, expected: set, context: object) -> None:  # type: ignore[type-arg]
    assert len(found) == len(set(found)), ("a match came twice", context)
    assert set(found) == expected, context


def test_agrees_with_the_twin_on_random_cases() -> None:
    matches = 0
    for seed in range(CASES):
        rng = random.Random(seed)
        query = random_query(rng)
        instances, used = random_instances(rng, query)
        expected = every_match(query, instances, used)
        check(run(random_tables(rng, query), instances, used), expected, seed)
        matches += len(expected)
    # A test of empty answers would prove nothing.
    assert matches > CASES


def test_every_split_into_batches_gives_the_same_answer() -> None:
    for seed in range(CASES // 8):
        rng = random.Random(f"split {seed}")
        query = random_query(rng)
        instances, used = random_instances(rng, query)
        tables = random_tables(rng, query)
        expected = every_match(query, instances, used)
        for at in range(used + 1):
            check(run(tables, instances, used, [at], rebasing=at % 2 == 1), expected, (seed, at))
        check(run(tables, instances, used, range(used), rebasing=True), expected, seed)


def test_each_switch_gives_the_same_answer() -> None:
    for seed in range(CASES // 10):
        rng = random.Random(f"switch {seed}")
        query = random_query(rng)
        instances, used = random_instances(rng, query)
        expected = every_match(query, instances, used)
        for push in map(Push, range(8)):
            for prune in (False, True):
                tables = build_tables(
                    query.negated, query.window, query.conjuncts, everywhere=query.everywhere, push=push, prune=prune
                )
                check(run(tables, instances, used), expected, (seed, push, prune))


def test_two_keys_by_multi_pais() -> None:
    for seed in range(CASES // 2):
        rng = random.Random(f"second {seed}")
        query = random_query(rng)
        instances, used = random_instances(rng, query, second_key=True)
        expected = every_match(query, instances, used)
        tables = random_tables(rng, query, second_key=True)
        check(run(tables, instances, used), expected, seed)
        if used:
            splits = [rng.randrange(used)]
            check(run(tables, instances, used, splits, rebasing=True), expected, seed)


@pytest.mark.parametrize("break_it", ["window", "negation", "conjuncts"])
def test_a_broken_kernel_is_caught(break_it: str) -> None:
    caught = 0
    for seed in range(CASES // 4):
        rng = random.Random(seed)
        query = random_query(rng)
        instances, used = random_instances(rng, query)
        if break_it == "window":
            # What `<=` instead of `<` would do.
            wrong = Query(query.negated, query.window and query.window + 1, query.conjuncts, query.everywhere)
            tables = random_tables(rng, wrong)
        elif break_it == "negation":
            tables = without_negation(random_tables(rng, query))
        else:
            tables = random_tables(rng, Query(query.negated, query.window, (), query.everywhere))
        caught += set(run(tables, instances, used)) != every_match(query, instances, used)
    assert caught > 0


def without_negation(tables: StackTables) -> StackTables:
    by_stage = tables.by_stage.copy()
    by_stage[:, [ByStage.FIRST_GUARDED, ByStage.FIRST_SEARCHED]] = 0
    return tables._replace(by_stage=by_stage)


def test_waiting_matches_come_out_in_order_of_their_end_and_not_too_early() -> None:
    tables = build_tables([False, False, True], window=10)
    instances = new_instances(5)
    instances.end[:] = 1, 2, 3, 11, 12
    instances.component[:] = 0, 0, 1, 1, 1
    state, output = new_state(tables, 5), new_output(tables)
    status, position, state, output = scan(tables, state, instances, 0, 3, output)
    assert (status, position, output.written[0]) == (Status.DONE, 3, 0)
    # Nothing at or before 9 can come: the window of the event at 1 ends with tick 10.
    _, _, state, output = release(tables, state, instances, 9, output)
    assert taken(output) == []
    state, output = release(tables, state, instances, 10, output)[2:]
    assert taken(output) == [((0, 2), 10)]
    # The instance at 11 still falls into the window of the one at 2, the instance at 12 shows that it has passed.
    state, output = scan(tables, state, instances, 3, 4, output)[2:]
    assert taken(output) == []
    assert state.counters[Counter.WAITING] == 2
    state, output = scan(tables, state, instances, 4, 5, output)[2:]
    assert taken(output) == [((1, 2), 11), ((1, 3), 11)]
    assert taken(release(tables, state, instances, LATEST, output).output) == []


def test_released_matches_are_ordered_by_deadline() -> None:
    for seed in range(CASES // 10):
        rng = random.Random(f"order {seed}")
        query = random_query(rng)
        if not query.negated[-1]:
            continue
        instances, used = random_instances(rng, query)
        ends = [match_end for _, match_end in run(random_tables(rng, query), instances, used)]
        assert ends == sorted(ends)
