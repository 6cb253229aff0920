"""What the stack kernel does at its limits, when buffers move, and how much it remembers."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ouzel.engines.sequence.stacks import rekey, release, scan
from ouzel.engines.sequence.tables import Counter, Push, build_tables, new_output, new_state, reserve
from ouzel.kernels.events import Status, new_instances
from tests.engines.sequence.stack_cases import LATEST, random_instances, random_query, run, taken
from tests.engines.sequence.stack_twin import every_match

pytestmark = pytest.mark.compiled


def dense(events: int, components: int) -> tuple:  # type: ignore[type-arg]
    """Every event may fill every component, one event a tick."""
    instances = new_instances(events * components)
    instances.end[:] = np.repeat(np.arange(events), components)
    instances.component[:] = np.tile(np.arange(components), events)
    return instances, events * components


@pytest.mark.parametrize("push", [Push.ALL, Push.NEGATION])
def test_too_many_matches_of_a_moment_leave_no_trace(push: Push) -> None:
    instances, used = dense(30, 3)
    tables = build_tables([False] * 3, 100, push=push, max_matches_per_timestamp=20)
    status, position, state, output = scan(tables, new_state(tables, used), instances, 0, used, new_output(tables))
    # The event at tick t completes t * (t - 1) / 2 matches: 21 at tick 7.
    assert (status, position) == (Status.MATCH_LIMIT, 7 * 3 + 2)
    assert {int(end) for end in output.match_end[: output.written[0]]} == set(range(2, 7))
    before = output.written[0]
    status, again, state, output = scan(tables, state, instances, position, used, output)
    assert (status, again, output.written[0]) == (Status.MATCH_LIMIT, position, before)
    # With the limit lifted the same state goes on to the whole answer.
    lifted = build_tables([False] * 3, 100, push=push)
    status, _, state, output = scan(lifted, state, instances, position, used, output)
    assert status == Status.DONE
    assert sorted(taken(output)) == sorted(run(lifted, instances, used))


def test_too_many_waiting_matches() -> None:
    instances, used = dense(12, 2)
    tables = build_tables([False, False, True], 100, max_waiting=10)
    status, position, state, output = scan(tables, new_state(tables, used), instances, 0, used, new_output(tables, 1))
    # 0 + 1 + 2 + 3 + 4 matches wait after tick 4; tick 5 would add 5 more.
    assert (status, position, state.counters[Counter.WAITING]) == (Status.WAITING_LIMIT, 5 * 2 + 1, 10)
    lifted = build_tables([False, False, True], 100)
    status, _, state, output = scan(lifted, state, instances, position, used, output)
    assert status == Status.DONE
    status, _, state, output = release(lifted, state, instances, LATEST, output)
    assert len(taken(output)) == sum(range(12))
    assert state.counters[Counter.WAITING] == 0


def test_released_matches_count_for_their_moment() -> None:
    instances, used = dense(6, 2)
    # All five matches that start at tick 0 end together.
    tables = build_tables([False, False, True], 100, max_matches_per_timestamp=4)
    _, _, state, output = scan(tables, new_state(tables, used), instances, 0, used, new_output(tables))
    status, _, state, output = release(tables, state, instances, LATEST, output)
    assert (status, output.written[0]) == (Status.MATCH_LIMIT, 0)
    lifted = tables._replace(max_matches_per_timestamp=5)
    status, _, state, output = release(lifted, state, instances, LATEST, output)
    assert (status, output.written[0]) == (Status.DONE, 15)


def test_waiting_rows_are_used_again() -> None:
    tables = build_tables([False, False, True], 5)
    instances, used = dense(5_000, 2)
    _, _, state, _ = scan(tables, new_state(tables, used), instances, 0, used, new_output(tables))
    assert state.waiting_next.size <= 1024


def test_simultaneous_instances_are_passed_in_one_step() -> None:
    """Many thousand instances at one tick must not be walked one by one for each other."""
    many = 60_000
    tables = build_tables([False, False], 100)
    instances = new_instances(2 * many)
    instances.end[:] = 7
    instances.component[many:] = 1
    for push in (Push.ALL, Push.NEGATION):
        tables = build_tables([False, False], 100, push=push)
        assert run(tables, instances, 2 * many) == []


def test_keys_may_be_renumbered_between_batches() -> None:
    for seed in range(200):
        rng = random.Random(f"rekey {seed}")
        query = random_query(rng, everywhere=False)
        instances, used = random_instances(rng, query)
        expected = every_match(query, instances, used)
        tables = build_tables(query.negated, query.window, query.conjuncts)
        half = rng.randint(0, used)
        state = new_state(tables, max(used, 1), 4)
        _, _, state, output = scan(tables, state, instances, 0, half, new_output(tables))
        # Keys 1, 2, 3 become 0, 1, 2.
        rekey(state.head, tables.components, np.array([-1, 0, 1, 2], np.int32))
        instances.key[:used] -= 1
        _, _, state, output = scan(tables, state, instances, half, used, output)
        _, _, state, output = release(tables, state, instances, LATEST, output)
        assert set(taken(output)) == expected, seed


def test_room_for_more_slots_and_keys_keeps_what_is_there() -> None:
    tables = build_tables([False, True, False], 10)
    instances, used = dense(6, 3)
    state = new_state(tables, 6, 1)
    _, _, state, output = scan(tables, state, instances, 0, 6, new_output(tables))
    state = reserve(tables, state, used, 9)
    _, _, state, output = scan(tables, state, instances, 6, used, output)
    assert sorted(taken(output)) == sorted(run(tables, instances, used))


def test_early_tests_make_fewer_intermediate_results() -> None:
    """The counters behind the tables of SASE section 5 show what each switch is worth."""
    instances, used = dense(60, 3)
    sequences, pushed = {}, {}
    for push in (Push.ALL, Push.NEGATION, Push(0)):
        tables = build_tables([False] * 3, 8, push=push)
        state = new_state(tables, used)
        state = scan(tables, state, instances, 0, used, new_output(tables)).state
        sequences[push] = state.counters[Counter.SEQUENCES]
        pushed[push] = state.counters[Counter.PUSHED]
        assert state.counters[Counter.INSTANCES] == used
    assert sequences[Push.ALL] < sequences[Push(0)] == 60 * 59 * 58 // 6
    assert sequences[Push.ALL] == run_count(8)


def run_count(window: int) -> int:
    return sum(1 for a in range(60) for b in range(a + 1, 60) for c in range(b + 1, 60) if c - a < window)
