"""The bars: kernel alone, end to end against peers, growth with length and window, start-up, snapshots.

Every function checks its answers before it measures, and gives rows for a table and the bars that follow from them.
"""

from __future__ import annotations

import compileall
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

import ouzel
from benchmarks import peers
from benchmarks.measure import Bar, alternate, process_seconds
from benchmarks.sase_generators import sase_events
from benchmarks.sase_worlds import (
    W1,
    W2,
    WINDOW,
    check_sample,
    component_codes,
    count_sequences,
    events_for,
    sequence_query,
)
from ouzel.engines.sequence.stacks import scan
from ouzel.engines.sequence.tables import build_tables, new_output, new_state
from ouzel.kernels.arrays import NO_NULLS, Coded, Numbers, frozen
from ouzel.kernels.events import Status, new_instances
from ouzel.kernels.keys import encode, new_keys
from ouzel.kernels.text import select_coded

Table = tuple[list[str], list[list[str]]]
KEY_COUNTS = (100, 1_000, 10_000)


# ── The kernel alone ───────────────────────────────────────────────────────────────────────────────


@njit(cache=True, nogil=True)
def hash_and_count(types: Any, ids: Any, length: Any, buckets: Any) -> Any:
    """The yardstick: look at every type, hash the id of relevant events, count by hash."""
    mask = np.uint64(buckets.size - 1)
    relevant = 0
    for event in range(types.size):
        if types[event] < length:
            mixed = np.uint64(ids[event]) * np.uint64(0x9E3779B97F4A7C15)
            buckets[(mixed >> np.uint64(32)) & mask] += 1
            relevant += 1
    return relevant


def kernel_alone(table: pa.Table, length: int = 3) -> tuple[Callable[[], int], Callable[[], int]]:
    """The stack kernel from type codes and ids to all matches, and the yardstick on the same arrays.

    The kernel's side finds the relevant events, numbers their keys and scans; the time of an event is its number, as in
    the paper, so that no column of times is read on either side. Buffers are there before, matches are written to a
    buffer that is used again.
    """
    components = component_codes(table, length)
    types = frozen(np.where(components >= 0, components, length).astype(np.int32))
    ids = frozen(table.column("attr1").to_numpy())
    codes_of_types = np.arange(length + 1, dtype=np.uint8)
    roles = np.append(np.uint64(1) << np.arange(length, dtype=np.uint64), np.uint64(0))
    tables = build_tables([False] * length, WINDOW)
    relevant = int((types < length).sum())
    state = new_state(tables, relevant, int(ids.max()) + 1)
    fresh_counters = state.counters.copy()
    end = np.empty(relevant, np.int64)
    empty = new_instances(0)
    output = new_output(tables, 1 << 16)
    buckets = np.zeros(1 << 16, np.int64)

    def kernel() -> int:
        nonlocal output
        rows, codes = select_coded(Coded(types, NO_NULLS, 0), codes_of_types, roles)
        _, keys = encode(new_keys([False]), [Numbers(ids, NO_NULLS, 0, False)], rows)
        end[:] = rows
        instances = empty._replace(start=end, end=end, key=keys, component=codes)
        state.head[:] = -1
        state.counters[:] = fresh_counters
        matches, position, status = 0, 0, Status.OUTPUT_FULL
        while status is Status.OUTPUT_FULL:
            status, position, _, output = scan(
                tables, state, instances, position, relevant, output, stop_when_full=True
            )
            matches += int(output.written[0])
            output.written[0] = 0
        return matches

    return kernel, lambda: int(hash_and_count(types, ids, length, buckets))


def kernel_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    rows, bars = [], []
    for ids, limit in zip(KEY_COUNTS, (0.2, 0.5, 0.6), strict=True):
        table = events_for(events, ids)
        kernel, yardstick = kernel_alone(table)
        expected = count_sequences(table, 3, WINDOW)
        assert kernel() == expected, (kernel(), expected)
        seconds = alternate({"kernel": kernel, "hash and count": yardstick}, runs)
        ratio = seconds["hash and count"] / seconds["kernel"]
        rows.append(
            [f"{ids:,}", f"{expected:,}", _rate(events, seconds["kernel"]), _rate(events, seconds["hash and count"])]
        )
        bars.append(Bar(f"kernel alone, {ids:,} keys, of hash and count", ratio, limit, at_least=True))
    return (["keys", "matches", "kernel, M events/s", "hash and count, M events/s"], rows), bars


# ── End to end ─────────────────────────────────────────────────────────────────────────────────────


