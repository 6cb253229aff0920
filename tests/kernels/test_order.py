"""Order kernels against numpy's and Python's own sorting."""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ouzel.kernels.order import expand, first_disorder, gather, stable_order, ties

pytestmark = pytest.mark.compiled

ticks = st.integers(-5, 20) | st.integers(-(2**63), 2**63 - 1)
time_columns = st.lists(ticks, max_size=50).map(lambda values: np.array(values, dtype=np.int64))


@given(time_columns)
def test_small_columns(times):
    values = times.tolist()
    descents = [position for position in range(1, len(values)) if values[position] < values[position - 1]]
    assert first_disorder(times) == (descents[0] if descents else -1)
    assert stable_order(times).tolist() == sorted(range(len(values)), key=lambda position: values[position])


@pytest.mark.parametrize("position", [1, 2, 1023, 1024, 1025, 2048, 2999])
def test_disorder_is_found_wherever_it_is_example(position):
    times = np.arange(3000)
    assert first_disorder(times) == -1
    times[position] -= 2
    assert first_disorder(times) == position


def disorders(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(11)
    steady = np.arange(count) * 1_000
    late = steady.copy()
    late[rng.integers(0, count, count // 50)] -= 10**6
    return {
        "sorted": steady,
        "reversed": steady[::-1].copy(),
        "late rows": late,
        "jitter": steady + rng.integers(0, 50_000, count),
        "two files": np.concatenate([steady[::2], steady[1::2]]),
        "shuffled": rng.permutation(steady),
        "shuffled with ties": rng.integers(-3, 3, count),
        "one value": np.full(count, 7),
        "the whole range": rng.integers(-(2**63), 2**63 - 1, count),
    }


@pytest.mark.parametrize("count", [4_095, 4_096, 50_000])
@pytest.mark.parametrize("name", disorders(1))
def test_every_kind_of_disorder(name, count):
    times = disorders(count)[name]
    order = stable_order(times)
    assert order.dtype == np.int32
    assert np.array_equal(order, np.argsort(times, kind="stable"))


@given(time_columns)
def test_ties_of_small_columns(times):
    times = np.sort(times)
    runs = [list(run) for _, run in groupby(range(times.size), key=lambda position: times[position])]
    runs = [run for run in runs if len(run) > 1]
    found = ties(times)
    assert found.positions.tolist() == [position for run in runs for position in run]
    assert found.groups.tolist() == [group for group, run in enumerate(runs) for _ in run]


def test_ties_ordered_by_a_further_column_example():
    times, names = np.array([3, 1, 1, 1]), np.array(["a", "c", "a", "b"])
    order = stable_order(times)
    positions, groups = ties(times[order])
    inner = np.lexsort((names[order][positions], groups))
    order[positions] = order[positions[inner]]
    assert names[order].tolist() == ["a", "b", "c", "a"]


role_sets = st.integers(0, 2**64 - 1) | st.integers(0, 7) | st.integers(0, 63).map(lambda bit: 1 << bit)


@given(st.lists(role_sets, max_size=40) | st.lists(st.integers(0, 5).map(lambda bit: 1 << bit), max_size=40))
def test_expand_small_role_sets(roles):
    events, components = expand(np.array(roles, dtype=np.uint64))
    pairs = [(event, bit) for event, bits in enumerate(roles) for bit in range(64) if bits >> bit & 1]
    assert list(zip(events.tolist(), components.tolist(), strict=True)) == pairs
    assert (events.dtype, components.dtype) == (np.int32, np.int8)


@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.uint64, "datetime64[us]"])
def test_gather_example(dtype):
    values = np.arange(100).astype(dtype)
    rows = np.array([99, 0, 3, 3], dtype=np.int32)
    gathered = gather(values, rows)
    assert gathered.dtype == values.dtype
    assert np.array_equal(gathered, values[rows])
