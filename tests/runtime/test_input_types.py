"""Every Arrow type in every role and every encoding: the oracle's answer, or one clear error. Nothing raw."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import InputError, QueryError
from tests.oracle import oracle
from tests.oracle.events import Event
from tests.runtime.dressing import ENCODINGS, VALUES, array_of, plain

pytestmark = pytest.mark.compiled

# Simultaneous events stand in the order of x, and one of each type has none. The number of a value in VALUES, or None.
TYPES = ["A", "A", "B", "A", "B", "B", "A", "B", "B", "A", "B"]
TIMES = [1, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7]
CHOICES = [0, 1, 0, 2, 1, None, None, 3, 2, 3, 0]

PAIR = "PATTERN SEQ(A a, B b)"
MANY = "PATTERN SEQ(A+ a[], B b)"
NUMBERS = "RETURN R(a.n AS an, b.n AS bn)"
# Queries by the role that x has in them.
ROLES = {
    "key": f"{PAIR} WHERE [x] WITHIN 100 {NUMBERS}",
    "key, all columns": f"{PAIR} WHERE [x] WITHIN 100",
    "key of two": f"{PAIR} WHERE [x, m] WITHIN 100 {NUMBERS}",
    "key with negation": f"PATTERN SEQ(A a, !(B c), B b) WHERE [x] WITHIN 100 {NUMBERS}",
    "key of runs": f"{MANY} WHERE skip_till_next_match(a, b) {{ [x] }} WITHIN 100",
    "key of contiguity": f"{PAIR} WHERE partition_contiguity(a, b) {{ [x] }} WITHIN 100 {NUMBERS}",
    "equality": f"{PAIR} WHERE a.x = b.x WITHIN 100 {NUMBERS}",
    "order": f"{PAIR} WHERE a.x < b.x WITHIN 100 {NUMBERS}",
    "order of neighbours": f"{MANY} WHERE a[i].x >= a[i-1].x WITHIN 100 RETURN R(a.n AS an, b.n AS bn)",
    "condition": f"{PAIR} WHERE a.x = a.x AND b.x IS NOT NULL WITHIN 100 {NUMBERS}",
    "null": f"{PAIR} WHERE a.x IS NULL WITHIN 100 {NUMBERS}",
    "return": f"{PAIR} WITHIN 3 RETURN R(a.x AS ax, b.x AS bx)",
    "return of many": f"{MANY} WITHIN 4 RETURN R(a.x AS every, a[1].x AS one, b.x AS bx)",
    "first and last": f"{MANY} WITHIN 4 RETURN R(first(a[].x) AS f, last(a[].x) AS l, count(a[].x) AS c)",
    "least": f"{MANY} WITHIN 4 RETURN R(min(a[].x) AS least, max(a[].x) AS most, b.n AS bn)",
    "all columns": f"{PAIR} WITHIN 3",
    "all columns of many": f"{MANY} WITHIN 4",
    "ties": f"{PAIR} WHERE strict_contiguity(a, b) {{ a.n >= 0 }} WITHIN 100 RETURN R(a.x AS ax, b.x AS bx, a.n AS an)",
    "ties, all columns": f"{PAIR} WITHIN 3 EVENTS",
    "forms": f"{PAIR} WHERE skip_till_any_match(a, b) {{ [x] }} WITHIN 100 OUTPUT FIRST",
    "compressed": f"{PAIR} WHERE [x] WITHIN 100 OUTPUT COMPRESSED",
    "group": f"{PAIR} GROUP BY x AGG COUNT WITHIN 100",
    "group of an event": f"{PAIR} GROUP BY a.x AGG COUNT WITHIN 100",
    "group of two": f"{PAIR} GROUP BY a.x, b.m AGG COUNT WITHIN 100",
    "group of matches": f"{PAIR} WHERE a.n != b.n GROUP BY x AGG COUNT WITHIN 100",
    "group of an event of matches": "PATTERN SEQ(A a, A c, B b) WHERE a.n < b.n GROUP BY a.x AGG COUNT WITHIN 100",
    "counted": f"{PAIR} AGG COUNT(a.x) WITHIN 100",
    "counted in matches": "PATTERN SEQ(A a, A c, B b) WHERE a.n < b.n AGG COUNT(a.x) WITHIN 100",
    "extremes": f"{PAIR} AGG MIN(a.x), MAX(b.x) WITHIN 100",
    "extremes of matches": "PATTERN SEQ(A a, A c, B b) WHERE a.n < b.n AGG MIN(a.x), MAX(b.x) WITHIN 100",
    "sum": f"{PAIR} AGG SUM(a.x), AVG(b.x) WITHIN 2",
    "sum of matches": f"{MANY} WHERE a[i].n > a[i-1].n AGG SUM(a.x), AVG(a.x) WITHIN 2",
}
COMPARED = {
    "key", "key, all columns", "key of two", "key with negation", "key of runs", "key of contiguity", "equality",
    "order", "order of neighbours", "condition", "forms", "compressed", "group", "group of an event", "group of two",
    "group of matches", "group of an event of matches", "extremes", "extremes of matches", "least",
}  # fmt: skip
ORDERED = {"order", "order of neighbours", "least", "extremes", "extremes of matches"}
ADDED = {"sum", "sum of matches"}
# Nothing is computed here, so that integers beyond 64 bits are no matter.
CARRIED = {"equality", "return", "return of many", "all columns", "all columns of many", "ties", "ties, all columns"}
WIDE = ("decimal of 30 digits", "decimal of 60 digits")


def events(kind: str) -> pa.Table:
    """The stream with x of a type."""
    type_, values = VALUES[kind]
    chosen = [
        values[0] if pa.types.is_union(type_) and c is None else None if c is None else values[c] for c in CHOICES
    ]
    numbers = list(range(len(TYPES)))
    return pa.table(
        {"type": TYPES, "ts": TIMES, "n": numbers, "m": [n % 2 for n in numbers], "x": array_of(chosen, type_)}
    )


def dressed(table: pa.Table, encoding: str, seed: int = 0) -> pa.Table:
    given = table["x"]
    # pyarrow cannot make an empty union out of no chunks.
    whole = given.chunk(0) if given.num_chunks == 1 else given.combine_chunks()
    column = ENCODINGS[encoding](whole, random.Random(seed))
    return table.set_column(table.column_names.index("x"), "x", column)


def expected(table: pa.Table, text: str) -> Counter[str]:
    found = [{**row, "x": for_oracle(row["x"])} for row in table.to_pylist()]
    stream = [Event(row["type"], row["ts"], row["ts"], row) for row in found]
    ((_, results),) = oracle.answer(text, stream, ticks_per_second=None).items()
    return counted(result.row for result in results)


def for_oracle(value: Any) -> Any:
    """Python's own values, where pyarrow gives those of numpy and pandas."""
    if isinstance(value, list):
        return [for_oracle(part) for part in value]
    if isinstance(value, np.floating):
        return float(value)
    if hasattr(value, "to_pydatetime"):
        return value.to_pydatetime(warn=False)
    return value.to_pytimedelta() if hasattr(value, "to_pytimedelta") else value


