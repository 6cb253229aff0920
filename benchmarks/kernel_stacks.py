"""The stack kernel alone, over ready instances, against a pass that only hashes the keys of relevant events.

SASE's section 5: 20 types, one event per tick, SEQ of the first `length` types with one equivalence test. Checks the
number of matches against a count that is computed another way (prefix counts per key), and prints JSON.

    python benchmarks/kernel_stacks.py [--events 4000000]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ouzel.engines.sequence.stacks import scan
from ouzel.engines.sequence.tables import Counter, StackOutput, StackTables, build_tables, new_output, new_state
from ouzel.kernels.events import Instances, new_instances

TYPES = 20


def stream(events: int, keys: int, seed: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Type and id of events at ticks 0, 1, 2, …"""
    rng = np.random.default_rng(seed)
    return rng.integers(0, TYPES, events).astype(np.uint8), rng.integers(0, keys, events) * 7919


@njit(cache=True, nogil=True)
def hash_and_count(types: Any, ids: Any, length: int, buckets: Any) -> int:
    """The yardstick: look at every type, hash the id of relevant events, count per bucket."""
    mask = np.uint64(buckets.size - 1)
    relevant = 0
    for event in range(types.size):
        if types[event] < length:
            mixed = np.uint64(ids[event]) * np.uint64(0x9E3779B97F4A7C15)
            buckets[(mixed >> np.uint64(32)) & mask] += 1
            relevant += 1
    return relevant


def ready_instances(types: NDArray[np.uint8], ids: NDArray[np.int64], length: int) -> Instances:
    relevant = np.flatnonzero(types < length)
    instances = new_instances(relevant.size)
    instances.end[:] = relevant
    instances.key[:] = np.unique(ids[relevant], return_inverse=True)[1]
    instances.component[:] = types[relevant]
    return instances


@njit(cache=True, nogil=True)
def count_matches(end: Any, key: Any, component: Any, length: int, window: int, keys: int) -> int:
    """By inclusion: an event that leaves the window takes the sequences it starts with it."""
    # runs[key, i, j]: sequences of live events filling components i to j.
    runs = np.zeros((keys, length, length), np.int64)
    oldest = 0
    total = 0
    for slot in range(end.size):
        while end[oldest] <= end[slot] - window:
            i = component[oldest]
            run = runs[key[oldest]]
            run[i, i] -= 1
            for j in range(i + 1, length):
                run[i, j] -= run[i + 1, j]
            oldest += 1
        j = component[slot]
        run = runs[key[slot]]
        for i in range(j):
            run[i, j] += run[i, j - 1]
        if j == length - 1:
            # Sequences that this event completes.
            total += run[0, j - 1] if j > 0 else 1
        run[j, j] += 1
    return total


def seconds(work: Callable[[], Any]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def measure(events: int, keys: int, length: int, window: int, runs: int) -> dict[str, Any]:
    types, ids = stream(events, keys, seed=keys + length)
    instances = ready_instances(types, ids, length)
    tables = build_tables([False] * length, window)
    used = instances.end.size
    buckets = np.zeros(1 << 16, np.int64)
    output = scan_once(tables, instances, keys, new_output(tables))
    expected = count_matches(instances.end, instances.key, instances.component, length, window, keys)
    assert output.written[0] == expected, (output.written[0], expected)
    kernel, yardstick = [], []
    state = new_state(tables, used, keys)
    for _ in range(runs):
        yardstick.append(seconds(lambda: hash_and_count(types, ids, length, buckets)))
        output.written[0] = 0
        state.head[:] = -1
        state.counters[:] = new_state(tables, 1).counters
        kernel.append(seconds(lambda: scan(tables, state, instances, 0, used, output)))
    scan_s, hash_s = statistics.median(kernel), statistics.median(yardstick)
    counters = state.counters
    return {
        "keys": keys,
        "length": length,
        "window": window,
        "instances": used,
        "matches": int(expected),
        "edges": int(counters[Counter.EDGES]),
        "scan_ms": round(scan_s * 1e3, 2),
        "hash_and_count_ms": round(hash_s * 1e3, 2),
        "hash_over_scan": round(hash_s / scan_s, 2),
        "ns_per_instance": round(scan_s * 1e9 / used, 2),
        "ns_per_slot_written_at_most": round(scan_s * 1e9 / max(expected * length, 1), 2),
    }


def scan_once(tables: StackTables, instances: Instances, keys: int, output: StackOutput) -> StackOutput:
    return scan(tables, new_state(tables, instances.end.size, keys), instances, 0, instances.end.size, output).output


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--events", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    for keys in (100, 1_000, 10_000):
        print(json.dumps(measure(arguments.events, keys, 3, 10_000, arguments.runs)))
    for length in (2, 4, 6):
        print(json.dumps(measure(arguments.events, 1_000, length, 10_000, arguments.runs)))
    print(json.dumps(measure(arguments.events, 500, 6, 10_000, arguments.runs)))


if __name__ == "__main__":
    main()
