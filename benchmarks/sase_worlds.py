"""The workloads of SASE's section 5, and counts and answers that are had another way, to check every run by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit

import ouzel
from benchmarks.sase_generators import sase_events
from ouzel.prepared import as_queries
from ouzel.runtime.program import Program, make_program
from ouzel.runtime.session import Session
from tests.oracle import oracle
from tests.oracle.events import Event

WINDOW = 10_000
# The oracle tries every choice of events, so a sample is short and has few ids.
SAMPLE_EVENTS = 240
SAMPLE_IDS = 3
SAMPLE_WINDOW = 60

W1 = "PATTERN SEQ(E1 a, E2 b, E3 c) WHERE [attr1] WITHIN {window}"
W2 = "PATTERN SEQ(E1 a, !(E2 b), E3 c) WHERE [attr1] WITHIN {window}"


def sequence_query(length: int, window: int) -> str:
    """SEQ(E1, E2, …) with one equivalence test."""
    components = ", ".join(f"E{number} x{number}" for number in range(1, length + 1))
    return f"PATTERN SEQ({components}) WHERE [attr1] WITHIN {window}"


def check_sample(
    text: str, window: int, *, types: int = 5, values: tuple[int, ...] = (SAMPLE_IDS, 2, 4), **how: Any
) -> int:
    """Compare the engine with the oracle on a short stream; gives the number of matches they agree on."""
    text = text.replace(f"WITHIN {window}", f"WITHIN {SAMPLE_WINDOW}")
    table = sase_events(SAMPLE_EVENTS, types=types, values=values, seed=17)
    events = [Event(row["type"], row["ts"], row["ts"], row) for row in table.to_pylist()]
    ((_, expected),) = oracle.answer(text, events).items()
    found = run(text, table, **how).to_pylist()
    assert sorted(map(repr, found)) == sorted(repr(dict(result.row)) for result in expected), "the oracle disagrees"
    return len(found)


@dataclass(frozen=True, slots=True)
class Work:
    """What one run did, beside its matches."""

    matches: int
    statistics: dict[str, int]


def program_of(
    text: str, table: pa.Table, *, rules_off: tuple[str, ...] = (), hints: Mapping[str, str] | None = None
) -> Program:
    return make_program(as_queries(text), table.schema, time="ts", type="type", rules_off=rules_off, hints=hints)


def run(text: str, table: pa.Table, **how: Any) -> pa.Table:
    """As `ouzel.match`, with rules off or a given way for a second equivalence test."""
    session = Session(program_of(text, table, **how))
    session.push(table, zero_copy=True)
    return session.finish()["query"]


def work_of(text: str, table: pa.Table, **how: Any) -> Work:
    """What the kernel counted in one run."""
    session = Session(program_of(text, table, **how))
    session.push(table, zero_copy=True)
    answer = session.finish()["query"]
    return Work(answer.num_rows, session.statistics["query"])


def component_codes(table: pa.Table, length: int) -> np.ndarray:
    """0 for E1, 1 for E2, …, and -1 for every type that the query does not name."""
    encoded = table.column("type").combine_chunks().dictionary_encode()
    numbers = np.array([int(name[1:]) - 1 for name in encoded.dictionary.to_pylist()])
    codes = numbers[encoded.indices.to_numpy()]
    return np.where(codes < length, codes, -1).astype(np.int64)


def count_sequences(table: pa.Table, length: int, window: int) -> int:
    """How many matches SEQ(E1, …) with [attr1] has, without building any."""
    ids = table.column("attr1").to_numpy()
    return int(_count_sequences(component_codes(table, length), ids, length, window, int(ids.max()) + 1))


@njit(cache=True, nogil=True)
def _count_sequences(component: Any, key: Any, length: Any, window: Any, keys: Any) -> Any:
    """The event that leaves the window takes the sequences with it that it starts."""
    # runs[key, i, j]: sequences of live events that fill components i to j.
    runs = np.zeros((keys, length, length), np.int64)
    total = 0
    for event in range(component.size):
        oldest = event - window
        if oldest >= 0 and component[oldest] >= 0:
            i = component[oldest]
            run = runs[key[oldest]]
            run[i, i] -= 1
            for j in range(i + 1, length):
                run[i, j] -= run[i + 1, j]
        j = component[event]
        if j < 0:
            continue
        run = runs[key[event]]
        for i in range(j):
            run[i, j] += run[i, j - 1]
        if j == length - 1:
            total += run[0, j - 1] if j > 0 else 1
        run[j, j] += 1
    return total


def events_for(events: int, ids: int, seed: int = 0) -> pa.Table:
    """Twenty types, one attribute: what W1 and W2 read."""
    return sase_events(events, values=(ids,), seed=seed + ids)


def prepared(text: str) -> ouzel.Query:
    return ouzel.query(text)
