"""Columns of every Arrow type, dressed in every encoding that Arrow has for them.

An encoding changes how a column is stored and never what it says, so it may not change an answer.
"""

from __future__ import annotations

import datetime as dt
import math
import random
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

NAN, INF = float("nan"), float("inf")
DAY = dt.date(2024, 2, 29)
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 15)
LATER = dt.datetime(2031, 7, 1, 0, 0, 1)
UTC = dt.UTC

# Four values of every type. The first two differ, and so does the third from both; the fourth is an odd one.
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "null": (pa.null(), [None, None, None, None]),
    "bool": (pa.bool_(), [True, False, True, None]),
    **{str(kind): (kind, [1, 2, 3, 100]) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16())},
    "uint32": (pa.uint32(), [1, 2, 3, 2**32 - 1]),
    "int64": (pa.int64(), [1, -2, 2**63 - 1, -(2**63)]),
    "uint64": (pa.uint64(), [1, 2, 3, 2**63 - 1]),
    "uint64 above 2^63": (pa.uint64(), [1, 2**63, 2**64 - 1, 0]),
    "float16": (pa.float16(), [*map(np.float16, (1.5, -0.0, 0.0, NAN))]),
    "float32": (pa.float32(), [1.5, NAN, -0.0, INF]),
    "float64": (pa.float64(), [0.1, 0.0, -0.0, NAN]),
    "decimal32": (pa.decimal32(5, 2), [Decimal("1.50"), Decimal("-2.25"), Decimal("1.51"), Decimal("999.99")]),
    "decimal64": (pa.decimal64(12, 2), [Decimal("1.50"), Decimal("-2.25"), Decimal("1.51"), Decimal("9" * 10)]),
    "decimal128": (pa.decimal128(18, 3), [Decimal("1.5"), Decimal("-2.25"), Decimal("1.501"), Decimal("9" * 15)]),
    "decimal256": (pa.decimal256(18, 3), [Decimal("1.5"), Decimal("-2.25"), Decimal("1.501"), Decimal("9" * 15)]),
    "decimal of negative scale": (pa.decimal128(5, -2), [Decimal(v) for v in (1200, 1300, -100, 9999900)]),
    "decimal of 30 digits": (pa.decimal128(30, 2), [Decimal("1.5"), Decimal("2.5"), Decimal("9" * 28), Decimal(0)]),
    "decimal of 60 digits": (pa.decimal256(60, 2), [Decimal("1.5"), Decimal("2.5"), Decimal("9" * 58), Decimal(0)]),
    "string": (pa.string(), ["u", "v", "é", ""]),
    "large_string": (pa.large_string(), ["u", "v", "é", ""]),
    "binary": (pa.binary(), [b"u", b"v", b"\xff", b""]),
    "large_binary": (pa.large_binary(), [b"u", b"v", b"\xff", b""]),
    "fixed_size_binary": (pa.binary(2), [b"uu", b"vv", b"\xff\xff", b"\x00\x00"]),
    "date32": (pa.date32(), [DAY, dt.date(1969, 12, 31), dt.date(2024, 3, 1), dt.date(1970, 1, 1)]),
    "date64": (pa.date64(), [DAY, dt.date(1969, 12, 31), dt.date(2024, 3, 1), dt.date(1970, 1, 1)]),
    "time32": (pa.time32("s"), [dt.time(1), dt.time(2), dt.time(23, 59, 59), dt.time(0)]),
    "time64": (pa.time64("us"), [dt.time(1), dt.time(2), dt.time(23, 59, 59, 999_999), dt.time(0)]),
    **{
        f"timestamp {unit}{' with a zone' * bool(zone)}": (
            pa.timestamp(unit, zone),
            [t.replace(tzinfo=UTC if zone else None) for t in (MOMENT, LATER, dt.datetime(1969, 1, 1), MOMENT)],
        )
        for unit in ("s", "ms", "us", "ns")
        for zone in (None, "Europe/Berlin")
    },
    **{
        f"duration {unit}": (pa.duration(unit), [dt.timedelta(s) for s in (1, 2, -1, 0)])
        for unit in ("s", "ms", "us", "ns")
    },
    "interval": (pa.month_day_nano_interval(), [pa.MonthDayNano([m, 2, 3]) for m in (1, 2, 3, 0)]),
    "list": (pa.list_(pa.int16()), [[1, 2], [], [None], [1]]),
    "large_list": (pa.large_list(pa.string()), [["u", "v"], [], [None], ["u"]]),
    "fixed_size_list": (pa.list_(pa.float16(), 2), [[*map(np.float16, v)] for v in ((1, 2), (2, 3), (NAN, 1), (0, 0))]),
    "list of lists": (pa.list_(pa.list_(pa.string())), [[["u"], None], [], [[]], None]),
    "struct": (pa.struct({"p": pa.int8(), "q": pa.string()}), [{"p": p, "q": q} for p, q in ((1, "u"), (2, None))] * 2),
    "map": (pa.map_(pa.string(), pa.int32()), [[("u", 1)], [], [("v", None)], [("u", 2), ("v", 1)]]),
    "dense union": (pa.dense_union([pa.field("n", pa.int32()), pa.field("s", pa.string())]), [1, "u", 2, "v"]),
    "sparse union": (pa.sparse_union([pa.field("n", pa.int32()), pa.field("s", pa.string())]), [1, "u", 2, "v"]),
    "uuid": (pa.uuid(), [uuid.UUID(int=n) for n in (1, 2, 3, 2**127)]),
    "json": (pa.json_(), ["1", '{"u": 2}', "[]", ""]),
    "bool8": (pa.bool8(), [True, False, True, False]),
}


