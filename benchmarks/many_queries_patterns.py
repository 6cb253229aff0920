"""Pattern queries in a set against the same queries each in an engine of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks.many_queries_world import cpu_seconds
from benchmarks.measure import Bar
from ouzel.bind import BoundQuery, Catalog, bind, catalog_for
from ouzel.lang import parse
from ouzel.prepared import bind_all

Found = tuple[tuple[list[str], list[list[str]]], list[Bar]]

# The queries of a shape show their column under five different names.
SHAPES = (
    "SEQ(Stock a, Stock b) WHERE [name] AND a.price > 90 AND b.price > a.price WITHIN 50 RETURN R(a.price AS p{k})",
    "SEQ(Stock a, Order b) WHERE [name] AND a.price > 95 WITHIN 50 RETURN R(b.price AS p{k})",
    "SEQ(Stock a, Stock b, Order c) WHERE [name] AND a.price > 95 AND b.price < 20 WITHIN 80 RETURN R(c.price AS p{k})",
    "Stock a WHERE a.price > 99 WITHIN 5 RETURN R(a.name AS p{k})",
    "SEQ(Order a, !(Stock b), Order c) WHERE [name] AND a.price > 95 WITHIN 60 RETURN R(c.price AS p{k})",
    "SEQ(Order a, Stock+ b[], Order c) WHERE skip_till_next_match(a, b[], c) {{ [name] AND b[i].price > b[i-1].price "
    "AND a.price > 95 }} WITHIN 40 RETURN R(c.price AS p{k})",
    "SEQ(Order a, Order b) WHERE a.price > 99 AND b.price > 99 WITHIN 100 RETURN R(a.price AS p{k})",
    "SEQ(Stock a, Order b, Stock c, Order d) WHERE [name] AND a.price > 98 WITHIN 80 RETURN R(d.price AS p{k})",
    "SEQ(Stock a, Stock b) WHERE [name] AND a.price + b.price > 195 WITHIN 80 RETURN R(b.ts AS p{k})",
    "SEQ(Order a, Stock b, !(Order c)) WHERE [name] AND a.price > 97 AND b.price > 50 WITHIN 20 "
    "RETURN R(b.price AS p{k})",
)


def _shapes(count: int) -> list[str]:
    return ["PATTERN " + SHAPES[k % 10].format(k=k // 10 % 5) for k in range(count)]


def _thresholds(count: int) -> list[str]:
    text = (
        "PATTERN SEQ(Stock a, Order b) WHERE [name] AND a.price > {} AND b.price < {} WITHIN 50 RETURN R(a.price AS p)"
    )
    return [text.format(round(90 + 10 * k / count, 4), round(20 - 15 * k / count, 4)) for k in range(count)]


def _long_thresholds(count: int) -> list[str]:
    text = (
        "PATTERN SEQ(Stock a, Stock b, Order c) WHERE [name] AND a.price > {} AND c.price < {} WITHIN 50 "
        "RETURN R(a.price AS p)"
    )
    return [text.format(round(90 + 10 * k / count, 4), round(20 - 15 * k / count, 4)) for k in range(count)]


def _bound_one_by_one(texts: list[str], catalog: Catalog) -> list[BoundQuery]:
    made = []
    for number, text in enumerate(texts):
        tree = parse(text)
        # Checked when it is given, bound when the columns are known.
        bind(tree, text, Catalog())
        made.append(bind(tree, text, catalog, name=str(number)))
    return made


def _bound_by_shape(texts: list[str], catalog: Catalog) -> list[BoundQuery]:
    queries = {str(number): ouzel.query(text) for number, text in enumerate(texts)}
    return list(bind_all(queries, lambda _: catalog))


def binding(quick: bool) -> Found:
    """Texts that differ in constants only, parsed and bound each by itself and as users give them."""
    count = 1_000 if quick else 20_000
    catalog = catalog_for({name: {"name": "string", "price": "double"} for name in ("Stock", "Order")})
    rows, bars = [], []
    for title, made in (("two events", _thresholds), ("three events", _long_thresholds)):
        texts = made(count)
        alone, theirs = cpu_seconds(partial(_bound_one_by_one, texts, catalog))
        shared, ours = cpu_seconds(partial(_bound_by_shape, texts, catalog))
        assert ours == theirs, "queries of one shape are bound as each by itself"
        rows.append([title, f"{count:,}", f"{alone:.1f}", f"{shared:.1f}", f"{alone / shared:.1f}"])
        bars.append(Bar(f"{title}: each by itself / by shape", alone / shared, 7.0, True))
    return (["texts", "queries", "each by itself, s", "by shape, s", "factor"], rows), bars


KINDS: dict[str, Callable[[int], list[str]]] = {
    "ten patterns, with different RETURN": _shapes,
    "two events, with different thresholds": _thresholds,
    "three events, with different thresholds": _long_thresholds,
}


def _events(count: int) -> pa.Table:
    rng = np.random.default_rng(7)
    return pa.table(
        {
            "type": rng.choice(["Stock", "Order"], count),
            "ts": np.arange(count),
            "name": rng.choice([f"n{k}" for k in range(50)], count),
            "price": rng.random(count) * 100,
        }
    )


def _in_a_set(texts: Sequence[str], batches: Sequence[pa.Table]) -> tuple[float, int, ouzel.QuerySet]:
    held = ouzel.QuerySet(schema=batches[0].schema)
    for number, text in enumerate(texts):
        held.add(number, text)
    held.explain()  # builds the index
    seconds, found = cpu_seconds(
        lambda: (
            sum(table.num_rows for batch in batches for table in held.push(batch).values())
            + sum(table.num_rows for table in held.finish().values())
        )
    )
    return seconds, found, held


def _one_by_one(texts: Sequence[str], batches: Sequence[pa.Table]) -> tuple[float, int]:
    engines = [ouzel.Engine(text) for text in texts]

    def run() -> int:
        found = 0
        for engine in engines:
            found += sum(table.num_rows for batch in batches for table in engine.push(batch).values())
            found += sum(table.num_rows for table in engine.finish().values())
        return found

    return cpu_seconds(run)


def patterns(quick: bool) -> Found:
    """A thousand pattern queries, by how they differ."""
    count, events = (100, 2_000) if quick else (1_000, 4_000)
    table = _events(events)
    batches = [table.slice(start, 1_000) for start in range(0, events, 1_000)]
    rows = []
    for kind, make in KINDS.items():
        texts = make(count)
        _in_a_set(texts[:20], batches)
        _one_by_one(texts[:20], batches)
        seconds, found, held = _in_a_set(texts, batches)
        alone, same = _one_by_one(texts, batches)
        assert same == found, "a set answers as its queries one by one"
        merged = len(held) - held.statistics["alone"]
        micros = [1e6 * taken / events for taken in (seconds, alone)]
        cells = [f"{len(texts):,}", f"{merged:,}", f"{found:,}", *(f"{one:,.0f}" for one in micros)]
        rows.append([kind, *cells, f"{micros[1] / micros[0]:.1f}"])
    headings = ["queries that are", "queries", "of them merged", "answers", "in a set, µs an event"]
    return ([*headings, "one engine each, µs an event", "factor"], rows), []


def three_steps(quick: bool) -> Found:
    """Very many patterns of three events with different constants, against some of them one by one."""
    count, sample, events = (500, 50, 2_000) if quick else (10_000, 250, 4_000)
    table = _events(events)
    batches = [table.slice(start, 1_000) for start in range(0, events, 1_000)]
    texts = _long_thresholds(count)
    held = ouzel.QuerySet(schema=table.schema)
    adding, _ = cpu_seconds(lambda: held.add_table([{"id": k, "query": text} for k, text in enumerate(texts)]))
    building, _ = cpu_seconds(held.explain)
    found: dict[int, int] = {}

    def run() -> None:
        for answers in (*(held.push(batch) for batch in batches), held.finish()):
            for name, answer in answers.items():
                found[name] = found.get(name, 0) + answer.num_rows

    seconds, _ = cpu_seconds(run)
    chosen = range(0, count, count // sample)
    alone, same = _one_by_one([texts[k] for k in chosen], batches)
    assert same == sum(found.get(k, 0) for k in chosen), "a set answers as its queries one by one"
    alone *= count / len(chosen)
    assert held.statistics["alone"] == 0
    micros = [1e6 * taken / events for taken in (seconds, alone)]
    bars = [Bar(f"{count:,} patterns of three events: one by one to a set", micros[1] / micros[0], 20, at_least=True)]
    cells = [f"{count:,}", f"{sum(found.values()):,}", f"{adding:.1f}", f"{building:.1f}"]
    cells += [f"{one:,.0f}" for one in micros]
    headings = ["patterns", "answers", "adding, s", "building, s", "in a set, µs an event"]
    return ([*headings, "one engine each, µs an event", "factor"], [[*cells, f"{micros[1] / micros[0]:.1f}"]]), bars