def counted(rows: Any) -> Counter[str]:
    return Counter(repr(plain({name: row[name] for name in row if name != "graph"})) for row in rows)


def matched(table: pa.Table, text: str) -> Counter[str]:
    return counted(ouzel.match(table, text).to_pylist())


def pushed(table: pa.Table, text: str, encoding: str) -> Counter[str]:
    """In several pushes, each dressed by itself, and restored from a snapshot in between."""
    engine = ouzel.Engine(text)
    rows: list[Any] = []
    first = 0
    for size in (2, 1, 0, 4, 4):
        piece = table.slice(first, size)
        first += size
        rows += engine.push(dressed(piece, encoding, seed=first))["query"].to_pylist()
        if size == 1:
            engine = ouzel.Engine.restore(engine.snapshot())
    return counted([*rows, *engine.finish()["query"].to_pylist()])


def verdict(answer: Any, *arguments: Any) -> Counter[str] | str:
    """An answer, or the name of the error that speaks to users. Any other error is a fault."""
    try:
        found: Counter[str] = answer(*arguments)
    except (InputError, QueryError) as error:
        assert "pyarrow" not in str(error) and "Arrow" not in str(error).replace("Arrow schema", ""), error
        return type(error).__name__
    return found


def refused(kind: str, role: str) -> str | None:
    """The error with which a role is refused to a type; None where it has an answer."""
    type_ = VALUES[kind][0]
    is_number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    is_text = (
        pa.types.is_binary(type_)
        or pa.types.is_string(type_)
        or kind.startswith(("large_s", "large_b", "fixed_size_b"))
    )
    is_time = pa.types.is_timestamp(type_) or pa.types.is_date(type_) or pa.types.is_duration(type_)
    if kind == "null":
        return "QueryError" if role == "order of neighbours" else None
    if role in ADDED and (not is_number or kind in WIDE):
        return "QueryError"
    if pa.types.is_boolean(type_):
        return "QueryError" if role in ORDERED else None
    if not (is_number or is_text or is_time) or kind in WIDE:
        return "QueryError" if role in COMPARED else None
    return "InputError" if kind == "uint64 above 2^63" and role not in CARRIED else None


