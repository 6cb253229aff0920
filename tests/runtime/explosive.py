"""Queries with far more matches or partial matches than there is memory for, and how much memory they take.

Run as a program, in a process of its own: `python -m tests.runtime.explosive LIMIT EVENTS QUERY …` prints a line for
each query: its name, how it ended, and by how many bytes the process grew at most.
"""

from __future__ import annotations

import ctypes
import json
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import ouzel

MODEL = ouzel.LossModel(0.2, gaps={name: ouzel.loss.Exponential(1e9) for name in ("b", "c")})


class Explosive(NamedTuple):
    """A query, and the events that make it explode: A with a random x and now and then a B."""

    query: Any
    every: int = 1_000  # so many A before a B
    at_once: int = 1  # so many events at each tick


def _closure(where: str, output: str = "", pattern: str = "A+ a[], B b") -> str:
    return f"PATTERN SEQ({pattern}) WHERE {where} WITHIN 10000000 RETURN R(b.x AS x) {output}"


_RISING = "a[i].x > a[i-1].x"
_NEXT = f"skip_till_next_match {{ {_RISING} }}"
_ANY = f"skip_till_any_match {{ {_RISING} }}"
_SUM = "skip_till_any_match { sum(a[..i-1].x) < 1000000000 }"
_LONG = "skip_till_any_match { a.LEN > 1000 }"
_ALL = "skip_till_any_match { a.x >= 0 }"
_STREAM = ouzel.algebra.stream

EXPLOSIVE = {
    # Stacks.
    "pairs": Explosive("PATTERN SEQ(A a, A b) WITHIN 10000000 RETURN R(b.x AS x)"),
    "pairs of two types": Explosive("PATTERN SEQ(A a, B b) WITHIN 10000000 RETURN R(b.x AS x)", every=2),
    "triples": Explosive("PATTERN SEQ(A a, A b, A c) WITHIN 10000000 RETURN R(b.x AS x)"),
    "pairs with a condition": Explosive("PATTERN SEQ(A a, A b) WHERE a.x < b.x WITHIN 10000000 RETURN R(b.x AS x)"),
    "pairs that wait": Explosive("PATTERN SEQ(A a, A b, !(C c)) WITHIN 10000000 RETURN R(b.x AS x)"),
    "pairs at few moments": Explosive("PATTERN SEQ(A a, A b) WITHIN 10000000 RETURN R(b.x AS x)", at_once=5_000),
    # Runs.
    "next match": Explosive(_closure(_NEXT)),
    "next match, no B": Explosive(_closure(_NEXT), every=1_000_000),
    "next match, few moments": Explosive(_closure(_NEXT), at_once=1_000),
    "next match, negation": Explosive(_closure(_NEXT, pattern="A+ a[], !(C c), B b")),
    "next match, waiting": Explosive(
        _closure(_NEXT.replace("a[i]", "b[i]").replace("a[i-1]", "b[i-1]"), pattern="A a, A+ b[], !(C c)").replace(
            "b.x", "a.x"
        )
    ),
    "next match, two closures": Explosive(_closure(_NEXT, pattern="A+ a[], A+ c[], B b")),
    "any match by runs": Explosive(_closure(_SUM)),
    "any match by runs, no B": Explosive(_closure(_SUM), every=1_000_000),
    "contiguous": Explosive(_closure("strict_contiguity { a.x >= 0 }", pattern="A+ a[], A b")),
    # The graph.
    "any match": Explosive(_closure(_ANY)),
    "any match, no condition": Explosive(_closure(_ALL)),
    "any match, last": Explosive("PATTERN SEQ(B b, A+ a[]) WITHIN 10000000 RETURN R(b.x AS x)"),
    "any match, few moments": Explosive(_closure(_ALL), at_once=1_000),
    # Forms of output.
    "compressed": Explosive(f"PATTERN SEQ(A+ a[], B b) WHERE {_RISING} WITHIN 10000000 OUTPUT COMPRESSED"),
    "compressed, many rows": Explosive("PATTERN SEQ(A+ a[], B b) WITHIN 10000000 OUTPUT COMPRESSED", every=2),
    "compressed, by runs": Explosive(
        f"PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match {{ {_RISING} }} WITHIN 10000000 OUTPUT COMPRESSED"
    ),
    "compressed, negation": Explosive(
        f"PATTERN SEQ(A+ a[], !(C c), B b) WHERE {_RISING} WITHIN 10000000 OUTPUT COMPRESSED"
    ),
    "non-overlapping": Explosive(_closure(_NEXT, "OUTPUT NON_OVERLAPPING"), every=1_000_000),
    "non-overlapping, any match": Explosive(_closure(_SUM, "OUTPUT NON_OVERLAPPING")),
    "first": Explosive(_closure(_NEXT, "OUTPUT FIRST"), every=10_000),
    "first, any match": Explosive(_closure(_ALL, "OUTPUT FIRST")),
    "skip to first": Explosive(_closure(_NEXT, "OUTPUT SKIP TO FIRST a"), every=10_000),
    "skip to last": Explosive(_closure(_ALL, "OUTPUT SKIP TO LAST a")),
    # Aggregates, those that build matches and those that do not.
    "built and counted": Explosive(
        "PATTERN SEQ(A a, A b, A c) WHERE a.x < c.x AGG COUNT WITHIN 10000000", every=1_000_000
    ),
    "built and summed": Explosive(f"PATTERN SEQ(A+ a[], B b) WHERE {_NEXT} AGG COUNT, SUM(b.x) WITHIN 10000000"),
    "counted": Explosive("PATTERN SEQ(A a, A b, A c) AGG COUNT AS DECIMAL WITHIN 10000000"),
    "counted by group": Explosive("PATTERN SEQ(A a, A b) GROUP BY a.x AGG COUNT WITHIN 10000000"),
    # Expressions, and streams that lose events.
    "next": Explosive(_STREAM("A").next(_STREAM("A"), "x.last < x AND DUR < 10000000")),
    "fold": Explosive(_STREAM("A").fold(_STREAM("A"), "x.last < x AND DUR < 10000000")),
    "next, no B": Explosive(_STREAM("A").next(_STREAM("B"), "DUR < 10000000"), every=1_000_000),
    "missing events": Explosive(
        "SEQUENCE (a, c, b) WHERE a.type = 'A' AND c.type = 'A' AND b.type = 'B' WITHIN 10000000 THRESHOLD 0.000000001"
    ),
}


