"""Random queries over random streams whose columns are dressed at random in types and encodings, against the oracle.

The number of inputs comes from OUZEL_DRESSED_INPUTS; `make test-long` asks for 100,000.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel.errors import InputError, LimitError, QueryError
from tests.generate import random_case
from tests.generate.cases import RandomCase
from tests.oracle import oracle
from tests.oracle.events import Event
from tests.runtime.dressing import ENCODINGS, VALUES, array_of
from tests.runtime.test_input_types import counted, for_oracle

pytestmark = pytest.mark.compiled

INPUTS = int(os.environ.get("OUZEL_DRESSED_INPUTS", "200"))
PARTS = 20

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
TYPES = {
    "time": (*INTEGERS, pa.uint8(), pa.uint32(), pa.uint64()),
    "n": (*INTEGERS, pa.uint16(), pa.uint64()),
    "x": (*INTEGERS, pa.uint8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal32(6, 2), pa.decimal128(9, 0)),
    "y": (*INTEGERS, pa.float64(), pa.decimal64(12, 3), pa.decimal256(10, 1)),
    "f": (pa.float16(), pa.float32(), pa.float64()),
    "s": (pa.string(), pa.large_string()),
    "l": (pa.list_(pa.int64()), pa.list_(pa.int8()), pa.large_list(pa.int32())),
    "type": (pa.string(), pa.large_string()),
}
# Types for the key: anything that can be compared.
KEYS = [
    kind for kind in VALUES if kind.startswith(("int", "uint", "float", "decimal", "string", "bin", "date", "time"))
]


def dressed_case(rng: random.Random, case: RandomCase) -> tuple[pa.Table, dict[str, Any]]:
    """The events of a case as a plain table of random types, and the encodings to dress its columns in."""
    rows = [dict(event.attributes) for event in sorted(case.events, key=lambda event: event.end)]
    columns = {name: _column([row[name] for row in rows], rng.choice(kinds)) for name, kinds in TYPES.items()}
    if rng.random() < 0.5:
        type_, values = VALUES[rng.choice(KEYS)]
        columns["id"] = array_of([None if row["id"] is None else values[row["id"]] for row in rows], type_)
    else:
        columns["id"] = _column([row["id"] for row in rows], rng.choice(TYPES["x"]))
    if case.types is None:
        type_, values = VALUES[rng.choice(list(VALUES))]
        columns["more"] = array_of([rng.choice(values) for _ in rows], type_)
    return pa.table(columns), {name: rng.choice(list(ENCODINGS)) for name in columns}


def _column(values: list[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        values = [None if value is None else Decimal(value) for value in values]
    elif pa.types.is_float16(kind):
        values = [None if value is None else np.float16(value) for value in values]
    elif pa.types.is_floating(kind):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values, kind)


def dressed(table: pa.Table, encodings: dict[str, Any], seed: int) -> pa.Table:
    rng = random.Random(seed)
    whole = table.combine_chunks()
    return pa.table({name: ENCODINGS[encodings[name]](_one(whole[name]), rng) for name in table.column_names})


def _one(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def expected(case: RandomCase, table: pa.Table) -> Counter[str]:
    rows = [{name: for_oracle(value) for name, value in row.items()} for row in table.to_pylist()]
    events = [Event(row["type"], row["time"], row["time"], row) for row in rows]
    ((_, results),) = oracle.answer(case.text, events, types=case.types, ticks_per_second=None).items()
    return counted(result.row for result in results)


def answered(case: RandomCase, table: pa.Table, encodings: dict[str, Any], cuts: list[int] | None, seed: int) -> Any:
    """The answer as a multiset of rows, or the error that speaks to users."""
    types = None
    if case.types is not None:
        types = {name: {column: table[column].type for column in own} for name, own in case.types.items()}
    try:
        query = ouzel.query(case.text, types)
        if cuts is None:
            return counted(ouzel.match(dressed(table, encodings, seed), query, time="time").to_pylist())
        engine, rows = ouzel.Engine(query, time="time"), []
        for first, last in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
            if first < last:
                piece = dressed(table.slice(first, last - first), encodings, seed + first)
                rows += engine.push(piece)["query"].to_pylist()
        return counted([*rows, *engine.finish()["query"].to_pylist()])
    except (InputError, QueryError, LimitError) as error:
        return type(error).__name__


def check(seed: int) -> None:
    rng = random.Random(seed)
    profile = rng.choice(("sase", "kleene", "aggregate"))
    case = random_case(rng, profile)
    table, encodings = dressed_case(rng, case)
    if not table.num_rows:
        return
    cuts = sorted(rng.randint(0, table.num_rows) for _ in range(rng.randint(1, 4))) if rng.random() < 0.5 else None
    found = answered(case, table, encodings, cuts, seed)
    if isinstance(found, str):
        plain = dict.fromkeys(encodings, "plain")
        assert answered(case, table, plain, cuts, seed) == found, f"seed {seed}: {case.text} {table.schema} {encodings}"
    else:
        assert found == expected(case, table), f"seed {seed}: {case.text} {table.schema} {encodings}"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_dressed_inputs_agree_with_the_oracle(part: int) -> None:
    for seed in range(part, INPUTS, PARTS):
        check(seed)