def check(kind: str, role: str, encodings: list[str]) -> None:
    table, text = events(kind), ROLES[role]
    right = refused(kind, role) or expected(table, text)
    for encoding in encodings:
        assert verdict(matched, dressed(table, encoding), text) == right, f"{kind}, {encoding}: {text}"
        assert verdict(pushed, table, text, encoding) == right, f"{kind}, {encoding}, pushed: {text}"


ALL = list(ENCODINGS)


@pytest.mark.parametrize("kind", VALUES)
def test_a_type_in_every_role(kind: str) -> None:
    # Every encoding of every type, and every role of every type, but not all of both.
    for number, role in enumerate(ROLES):
        check(kind, role, [ALL[(number + list(VALUES).index(kind)) % len(ALL)]])


@pytest.mark.long
@pytest.mark.parametrize("kind", VALUES)
def test_a_type_in_every_role_and_encoding(kind: str) -> None:
    for role in ROLES:
        check(kind, role, ALL)


@pytest.mark.parametrize("kind", VALUES)
def test_a_set_of_queries(kind: str) -> None:
    """The door of a set is the same one."""
    table, roles = events(kind), ("key", "return", "group")
    for role, encoding in zip(roles, ("dictionary", "chunked dictionaries", "run ends"), strict=True):
        right = refused(kind, role) or expected(table, ROLES[role])
        assert verdict(of_set, dressed(table, encoding), ROLES[role]) == right, f"{kind}, {encoding}: {role}"


def of_set(table: pa.Table, text: str) -> Counter[str]:
    held = ouzel.QuerySet()
    held.add("q", text)
    answers = [held.push(table.slice(0, 5)), held.push(table.slice(5)), held.finish()]
    rows = [row for answer in answers for found in answer.values() for row in found.to_pylist()]
    return counted({name: row[name] for name in row if name != "query"} for row in rows)


@pytest.mark.parametrize("kind", VALUES)
def test_inputs_by_type_that_are_encoded_differently(kind: str) -> None:
    table = events(kind)
    for number, role in enumerate(("key", "return", "return of many")):
        parts = {}
        for place, name in enumerate("AB"):
            own = table.filter(pa.compute.equal(table["type"], name)).drop_columns(["type"])
            parts[name] = dressed(own, ALL[(number + 5 * place) % len(ALL)])
        right = refused(kind, role) or expected(table, ROLES[role])
        assert verdict(matched, parts, ROLES[role]) == right, f"{kind}: {role}"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_types_in_every_encoding(encoding: str) -> None:
    table = events("int64")
    for kind in (pa.string(), pa.large_string()):
        column = ENCODINGS[encoding](pa.array([*TYPES[:-1], None], kind), random.Random(1))
        for role in ("key", "all columns", "return of many", "group"):
            known = table.set_column(0, "type", pa.array([*TYPES[:-1], None]))
            assert matched(table.set_column(0, "type", column), ROLES[role]) == expected(known, ROLES[role])


