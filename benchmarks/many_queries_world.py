"""Hundreds of thousands of standing queries: the technical benchmark of the Cayuga paper (CESAR 5.1, 5.2).

Table 2 of the paper, and what it leaves open and is fixed here: one event a tick; the discrete attributes d0 to d3 are
integers below 100, the continuous ones c0 to c3 lie in [0, 1); a range is [low, low + selectivity] with 25 equally
spaced lows, the same for both ranges of a step; attributes are chosen by zipf_1, values and ranges of step i by
zipf_i; the primary attribute keeps its value in all three steps; the parameterized predicate of LinearDyn is c0 of the
step before against c0 of this one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from ouzel.algebra import Stream, step, stream
from ouzel.prepared import as_queries
from ouzel.runtime.input_binder import InputBinder
from ouzel.runtime.limits import limits_of
from ouzel.runtime.session import Session

DISCRETE = CONTINUOUS = 4
DOMAIN = 100
RANGES = 25
ZIPF = (1.0, 1.0, 0.8)
SELECTIVITY = 0.7
DURATION = 20
# At this exponent of the events' values 106 static predicates of 200,000 Filter queries match each event; the paper
# reports about 100. With uniform events it is 7.
EVENT_SKEW = 0.9
TEMPLATES = ("LinearStat", "LinearDyn", "Filter", "NonDeterministic", "NonDeterministicAgg")
NAMES = [f"d{k}" for k in range(DISCRETE)] + [f"c{k}" for k in range(CONTINUOUS)]


def zipf(rng: np.random.Generator, size: int, domain: int, exponent: float) -> np.ndarray:
    """Ranks from 0 on, rank r with a weight of 1 / (r + 1) ** exponent."""
    weights = 1.0 / np.arange(1, domain + 1) ** exponent
    return np.searchsorted(np.cumsum(weights) / weights.sum(), rng.random(size)).astype(np.int64)


def events(count: int, seed: int = 7, skew: float = 0.0) -> pa.Table:
    """Uniform events; with a skew, discrete values follow a Zipf distribution, as the constants of queries do."""
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {"ts": np.arange(count, dtype=np.int64)}
    for k in range(DISCRETE):
        columns[f"d{k}"] = zipf(rng, count, DOMAIN, skew) if skew else rng.integers(0, DOMAIN, count)
    for k in range(CONTINUOUS):
        columns[f"c{k}"] = rng.random(count)
    return pa.table(columns)


def parameters(
    count: int, seed: int = 11, zipf_1: float = ZIPF[0], selectivity: float = SELECTIVITY
) -> tuple[pa.Table, int]:
    """One row a query, null where a query makes no test; and how many constants there are."""
    rng = np.random.default_rng(seed)
    columns: dict[str, pa.Array] = {"id": pa.array(np.arange(count))}
    exponents = (zipf_1, *ZIPF[1:])
    primary = zipf(rng, count, DISCRETE, zipf_1)
    primary_value = zipf(rng, count, DOMAIN, exponents[0])
    for k in range(DISCRETE):
        columns[f"p{k}"] = pa.array(primary_value, mask=primary != k)
    constants = count
    for number, exponent in enumerate(exponents, start=1):
        other = (primary + 1 + zipf(rng, count, DISCRETE - 1, zipf_1)) % DISCRETE
        value = zipf(rng, count, DOMAIN, exponent)
        for k in range(DISCRETE):
            chosen = np.where(primary == k, primary_value, value)
            columns[f"e{number}{k}"] = pa.array(chosen, mask=(primary != k) & (other != k))
        first = zipf(rng, count, CONTINUOUS, zipf_1)
        second = (first + 1 + zipf(rng, count, CONTINUOUS - 1, zipf_1)) % CONTINUOUS
        low_of_both = zipf(rng, count, RANGES, exponent) / (RANGES - 1) * (1 - selectivity)
        for k in range(CONTINUOUS):
            low = low_of_both
            mask = (first != k) & (second != k)
            columns[f"l{number}{k}"] = pa.array(low, mask=mask)
            columns[f"h{number}{k}"] = pa.array(low + selectivity, mask=mask)
        constants += 6 * count
    return pa.table(columns), constants


def _renamed(number: int) -> Stream:
    return stream().rename({name: f"{name}_{number}" for name in NAMES})


def _tests(number: int) -> str:
    """θ_i: two equalities and two ranges, of which each query says which."""
    tests = [f"(:e{number}{k} IS NULL OR d{k}_{number} = :e{number}{k})" for k in range(DISCRETE)]
    tests += [
        f"(:l{number}{k} IS NULL OR c{k}_{number} BETWEEN :l{number}{k} AND :h{number}{k})" for k in range(CONTINUOUS)
    ]
    return " AND ".join(tests)


def _primary(number: int) -> str:
    return " AND ".join(f"(:p{k} IS NULL OR d{k}_{number} = :p{k})" for k in range(DISCRETE))


def template(name: str) -> Stream:
    """One of the five templates of the paper's section 5.1."""
    first, second, third = _renamed(1).select(_tests(1)), _renamed(2), _renamed(3)
    if name in ("LinearStat", "LinearDyn"):
        dynamic = [f" AND c0_{n} > c0_{n - 1}" if name == "LinearDyn" else "" for n in (2, 3)]
        return first.next(second).select(_tests(2) + dynamic[0]).next(third).select(_tests(3) + dynamic[1])
    theta = [f"DUR <= {DURATION} AND {_primary(n)}" for n in (2, 3)]
    if name == "Filter":
        return first.next(second, theta[0]).select(_tests(2)).next(third, theta[1]).select(_tests(3))
    if name == "NonDeterministicAgg":
        sums = [" + ".join(f"c{k}_{n}" for k in range(CONTINUOUS)) for n in (1, 2, 3)]
        first = first.extend(total=sums[0])
        two = first.fold(second, theta[0], step()).select(_tests(2)).extend(total=f"total + {sums[1]}")
        return two.fold(third, theta[1], step()).select(_tests(3)).extend(total=f"total + {sums[2]}")
    return first.fold(second, theta[0]).select(_tests(2)).fold(third, theta[1]).select(_tests(3))


