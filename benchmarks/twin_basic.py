"""SASE's Basic construction (3.2) as two twins of the stacks, and figures 8 and 9: Basic against stacks.

Basic keeps a runtime stack with one cell per event, which holds the set of NFA states that are active after it. When
the accepting state is reached, sequences are built from the cells before. The paper says: by a depth-first search, in
which a self-loop leads to the cell before and a forward transition binds the cell's event. Read literally
(`basic_scan`), that walks the window again for each event that it binds. `sweeping_scan` walks it once, as a careful
implementation would: it gathers the events of each component, then joins them. The window is checked in both.

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


@njit(cache=True, nogil=True)
def sweeping_scan(
    time_of: Any, component_of: Any, length: int, window: int, active: Any, gathered: Any, later: Any, slots: Any
) -> int:
    """The same matches with one walk through the window for each event that reaches the accepting state.

    Times must differ. `gathered[s, k]` is the k-th last event of component s in the window, and `later[s, k]` says how
    many events of component s - 1 come after it.
    """
    matches = 0
    counts = np.empty(length, np.int64)
    chosen = np.empty(length, np.int64)
    last = length - 1
    for cell in range(time_of.size):
        states = active[cell - 1] if cell > 0 else 0
        component = component_of[cell]
        moves = component == 0 or (component > 0 and (states >> (component - 1)) & 1)
        active[cell] = states | (1 << component) if moves else states
        if not moves or component != last:
            continue
        counts[:] = 0
        oldest = time_of[cell] - window
        back = cell - 1
        while back >= 0 and time_of[back] > oldest:
            level = component_of[back]
            if 0 <= level < last:
                gathered[level, counts[level]] = back
                later[level, counts[level]] = counts[level - 1] if level > 0 else 0
                counts[level] += 1
            back -= 1
        level = last - 1
        chosen[level] = 0
        while level < last:
            if chosen[level] == counts[level]:
                level += 1
                if level < last:
                    chosen[level] += 1
                continue
            if level > 0:
                chosen[level - 1] = later[level, chosen[level]]
                level -= 1
                continue
            if matches < slots.shape[1]:
                slots[last, matches] = cell
                for place in range(last):
                    slots[place, matches] = gathered[place, chosen[place]]
            matches += 1
            chosen[level] += 1
    return matches


def basic_ways(
    time_of: NDArray[np.int64], component_of: NDArray[np.int8], length: int, window: int
) -> dict[str, Callable[[], int]]:
    """Basic in both ways; each returns the number of matches."""
    active, slots = np.empty(time_of.size, np.int64), np.empty((length, 1024), np.int32)
    gathered, later = np.empty((2, length, min(window, time_of.size)), np.int64)
    return {
        "search": lambda: basic_scan(time_of, component_of, length, window, active, slots),
        "sweep": lambda: sweeping_scan(time_of, component_of, length, window, active, gathered, later, slots),
    }


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
    ways = {
        **basic_ways(time_of, component_of, length, window),
        "stacks": stack_scan(time_of, component_of, length, window),
    }
    seconds = {}
    answers = set()
    for name, work in ways.items():
        answers.add(work())
        seconds[name], found = best_of(work, runs)
    assert answers == {found}, answers
    return {
        "domain": domain,
        "length": length,
        "window": window,
        "matches": found,
        **{f"{name}_events_per_s": round(events / taken) for name, taken in seconds.items()},
        "stacks_over_search": round(seconds["search"] / seconds["stacks"], 2),
        "stacks_over_sweep": round(seconds["sweep"] / seconds["stacks"], 2),
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