@pytest.mark.parametrize("kind", VALUES)
def test_a_type_column_of_another_type(kind: str) -> None:
    """It holds no type that the query names, or cannot be one."""
    for encoding in ("plain", "dictionary", "view"):
        table = dressed(events(kind), encoding).drop_columns(["type"]).rename_columns(["ts", "n", "m", "type"])
        assert verdict(matched, table, ROLES["key"].replace("[x]", "[m]")) in (Counter(), "InputError"), encoding


TIMES_OF = {
    **{str(kind): pa.array(TIMES, kind) for kind in (pa.int8(), pa.uint16(), pa.int32(), pa.int64(), pa.uint64())},
    **{
        f"timestamp {unit} {zone}": pa.array([dt.datetime(2024, 1, 1, 0, t) for t in TIMES], pa.timestamp(unit, zone))
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Asia/Tokyo")
    },
    "date32": pa.array([dt.date(2024, 1, t) for t in TIMES], pa.date32()),
    "date64": pa.array([dt.date(2024, 1, t) for t in TIMES], pa.date64()),
    "string": pa.array([f"2024-01-01 00:0{t}:00" for t in TIMES]),
    "large_string": pa.array([f"2024-01-01T00:0{t}:00Z" for t in TIMES], pa.large_string()),
}


@pytest.mark.parametrize("kind", TIMES_OF)
def test_times_in_every_encoding(kind: str) -> None:
    table, text = events("int64"), "PATTERN SEQ(A a, B b) RETURN R(a.n AS an, b.n AS bn)"
    right = Counter((row["an"], row["bn"]) for row in ouzel.match(table, text).to_pylist())
    for encoding, dress in ENCODINGS.items():
        found = ouzel.match(table.set_column(1, "ts", dress(TIMES_OF[kind], random.Random(1))), text).to_pylist()
        assert Counter((row["an"], row["bn"]) for row in found) == right, encoding


@pytest.mark.parametrize("kind", [kind for kind in VALUES if not kind.startswith(("int", "uint", "timestamp", "date"))])
def test_a_time_column_of_another_type(kind: str) -> None:
    for encoding in ("plain", "dictionary", "view", "run ends"):
        table = dressed(events(kind), encoding).drop_columns(["ts"]).rename_columns(["type", "n", "m", "ts"])
        assert verdict(matched, table, ROLES["key"].replace("[x]", "[m]")) == "InputError"


def test_an_unread_column_of_any_type_is_no_matter() -> None:
    table = events("int64")
    for kind in VALUES:
        wider = table.append_column("other", events(kind)["x"])
        assert matched(wider, ROLES["key"]) == expected(table, ROLES["key"])


def test_more_values_than_small_indexes_number() -> None:
    """Dictionaries of different batches are joined, and may have more values together than each of them may have."""
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) WHERE [x] WITHIN 10000 RETURN R(a.x AS x)")
    found: list[Any] = []
    for first in range(0, 1000, 100):
        names = pa.array([f"x{n}" for n in range(first, first + 100)] * 2).dictionary_encode()
        small = pa.DictionaryArray.from_arrays(names.indices.cast(pa.int8()), names.dictionary)
        times = pa.array(range(2 * first, 2 * first + 200))
        found += engine.push(pa.table({"type": ["A"] * 100 + ["B"] * 100, "ts": times, "x": small}))[
            "query"
        ].to_pylist()
    found += engine.finish()["query"].to_pylist()
    assert sorted(row["x"] for row in found) == sorted(f"x{n}" for n in range(1000))


def test_a_plain_column_is_not_copied() -> None:
    from ouzel.runtime.values import plain_table

    table = pa.table({"x": [1, 2], "s": ["u", "v"], "d": pa.array(["u", "u"]).dictionary_encode()})
    made = plain_table(table)
    for name in table.column_names:
        assert made[name].chunk(0).buffers()[1].address == table[name].chunk(0).buffers()[1].address