def peer_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    rows, bars, over_loop = [], [], []
    questions = {
        "W1": (W1, peers.loop_w1, peers.DUCKDB_W1, peers.polars_w1),
        "W2": (W2, peers.loop_w2, peers.DUCKDB_W2, peers.polars_w2),
    }
    for text, *_ in questions.values():
        assert check_sample(text.format(window=WINDOW), WINDOW) > 0
    for ids in KEY_COUNTS:
        table = events_for(events, ids)
        tuples = peers.as_tuples(table)
        duck = peers.DuckDb(table)
        for name, (text, loop, duck_texts, polars) in questions.items():
            query = ouzel.query(text.format(window=WINDOW))
            contestants: dict[str, Callable[[], Any]] = {
                "ouzel": lambda q=query, t=table: ouzel.match(t, q),
                "loop": lambda f=loop, e=tuples: f(e, WINDOW),
                "polars": lambda f=polars, t=table: f(t, WINDOW),
            }
            best = _best_duck(duck, duck_texts)
            contestants["DuckDB"] = lambda d=duck, t=duck_texts[best]: d.ask(t, WINDOW)
            counts = {who: len(work()) for who, work in contestants.items()}
            assert len(set(counts.values())) == 1, f"{name}, {ids} ids: the answers differ: {counts}"
            if name == "W1":
                assert counts["ouzel"] == count_sequences(table, 3, WINDOW)
            seconds = alternate(contestants, runs)
            ratios = {who: taken / seconds["ouzel"] for who, taken in seconds.items()}
            over_loop.append(ratios["loop"])
            rows.append(
                [name, f"{ids:,}", f"{counts['ouzel']:,}"]
                + [f"{_rate(events, seconds[who])} ({ratios[who]:.1f}x)" for who in ("loop", "DuckDB", "polars")]
                + [_rate(events, seconds["ouzel"]), best]
            )
            bars.append(Bar(f"{name}, {ids:,} ids, over the Python loop", ratios["loop"], 4.0, at_least=True))
            limit = 1.5 if ids == 100 else 1.0
            bars.append(Bar(f"{name}, {ids:,} ids, over DuckDB", ratios["DuckDB"], limit, at_least=True))
    bars.append(Bar("median over the Python loop", statistics.median(over_loop), 5.0, at_least=True))
    headings = ["query", "ids", "matches", "loop, M events/s", "DuckDB", "polars", "Ouzel", "DuckDB's best"]
    return (headings, rows), bars


def _best_duck(duck: peers.DuckDb, texts: dict[str, str]) -> str:
    """The formulation that is fastest here, by one warm run each."""
    contestants = {name: (lambda t=text: duck.ask(t, WINDOW)) for name, text in texts.items()}
    seconds = alternate(contestants, 1)
    return min(seconds, key=seconds.__getitem__)


# ── Many matches ───────────────────────────────────────────────────────────────────────────────────

SHOP = "PATTERN SEQ(Shelf a, Shelf b, Exit c) WHERE [tag_id] WITHIN 12 hours"


def many_matches_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    """A day in a shop, without RETURN: each match has all columns of its three readings."""
    table = ouzel.datasets.shop_day(min(events, 1_000_000), seed=7).events
    tuples = peers.shop_tuples(table)
    query = ouzel.query(SHOP)
    window = 12 * 3600 * 1_000_000
    contestants: dict[str, Callable[[], Any]] = {
        "ouzel": lambda: ouzel.match(table, query),
        "loop": lambda: peers.loop_shop(tuples, window),
    }
    answer, expected = contestants["ouzel"](), contestants["loop"]()
    _check_shop(answer, expected)
    matches = len(expected)
    del answer, expected
    seconds = alternate(contestants, runs)
    gain = seconds.ratio("loop", "ouzel")
    per_match = [f"{seconds[who] / matches * 1e9:.0f}" for who in contestants]
    row = [f"{table.num_rows:,}", f"{matches:,}", *per_match, f"{gain:.1f}"]
    bar = Bar(f"{matches:,} matches of three events, over the Python loop", gain, 6.0, at_least=True)
    return (["events", "matches", "Ouzel, ns a match", "loop, ns a match", "gain"], [row]), [bar]


def _check_shop(answer: pa.Table, expected: list[tuple[Any, ...]]) -> None:
    """Both found the same readings."""
    columns = [f.name for f in answer.schema.field("a").type]
    found = answer.combine_chunks()
    parts = []
    for variable in "abc":
        fields = {name: pc.struct_field(found.column(variable), name) for name in columns}
        fields["ts"] = fields["ts"].cast(pa.int64())
        parts.append(list(zip(*(column.to_pylist() for column in fields.values()), strict=True)))
    # Equal readings may come in another order, and columns may be null.
    assert Counter(zip(*parts, strict=True)) == Counter(expected), "the matches differ"


# ── Growth ─────────────────────────────────────────────────────────────────────────────────────────


