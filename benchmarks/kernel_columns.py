"""How fast columns become small numbers, beside what pyarrow and numpy take for the same, in one run.

Run as `python benchmarks/kernel_columns.py [rows]`. Every line checks its answer first. Prints JSON: nanoseconds of CPU
for a value, median of alternating runs, and how many times faster ours was.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ouzel.kernels.arrays import coded_of, column_of, text_of
from ouzel.kernels.keys import encode, new_keys
from ouzel.kernels.order import expand, first_disorder, gather, stable_order, ties
from ouzel.kernels.text import classify, constants_of, select, select_coded

RUNS = 5
RELEVANT_SHARE = 0.15


def compare(
    name: str, value_count: int, ours: Callable[[], Any], theirs: Callable[[], Any], theirs_name: str
) -> dict[str, Any]:
    ours()
    theirs()
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for _ in range(RUNS):
        for who, work in (("ours", ours), ("theirs", theirs)):
            begin = time.process_time()
            work()
            seconds[who].append(time.process_time() - begin)
    ours_ns, theirs_ns = (median(seconds[who]) / value_count * 1e9 for who in ("ours", "theirs"))
    return {
        "name": name,
        "values": value_count,
        "ours_ns": round(ours_ns, 2),
        "million_per_second": round(1e3 / ours_ns),
        "beside": theirs_name,
        "theirs_ns": round(theirs_ns, 2),
        "times_faster": round(theirs_ns / ours_ns, 2),
    }


def text_lines(rows: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    lines = []
    picks = rng.integers(0, 20, rows)
    for shape in ("E{}", "EventType{}", "com.example.events.Order{}"):
        names = [shape.format(number + 1) for number in range(20)]
        array = pa.array(names).take(pa.array(picks))
        text = text_of(array)
        for count in (3, 10):
            constants = constants_of(names[:count])
            roles = np.append(np.ones(count, dtype=np.uint64), np.uint64(0))
            value_set = pa.array(names[:count])
            assert np.array_equal(classify(text, constants), np.minimum(picks, count))
            found = np.nonzero(picks < count)[0]
            assert np.array_equal(select(text, constants, roles)[0], found)
            work = {
                "classify": lambda t=text, c=constants: classify(t, c),
                "select": lambda t=text, c=constants, r=roles: select(t, c, r),
            }
            for name, ours in work.items():
                label = f"{name} {count} of 20 names like {names[0]}"
                lines.append(
                    compare(
                        label, rows, ours, lambda a=array, v=value_set: pc.index_in(a, value_set=v), "pyarrow index_in"
                    )
                )
    coded = pa.DictionaryArray.from_arrays(pa.array(picks.astype(np.int32)), pa.array(names))
    roles = np.append(np.ones(3, dtype=np.uint64), np.uint64(0))

    def select_from_dictionary() -> Any:
        return select_coded(coded_of(coded), classify(text_of(coded.dictionary), constants_of(names[:3])), roles)

    assert np.array_equal(select_from_dictionary()[0], np.nonzero(picks < 3)[0])
    table = np.minimum(np.arange(20), 3)
    indices = picks.astype(np.int32)
    label = "select 3 of a dictionary"
    lines.append(compare(label, rows, select_from_dictionary, lambda: np.nonzero(table[indices] < 3), "numpy nonzero"))
    return lines


def key_lines(rows: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    lines = []
    relevant = np.nonzero(rng.random(rows) < RELEVANT_SHARE)[0].astype(np.int32)
    everything = np.arange(rows, dtype=np.int32)
    for key_count in (100, 1_000, 10_000, 100_000):
        ids = rng.integers(0, key_count, rows)
        columns = {
            "integers close together": pa.array(ids),
            "integers far apart": pa.array(ids * 1_000_003_777),
            "doubles": pa.array(ids * 1.5),
            "strings": pa.array([f"tag-{number}" for number in range(key_count)]).take(pa.array(ids)),
        }
        for name, array in columns.items():
            column = column_of(array)
            is_text = [name == "strings"]
            _, codes = encode(new_keys(is_text), [column], everything)
            assert np.array_equal(codes, array.dictionary_encode().indices.to_numpy())
            for share, chosen in (("all", everything), ("relevant", relevant)):

                def ours(c: Any = column, t: Any = is_text, r: Any = chosen) -> Any:
                    return encode(new_keys(t), [c], r)

                def theirs(a: Any = array, r: Any = chosen, s: str = share) -> Any:
                    return (a if s == "all" else a.take(pa.array(r))).dictionary_encode()

                label = f"{key_count} keys, {name}, {share} rows"
                lines.append(compare(label, chosen.size, ours, theirs, "pyarrow dictionary_encode"))
    return lines


def order_lines(rows: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    lines = []
    steady = np.arange(rows) * 1_000
    late = steady.copy()
    late[rng.integers(0, rows, rows // 100)] -= 10**6
    disorders = {
        "in order": steady,
        "1% late": late,
        "jitter of five rows": steady + rng.integers(0, 5_000, rows),
        "shuffled": rng.permutation(steady),
    }
    for name, times in disorders.items():
        assert np.array_equal(stable_order(times), np.argsort(times, kind="stable"))
        lines.append(
            compare(
                f"sort, {name}",
                rows,
                lambda t=times: stable_order(t),
                lambda t=times: pc.sort_indices(pa.array(t)),
                "pyarrow sort_indices",
            )
        )
    relevant = np.nonzero(rng.random(rows) < RELEVANT_SHARE)[0].astype(np.int32)
    roles = np.uint64(1) << rng.integers(0, 3, rows).astype(np.uint64)
    assert first_disorder(steady) == -1
    assert np.array_equal(gather(steady, relevant), steady[relevant])
    assert np.array_equal(expand(roles)[1], np.log2(roles).astype(np.int8))
    assert ties(steady).positions.size == 0
    lines += [
        compare(
            "is it sorted",
            rows,
            lambda: first_disorder(steady),
            lambda: bool(np.all(steady[1:] >= steady[:-1])),
            "numpy all",
        ),
        compare(
            "ties, none", rows, lambda: ties(steady), lambda: np.nonzero(steady[1:] == steady[:-1]), "numpy nonzero"
        ),
        compare(
            "gather relevant", relevant.size, lambda: gather(steady, relevant), lambda: steady[relevant], "numpy index"
        ),
        compare(
            "expand one role each", rows, lambda: expand(roles), lambda: np.log2(roles).astype(np.int8), "numpy log2"
        ),
    ]
    return lines


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4_000_000
    rng = np.random.default_rng(7)
    lines = text_lines(rows, rng) + key_lines(rows, rng) + order_lines(rows // 4, rng)
    print(json.dumps({"benchmark": "kernel_columns", "rows": rows, "lines": lines}, indent=1))


if __name__ == "__main__":
    main()
