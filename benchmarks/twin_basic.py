"""SASE's Basic construction (3.2) as a twin of the stacks, and figures 8 and 9: Basic against stacks.

Basic keeps a runtime stack with one cell per event, which holds the set of NFA states that are active after it. When
the accepting state is reached, sequences are built by a depth-first search back through the cells, one by one: a
self-loop leads to the cell before, a forward transition binds the cell's event. The window is checked in the search.

As in the paper's section 5.2 the equivalence test is not evaluated; its effect on the number of results is had by
multiplying the number of types by V1^((L-1)/L). Prints one JSON line per point; the two ways must agree.

    python benchmarks/twin_basic.py [--events 1000000]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ouzel.engines.sequence.stacks import scan
from ouzel.engines.sequence.tables import build_tables, new_output, new_state
from ouzel.kernels.events import new_instances


@njit(cache=True, nogil=True)
def basic_scan(time_of: Any, component_of: Any, length: int, window: int, active: Any, slots: Any) -> int:
    """Number of matches of two components or more; as many as fit are written to slots[position, match].

    Every event has a cell, also one that fills no component (component_of is then -1). `active` is the runtime stack:
    bit s of a cell says that components 0 to s have been recognised at or before it.
    """
    matches = 0
    cursor = np.empty(length, np.int64)
    for cell in range(time_of.size):
        states = active[cell - 1] if cell > 0 else 0
        component = component_of[cell]
        moves = component == 0 or (component > 0 and (states >> (component - 1)) & 1)
        active[cell] = states | (1 << component) if moves else states
        if not moves or component != length - 1:
            continue
        oldest = time_of[cell] - window
        cursor[length - 1] = cell
        level = length - 2
        cursor[level] = cell
        while level < length - 1:
            # One cell back along the self-loop of this state, as long as it is active and inside the window.
            back = cursor[level] - 1
            if back < 0 or time_of[back] <= oldest or not (active[back] >> level) & 1:
                level += 1
                continue
            cursor[level] = back
            if component_of[back] != level or time_of[back] >= time_of[cursor[level + 1]]:
                continue
            if level > 0:
                level -= 1
                cursor[level] = back
                continue
            if matches < slots.shape[1]:
                for place in range(length):
                    slots[place, matches] = cursor[place]
            matches += 1
    return matches


def stack_scan(
    time_of: NDArray[np.int64], component_of: NDArray[np.int8], length: int, window: int
) -> Callable[[], int]:
    """The same by stacks: relevant events become instances first, which is part of the work."""
    tables = build_tables([False] * length, window)

    def work() -> int:
        relevant = np.flatnonzero(component_of >= 0)
        instances = new_instances(relevant.size)
        instances.end[:] = time_of[relevant]
        instances.component[:] = component_of[relevant]
        state = new_state(tables, relevant.size)
        return int(scan(tables, state, instances, 0, relevant.size, new_output(tables)).output.written[0])

    return work


def best_of(work: Callable[[], int], runs: int) -> tuple[float, int]:
    answer, fastest = 0, float("inf")
    for _ in range(runs):
        started = time.process_time()
        answer = work()
        fastest = min(fastest, time.process_time() - started)
    return fastest, answer


def compare(events: int, domain: int, length: int, window: int, runs: int) -> dict[str, Any]:
    types = round(20 * domain ** ((length - 1) / length))
    drawn = np.random.default_rng(domain + window).integers(0, types, events)
    component_of = np.where(drawn < length, drawn, -1).astype(np.int8)
    time_of = np.arange(events, dtype=np.int64)
    active = np.zeros(events, np.int64)
    slots = np.empty((length, 1024), np.int32)
    by_stacks = stack_scan(time_of, component_of, length, window)
    by_stacks()
    basic_scan(time_of[:1000], component_of[:1000], length, window, active, slots)
    basic_s, expected = best_of(lambda: basic_scan(time_of, component_of, length, window, active, slots), runs)
    stacks_s, found = best_of(by_stacks, runs)
    assert found == expected, (found, expected)
    return {
        "domain": domain,
        "length": length,
        "window": window,
        "matches": found,
        "basic_events_per_s": round(events / basic_s),
        "stacks_events_per_s": round(events / stacks_s),
        "stacks_over_basic": round(basic_s / stacks_s, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    for domain in (100, 500, 1_000, 5_000, 10_000):
        print(json.dumps({"figure": 8} | compare(arguments.events, domain, 3, 10_000, arguments.runs)))
    for window in (10_000, 40_000, 70_000, 100_000):
        print(json.dumps({"figure": 9} | compare(arguments.events, 10_000, 3, window, arguments.runs)))


if __name__ == "__main__":
    main()