def growth_bars(events: int, runs: int) -> tuple[Table, list[Bar]]:
    """Time may grow with the number of matches, not with the length of the pattern or of the window."""
    rows, bars = [], []
    lengths = [(length, WINDOW, 100) for length in range(2, 7)]
    windows = [(length, window, 10_000) for window in (10_000, 40_000, 70_000, 100_000) for length in (2, 3)]
    for name, points in (("L", lengths), ("W", windows)):
        tables = {ids: events_for(events, ids) for ids in {ids for _, _, ids in points}}
        contestants: dict[str, Callable[[], Any]] = {}
        matches: dict[str, int] = {}
        for length, window, ids in points:
            label = f"L={length}, W={window:,}, {ids:,} ids"
            query = ouzel.query(sequence_query(length, window))
            contestants[label] = lambda q=query, t=tables[ids]: ouzel.match(t, q)
            matches[label] = count_sequences(tables[ids], length, window)
            assert contestants[label]().num_rows == matches[label], f"{label}: the count disagrees"
            assert check_sample(sequence_query(length, window), window, types=8, values=(2,)) > 0 or length > 4
        seconds = alternate(contestants, runs)
        densest = max(matches, key=matches.__getitem__)
        densest_shortest = next(
            k for (n, w, _), k in zip(points, contestants, strict=True) if n == 2 and f"W={w:,}," in densest
        )
        per_match = max(0.0, seconds[densest] - seconds[densest_shortest]) / matches[densest]
        for (length, window, _), label in zip(points, contestants, strict=True):
            shortest = next(k for (n, w, _), k in zip(points, contestants, strict=True) if n == 2 and w == window)
            allowed = seconds[shortest] + matches[label] * per_match
            ratio = seconds[label] / allowed
            rows.append([label, f"{matches[label]:,}", _rate(events, seconds[label]), f"{ratio:.2f}"])
            if length > 2:
                bars.append(Bar(f"growth with {name}: {label}", ratio, 1.5, at_least=False))
    return (["query", "matches", "M events/s", "of (time at L=2 + matches x cost)"], rows), bars


# ── Start-up ───────────────────────────────────────────────────────────────────────────────────────

_ONE_KERNEL = """
import numba, pyarrow
import numpy
from ouzel.kernels.order import first_disorder
first_disorder(numpy.arange(5))
"""
_ONE_QUERY = """
import pyarrow, pyarrow.ipc, sys
import ouzel
with pyarrow.ipc.open_file(sys.argv[1]) as file:
    events = file.read_all()
assert ouzel.match(events, "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN 100").num_rows == int(sys.argv[2])
"""


def start_bars(runs: int, file: str) -> tuple[Table, list[Bar]]:
    # A source tree gets what an installed package has.
    compileall.compile_dir(Path(ouzel.__file__).parent, quiet=1)
    table = sase_events(1_000, types=5, values=(7,), seed=3)
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    matches = str(count_sequences(table, 3, 100))
    programs: dict[str, Callable[[], float]] = {
        "import pyarrow": lambda: process_seconds("import pyarrow"),
        "import ouzel": lambda: process_seconds("import ouzel"),
        "import numba, pyarrow, load one kernel": lambda: process_seconds(_ONE_KERNEL),
        "answer a query over 1,000 events": lambda: process_seconds(_ONE_QUERY, file, matches),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for program in programs.values():
        program()
    for _ in range(runs):
        for name, program in programs.items():
            taken[name].append(program())
    seconds = {name: statistics.median(times) for name, times in taken.items()}
    bare, door, kernel, query = seconds.values()
    bars = [
        Bar("fresh process with a query, of one with a kernel", query / kernel, 2.0, at_least=False),
        Bar("import ouzel, of import pyarrow", door / bare, 1.5, at_least=False),
    ]
    return (["fresh process", "CPU seconds"], [[name, f"{spent:.3f}"] for name, spent in seconds.items()]), bars


# ── Snapshots ──────────────────────────────────────────────────────────────────────────────────────


def snapshot_bars(runs: int) -> tuple[Table, list[Bar]]:
    rows, bars = [], []
    # Windows of 100,000 events: all of them relevant, and as in the paper three types of twenty.
    for name, types, limit in (("100,000 relevant events", 3, 20.0), ("100,000 events, 15% relevant", 20, 20.0)):
        engine = ouzel.Engine(sequence_query(3, 100_000), max_delay=0)
        for first in range(0, 250_000, 25_000):
            engine.push(sase_events(25_000, types=types, values=(1_000,), first_time=first, seed=first))
        blob = engine.snapshot()
        following = sase_events(25_000, types=types, values=(1_000,), first_time=250_000, seed=1)
        assert ouzel.Engine.restore(blob).push(following)["query"].equals(engine.push(following)["query"])
        restored = ouzel.Engine.restore(blob)
        data = np.frombuffer(blob, np.uint8)
        seconds = alternate(
            {"snapshot": restored.snapshot, "restore": lambda b=blob: ouzel.Engine.restore(b), "copy": data.copy},
            2 * runs,
        )
        ratio = (seconds["snapshot"] + seconds["restore"]) / seconds["copy"]
        rows.append(
            [name, f"{restored.held_events:,}", f"{len(blob) / 1e6:.1f}"]
            + [f"{seconds[what] * 1e3:.2f}" for what in ("snapshot", "restore", "copy")]
        )
        bars.append(Bar(f"snapshot and restore of {name}, of a copy", ratio, limit, at_least=False))
    return (["window", "held events", "MB", "snapshot, ms", "restore, ms", "copy, ms"], rows), bars


def _rate(events: int, seconds: float) -> str:
    return f"{events / seconds / 1e6:.1f}"
