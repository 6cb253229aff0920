"""Random queries and streams for the stack kernels, and a way to run them in any split of batches."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from ouzel.engines.sequence.stacks import rebase, release, scan
from ouzel.engines.sequence.tables import (
    Push,
    StackConjunct,
    StackOutput,
    StackState,
    StackTables,
    build_tables,
    new_output,
    new_state,
)
from ouzel.kernels.events import EVERY_KEY, Instances, Status, new_instances
from ouzel.kernels.predicate_tables import Alternative, Atom, Comparison, Instruction, Lane, LaneFlag, Opcode, Program
from tests.engines.sequence.stack_twin import Match, Query

LATEST = 2**63 - 1


def random_query(rng: random.Random, *, everywhere: bool = True) -> Query:
    while True:
        negated = [rng.random() < 0.35 for _ in range(rng.randint(1, 5))]
        if negated.count(False) in (1, 2, 3):
            break
    needs_window = negated[0] or negated[-1]
    window = None if not needs_window and rng.random() < 0.2 else rng.randint(1, 12)
    conjuncts = [random_conjunct(rng, negated) for _ in range(rng.choice((0, 0, 0, 1, 2, 3)))]
    lacking = {c for c, negative in enumerate(negated) if negative and everywhere and rng.random() < 0.4}
    return Query(negated, window, conjuncts, lacking)


def random_conjunct(rng: random.Random, negated: Sequence[bool]) -> StackConjunct:
    allowed = [component for component, negative in enumerate(negated) if not negative]
    negatives = [component for component, negative in enumerate(negated) if negative]
    if negatives and rng.random() < 0.6:
        allowed.append(rng.choice(negatives))
    alternatives = tuple(random_alternative(rng, allowed) for _ in range(rng.choice((1, 1, 1, 2))))
    return StackConjunct(alternatives, early=rng.random() < 0.8)


def random_alternative(rng: random.Random, allowed: Sequence[int]) -> Alternative:
    floating = rng.random() < 0.3
    left = Lane(rng.choice(allowed), 0, floating)
    right = Lane(rng.choice(allowed), 0, floating)
    comparison = rng.choice(list(Comparison))
    if rng.random() < 0.75:
        return Atom(left, comparison, right)
    if floating:
        return Atom(left, comparison, rng.choice((0.0, 1.0, float("nan"))))
    return Program(
        (
            Instruction(Opcode.LOAD_INT, lane=left),
            Instruction(Opcode.LOAD_INT, lane=right),
            Instruction(rng.choice((Opcode.ADD_INT, Opcode.SUBTRACT_INT, Opcode.MODULO_INT))),
            Instruction(Opcode.INT, constant=rng.randint(-1, 2)),
            Instruction(Opcode.COMPARE_INT, comparison=comparison),
        )
    )


def random_instances(rng: random.Random, query: Query, *, second_key: bool = False) -> tuple[Instances, int]:
    """Instances in stream order, some events with several roles; a few keys; often simultaneous or overlapping."""
    points = rng.random() < 0.5
    span = rng.choice((6, 12, 25))
    keys = rng.choice((1, 2, 3))
    offset = rng.choice((0, 0, -(2**63) + 1, 2**63 - 1 - 2 * span - 40))
    events = []
    for _ in range(rng.randint(0, 12)):
        start = rng.randint(0, span)
        end = start if points else start + rng.choice((0, 0, 1, 3, 7))
        roles = sorted(rng.sample(range(len(query.negated)), rng.choice((1, 1, 1, min(2, len(query.negated))))))
        events.append((end, start, rng.random(), roles))
    events.sort()
    used = sum(len(roles) for *_, roles in events)
    instances = new_instances(used + 3, int_lanes=1, float_lanes=1, points=points, second_key=second_key)
    slot = 0
    for end, start, _, roles in events:
        key, second = rng.randint(1, keys), rng.randint(1, 2)
        int_value, float_value = rng.randint(0, 2), rng.choice((0.0, -0.0, 1.0, float("nan")))
        for component in roles:
            lacks = component in query.everywhere and rng.random() < 0.5
            instances.start[slot], instances.end[slot] = start + offset, end + offset
            instances.key[slot] = EVERY_KEY if lacks else key
            if second_key:
                instances.second_key[slot] = EVERY_KEY if lacks and rng.random() < 0.5 else second
            instances.component[slot] = component
            instances.int_lanes[0, slot], instances.float_lanes[0, slot] = int_value, float_value
            slot += 1
    if rng.random() < 0.4:
        flags = [LaneFlag.VALUE] * 6 + [LaneFlag.NULL, LaneFlag.ABSENT]
        instances.lane_flags[:, :used] = [[rng.choice(flags) for _ in range(used)] for _ in range(2)]
        instances.flagged[:] = instances.lane_flags.any(axis=1)
    return instances, used


def random_tables(rng: random.Random, query: Query, *, second_key: bool = False) -> StackTables:
    return build_tables(
        query.negated,
        query.window,
        query.conjuncts,
        everywhere=query.everywhere,
        push=rng.choice([Push.ALL, Push.ALL, *map(Push, range(8))]),
        prune=rng.random() < 0.3,
        second_equivalence=second_key,
    )


def taken(output: StackOutput, shifted: int = 0) -> list[Match]:
    """The matches of an output, which is then empty."""
    count = int(output.written[0])
    output.written[0] = 0
    rows = (output.slots[:, :count].T + shifted).tolist()
    return [(tuple(row), match_end) for row, match_end in zip(rows, output.match_end[:count].tolist(), strict=True)]


def run(
    tables: StackTables,
    instances: Instances,
    used: int,
    splits: Sequence[int] = (),
    *,
    rebasing: bool = False,
    state: StackState | None = None,
) -> list[Match]:
    """All matches in order of output. With `rebasing`, what has expired is dropped from the buffers at every split."""
    if state is None:
        state = new_state(tables, max(used, 1), 4, second_keys=4 if tables.second_equivalence else 0)
    output = new_output(tables, 1)
    found: list[Match] = []
    shifted = 0
    # Rebasing moves arrays; the case itself must stay as it is.
    buffers = copied(instances) if rebasing else instances
    at = 0
    for until in (*splits, used):
        at_slot, until_slot = at - shifted, until - shifted
        status, position, state, output = scan(tables, state, buffers, at_slot, until_slot, output)
        assert (status, position) == (Status.DONE, until_slot)
        at = until
        found += taken(output, shifted)
        if rebasing and until_slot > 0 and query_has_window(tables):
            # As Python integers, which do not overflow.
            now, live = int(buffers.end[until_slot - 1]), 0
            while live < until_slot and int(buffers.end[live]) <= now - tables.window:
                live += 1
            drop(buffers, live)
            rebase(state, live, until_slot)
            shifted += live
    status, _, state, output = release(tables, state, buffers, LATEST, output)
    assert status == Status.DONE
    return found + taken(output, shifted)


def query_has_window(tables: StackTables) -> bool:
    return tables.window != LATEST


def copied(instances: Instances) -> Instances:
    end = instances.end.copy()
    start = end if instances.start is instances.end else instances.start.copy()
    return Instances(start, end, *(array.copy() for array in instances[2:]))


def drop(instances: Instances, count: int) -> None:
    """Drop instances from the front of the buffers, in place; the rest is scribbled over, to be sure."""
    seen: set[int] = set()
    for name, array in instances._asdict().items():
        if name == "flagged" or array.size == 0 or id(array) in seen:
            continue
        seen.add(id(array))
        rest = array.shape[-1] - count
        array[..., :rest] = array[..., count:].copy()
        array[..., rest:] = np.array(99).astype(array.dtype)