def query_set(name: str, table: pa.Table, schema: pa.Schema, **options: Any) -> ouzel.QuerySet:
    held = ouzel.QuerySet(time="ts", type=None, bounded=True, schema=schema, **options)
    held.add_template(name, template(name), table)
    held.explain()  # builds the index
    return held


def cpu_seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    answer = work()
    return time.process_time() - begin, answer


def read(held: ouzel.QuerySet, table: pa.Table, batch: int = 10_000) -> tuple[float, int]:
    """CPU seconds an event after a warm-up on the first fifth, and how many answers there were in all."""
    warm = table.num_rows // 5
    found = sum(part.num_rows for part in held.push(table.slice(0, warm)).values())
    begin = time.process_time()
    for start in range(warm, table.num_rows, batch):
        found += sum(part.num_rows for part in held.push(table.slice(start, batch)).values())
    found += sum(part.num_rows for part in held.finish().values())
    return (time.process_time() - begin) / (table.num_rows - warm), found


def affected(table: pa.Table, expression: Stream) -> float:
    """How many instances an event affects, in all automata of one expression."""
    binder = InputBinder(as_queries(expression), time="ts", type="type", limits=limits_of(None))
    events = binder.table(table)
    session = Session(binder.program)
    session.push(events, zero_copy=True)
    session.finish()
    (counted,) = session.statistics.values()
    return counted["instances_read"] / table.num_rows


def constants_of(table: pa.Table) -> np.ndarray:
    """What all queries say, as one array of numbers."""
    columns = [table.column(name).drop_null().to_numpy() for name in table.column_names if name != "id"]
    return np.concatenate(columns).astype(np.float64)


def prices(window: int, seed: int = 20) -> pa.Table:
    """112,635 daily prices of 24 symbols, each a running average of a random walk over some days."""
    rng = np.random.default_rng(seed)
    days = 112_635 // 24 + 1
    # Volatile enough for stretches of 20% that the pattern asks for.
    walks = 50 * np.exp(np.cumsum(rng.normal(0, 0.08, (24, days + window - 1)), axis=1))
    smooth = np.stack([np.convolve(walk, np.ones(window) / window, mode="valid") for walk in walks])
    day, symbol = np.divmod(np.arange(112_635), 24)
    return pa.table(
        {
            "ts": day,
            "type": pa.array(["Stock"] * len(day)),
            "name": pa.array([f"S{k}" for k in range(24)]).take(pa.array(symbol)),
            "price": smooth[symbol, day],
        }
    )