def events_of(one: Explosive, count: int) -> pa.Table:
    number = np.arange(count)
    types = np.where(number % one.every == one.every - 1, "B", "A")
    x = np.random.default_rng(1).integers(0, 1_000_000, count)
    return pa.table({"type": types, "ts": number // one.at_once, "x": x})


def ends(one: Explosive, events: pa.Table, limit: int) -> str:
    """How a query ends: an error's name, or how many rows it gives."""
    limits = {"max_matches_per_timestamp": limit, "max_partial_matches": limit}
    options: dict[str, Any] = {"model": MODEL} if isinstance(one.query, str) and "SEQUENCE" in one.query else {}
    try:
        return f"{ouzel.match(events, one.query, limits=limits, **options).num_rows} rows"
    except ouzel.LimitError as error:
        assert "max_matches_per_timestamp=" in str(error) or "max_partial_matches=" in str(error), error
        return "LimitError"


def resident_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def main(limit: int, count: int, names: list[str]) -> None:
    for name in names:
        one = EXPLOSIVE[name]
        events = events_of(one, count)
        # The first run compiles and loads every kernel that the query reaches. Only the second one is measured.
        ends(one, events, limit)
        resource.setrlimit(resource.RLIMIT_AS, (resident_bytes("VmSize") + 4_000_000_000, -1))
        # Memory that earlier queries have freed goes back to the system, and the peak begins anew.
        pa.default_memory_pool().release_unused()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = resident_bytes("VmRSS")
        ended = ends(one, events, limit)
        print(json.dumps([name, ended, resident_bytes("VmHWM") - before]), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or list(EXPLOSIVE))