def array_of(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Python values as an Arrow array, of the types too that `pyarrow.array` does not make."""
    if pa.types.is_union(kind):
        codes = pa.array([int(isinstance(value, str)) for value in values], pa.int8())
        sides = [[v for v in values if not isinstance(v, str)], [v for v in values if isinstance(v, str)]]
        names = [kind.field(0).name, kind.field(1).name]
        if kind.mode == "sparse":
            sides = [
                [None if isinstance(v, str) else v for v in values],
                [v if isinstance(v, str) else None for v in values],
            ]
            return pa.UnionArray.from_sparse(
                codes, [pa.array(s, kind.field(i).type) for i, s in enumerate(sides)], names
            )
        places = [sum(isinstance(w, str) == isinstance(v, str) for w in values[:i]) for i, v in enumerate(values)]
        children = [pa.array(side, kind.field(i).type) for i, side in enumerate(sides)]
        return pa.UnionArray.from_dense(codes, pa.array(places, pa.int32()), children, names)
    if isinstance(kind, pa.BaseExtensionType):
        stored = [v.bytes if isinstance(v, uuid.UUID) else int(v) if isinstance(v, bool) else v for v in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(stored, kind.storage_type))
    return pa.array(values, kind)


# ── Encodings ──────────────────────────────────────────────────────────────────────────────────────

Dress = Callable[[pa.Array, random.Random], "pa.Array | pa.ChunkedArray"]
INDEX_TYPES = (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64())


def sliced(array: pa.Array, rng: random.Random) -> pa.Array:
    """The same values in the middle of a longer array."""
    before, after = rng.randint(1, 9), rng.randint(1, 3)
    extra = array.take(pa.array([rng.randrange(len(array)) for _ in range(before + after)])) if len(array) else array
    return pa.concat_arrays([extra.slice(0, before), array, extra.slice(before)]).slice(before, len(array))


def chunked(array: pa.Array, rng: random.Random) -> pa.ChunkedArray:
    """In chunks, some of them empty."""
    cuts = sorted(rng.randint(0, len(array)) for _ in range(3))
    pieces = [array.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(array)], strict=True)]
    return pa.chunked_array([array.slice(0, 0), *pieces], array.type)


def coded(array: pa.Array, rng: random.Random) -> pa.Array:
    """Dictionary-encoded, with values that are not used, values that occur twice, and nulls of both kinds."""
    if not len(array):
        return pa.DictionaryArray.from_arrays(pa.array([], pa.int8()), array)
    rows = list(range(len(array))) + [rng.randrange(len(array)) for _ in range(rng.randint(0, 3))]
    rng.shuffle(rows)
    if array.null_count < len(array) and rng.random() < 0.5:
        rows = [row for row in rows if array[row].is_valid]
    place = {row: number for number, row in enumerate(rows)}
    in_indices = rng.random() < 0.5
    places = [
        None if array[row].as_py() is None and (in_indices or row not in place) else place[row]
        for row in range(len(array))
    ]
    return pa.DictionaryArray.from_arrays(pa.array(places, rng.choice(INDEX_TYPES)), array.take(pa.array(rows)))


def run_ended(array: pa.Array, rng: random.Random) -> pa.Array:
    """Run-end-encoded; neighbours with the same value may be runs of their own."""
    values = array.to_pylist()
    firsts = [n for n in range(len(values)) if n == 0 or not _same(values[n - 1], values[n]) or rng.random() < 0.2]
    ends = pa.array([*firsts[1:], len(values)] if firsts else [], rng.choice((pa.int16(), pa.int32(), pa.int64())))
    return pa.RunEndEncodedArray.from_arrays(ends, array.take(pa.array(firsts, pa.int64())))


def _same(left: Any, right: Any) -> bool:
    return bool(repr(left) == repr(right))


def viewed(array: pa.Array, rng: random.Random) -> pa.Array:
    """As a view, where its type has one."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return array.cast(pa.string_view())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return array.cast(pa.binary_view())
    if pa.types.is_list(kind):
        return pa.array(array.to_pylist(), pa.list_view(kind.value_field))
    if pa.types.is_large_list(kind):
        return pa.array(array.to_pylist(), pa.large_list_view(kind.value_field))
    if pa.types.is_struct(kind):
        children = [viewed(array.field(i), rng) for i in range(kind.num_fields)]
        return pa.StructArray.from_arrays(children, names=[f.name for f in kind], mask=array.is_null())
    return array


def in_turn(*dresses: Dress) -> Dress:
    """One encoding of another, as far as Arrow has it."""

    def dress(array: pa.Array, rng: random.Random) -> pa.Array | pa.ChunkedArray:
        for one in dresses:
            array = one(array, rng)
        return array

    return dress


ENCODINGS: Mapping[str, Dress] = {
    "plain": lambda array, rng: array,
    "sliced": sliced,
    "chunked": chunked,
    "dictionary": coded,
    "run ends": run_ended,
    "view": viewed,
    "sliced dictionary": lambda array, rng: coded(sliced(array, rng), rng),
    "sliced run ends": lambda array, rng: _cut(run_ended(_doubled(array), rng), rng),
    "dictionary of views": lambda array, rng: coded_views(array, rng),
    "run ends of views": lambda array, rng: _runs_of(viewed(array, rng)),
    "run ends of a dictionary": lambda array, rng: _runs_of(coded(array, rng)),
    "chunked dictionaries": lambda array, rng: _each_chunk(array, rng, coded),
    "chunked run ends": lambda array, rng: _each_chunk(array, rng, run_ended),
}


def coded_views(array: pa.Array, rng: random.Random) -> pa.Array:
    whole = coded(array, rng)
    return pa.DictionaryArray.from_arrays(whole.indices, viewed(whole.dictionary, rng))


def _doubled(array: pa.Array) -> pa.Array:
    return pa.concat_arrays([array, array])


def _cut(array: pa.Array, rng: random.Random) -> pa.Array:
    """The second half, which is what it says before the first."""
    return array.slice(len(array) // 2)


def _runs_of(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array(range(1, len(values) + 1), pa.int32()), values)


def _each_chunk(array: pa.Array, rng: random.Random, dress: Dress) -> pa.ChunkedArray:
    """Chunks dressed one by one, so that their dictionaries differ."""
    pieces = [dress(chunk, random.Random(1)) for chunk in chunked(array, rng).chunks if len(chunk)]
    kind = pieces[0].type if pieces else array.type
    return pa.chunked_array([_retyped(piece, kind) for piece in pieces], kind)


def _retyped(piece: pa.Array, kind: pa.DataType) -> pa.Array:
    if piece.type == kind:
        return piece
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(piece.indices.cast(kind.index_type), piece.dictionary)
    return pa.RunEndEncodedArray.from_arrays(piece.run_ends.cast(kind.run_end_type), piece.values)


# ── Comparing ──────────────────────────────────────────────────────────────────────────────────────


def plain(value: Any) -> Any:
    """A value as it is compared: NaN is itself, the zeros are one, absent and null are alike in a struct."""
    if isinstance(value, Mapping):
        return {name: plain(part) for name, part in sorted(value.items()) if part is not None}
    if isinstance(value, tuple) and not hasattr(value, "months"):
        return tuple(plain(part) for part in value)
    if isinstance(value, list):
        return [plain(part) for part in value]
    if isinstance(value, float | np.floating):
        number = float(value)
        # Sums of floats agree to 1e-9 only.
        return "nan" if math.isnan(number) else 0.0 if number == 0 else float(f"{number:.9g}")
    if isinstance(value, Decimal):
        return f"decimal {value.normalize()}" if value else "decimal 0"
    if isinstance(value, dt.datetime):
        moment = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
        return moment.astimezone(UTC).isoformat() if moment.tzinfo is not None else moment.isoformat()
    if isinstance(value, dt.timedelta):
        return f"lasting {value / dt.timedelta(microseconds=1)}"
    return value
