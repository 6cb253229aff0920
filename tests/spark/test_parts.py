"""The parts that need no Spark session: types, packing, bucket names, what is sent to workers."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle
from pyspark.sql import types as T

import ouzel.spark
from ouzel.errors import InputError
from ouzel.prepared import as_queries
from ouzel.runtime.program import make_program
from ouzel.sealing import PROGRAM, SNAPSHOT
from ouzel.spark import api
from ouzel.spark.partitioning import plan_query_groups
from ouzel.spark.payloads import Clock, from_payload, gather, payloads_of, split_by, to_payload
from ouzel.spark.schema import arrow_schema, spark_schema
from ouzel.spark.tasks import COMPATIBILITY, on_workers, step_rows, total_rows
from ouzel.spark.versions import bucket_names, murmur3
from ouzel.spark.worker import Memory, match_partition, unpack
from tests.generate.cases import counted

BUCKET_NAMES = [2122, 14465, 9454, 85, 5433, 9181]
SOURCES = Path(ouzel.spark.__file__).parent


# ── Types ──────────────────────────────────────────────────────────────────────────────────────────


def test_types_survive_the_way_to_arrow_and_back() -> None:
    nested = T.StructType([T.StructField("x", T.IntegerType()), T.StructField("y", T.StringType(), nullable=False)])
    kinds = [
        T.BooleanType(), T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(),
        T.DecimalType(18, 4), T.StringType(), T.BinaryType(), T.DateType(), T.TimestampType(), T.TimestampNTZType(),
        T.ArrayType(nested), T.ArrayType(T.LongType(), containsNull=False), T.MapType(T.StringType(), nested), nested,
    ]  # fmt: skip
    schema = T.StructType([T.StructField(f"column {number}", kind) for number, kind in enumerate(kinds)])
    assert spark_schema(arrow_schema(schema)) == schema


def test_what_cannot_be_carried_is_named() -> None:
    with pytest.raises(InputError, match="'v' has the type variant"):
        arrow_schema(T.StructType([T.StructField("v", T.VariantType())]))
    inner = T.StructType([T.StructField("u", T.YearMonthIntervalType())])
    with pytest.raises(InputError, match=r"'s\.u' has the type interval"):
        arrow_schema(T.StructType([T.StructField("s", inner)]))


def test_collations_are_refused() -> None:
    with pytest.raises(InputError, match="'name' has a collation"):
        arrow_schema(T.StructType([T.StructField("name", T.StringType("UTF8_LCASE"))]))


# ── Packing ────────────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.integers(0, 4), max_size=40), st.integers(1, 200))
def test_splitting_and_packing_keep_every_row(buckets: list[int], bytes_max: int) -> None:
    table = pa.table({"bucket": pa.array(buckets, pa.int32()), "row": pa.array(range(len(buckets)), pa.int64())})
    found = {
        bucket: [row for payload in payloads_of(rows, bytes_max) for row in from_payload(payload)["row"].to_pylist()]
        for bucket, rows in split_by(table, "bucket")
    }
    expected = {b: [row for row, other in enumerate(buckets) if other == b] for b in sorted(set(buckets))}
    assert found == expected


def test_many_batches_become_few_tables() -> None:
    batches = [pa.record_batch({"x": list(range(first, first + 10))}) for first in range(0, 100, 10)]
    tables = list(gather(iter(batches), bytes_max=300))
    assert 1 < len(tables) < len(batches)
    assert pa.concat_tables(tables)["x"].to_pylist() == list(range(100))
    assert list(gather(iter([batches[0].slice(0, 0)]))) == []


def test_a_payload_keeps_the_schema_of_an_empty_table() -> None:
    empty = pa.schema({"t": pa.timestamp("us", "UTC"), "s": pa.struct({"x": pa.string()})}).empty_table()
    assert from_payload(to_payload(empty)).schema == empty.schema


# ── Buckets ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 5, 8, 10, 16, 32, 200])
def test_as_many_buckets_as_partitions_are_one_each(partitions: int) -> None:
    places = murmur3(np.array(bucket_names(partitions), np.int32)) % partitions
    assert sorted(places.tolist()) == list(range(partitions))


def test_bucket_names_never_change() -> None:
    """The state of running streams lies under these names."""
    assert bucket_names(6) == BUCKET_NAMES
    assert bucket_names(2) == BUCKET_NAMES[:2]


# ── Shares ─────────────────────────────────────────────────────────────────────────────────────────

SCHEMA = pa.schema({"type": pa.string(), "ts": pa.int64(), "id": pa.int64(), "place": pa.string(), "x": pa.float64()})


def groups(query: object, schema: object = SCHEMA) -> list:
    return plan_query_groups(make_program(as_queries(query), schema, time="ts", type="type"), Clock(1_000))


@pytest.mark.parametrize(
    ("query", "keys"),
    [
        ("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5", {("id",)}),
        ("PATTERN SEQ(A a, B b) WHERE [id] AND [place] WITHIN 5", {("id",), ("place",)}),
        ("PATTERN SEQ(A a, B b) WHERE a.id = b.id WITHIN 5", {("id",)}),
        ("PATTERN SEQ(A a, B b) WHERE a.place = b.place AND a.x < b.x WITHIN 5", {("place",)}),
        ("PATTERN SEQ(A a, B b) WITHIN 5", set()),
        # Written out for the positive components only: the negative one forbids whatever its id.
        ("PATTERN SEQ(A a, !(C c), B b) WHERE a.id = b.id WITHIN 5", set()),
        ("PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 5", {("id",)}),
        # The total of an aggregate is over all keys, unless they are groups.
        ("PATTERN SEQ(A a, B b) WHERE [id] AGG COUNT WITHIN 5", set()),
        ("PATTERN SEQ(A a, B b) WHERE [place] GROUP BY id AGG COUNT WITHIN 5", {("id",)}),
        ("PATTERN SEQ(A a, B b) WHERE [id] GROUP BY b.place AGG COUNT WITHIN 5", set()),
        # Forms of output, windows in events and contiguity go by partitions, which only [attr] makes.
        ("PATTERN SEQ(A a, B b) WHERE [id] AND a.place = b.place WITHIN 5 OUTPUT NON_OVERLAPPING", {("id",)}),
        ("PATTERN SEQ(A a, B b) WHERE a.id = b.id WITHIN 5 OUTPUT FIRST", set()),
        ("PATTERN SEQ(A a, B b) WHERE a.id = b.id WITHIN 5 EVENTS", set()),
        ("PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) {[id] AND a.place = b.place} WITHIN 5", {("id",)}),
        ("PATTERN SEQ(A a, B b) WHERE strict_contiguity(a, b) {[id]} WITHIN 5", set()),
        ("PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) {[id]} WITHIN 5", {("id",)}),
    ],
)
def test_the_key_is_what_all_events_of_a_match_share(query: str, keys: set) -> None:
    (part,) = groups(query)
    assert set(part.keys) == keys


def test_a_type_without_the_attribute_leaves_no_key() -> None:
    schemas = {
        "A": pa.schema({"ts": pa.int64(), "id": pa.int64()}),
        "B": pa.schema({"ts": pa.int64(), "id": pa.int64()}),
        "C": pa.schema({"ts": pa.int64()}),
    }
    assert groups("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5", schemas)[0].keys == (("id",),)
    assert groups("PATTERN SEQ(A a, !(C c), B b) WHERE [id] WITHIN 5", schemas)[0].keys == ()
    schemas["B"] = pa.schema({"ts": pa.int64(), "id": pa.int32()})
    assert groups("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5", schemas)[0].keys == (), "two wide columns, two hashes"


def test_only_columns_and_types_that_matter_travel() -> None:
    (part,) = groups("PATTERN SEQ(A a, B b) WHERE [id] AND a.x > 1 WITHIN 5 RETURN Pair(b.time AS t)")
    assert part.columns == ("type", "ts", "id", "x")
    assert part.types == {"A", "B"}
    (part,) = groups("PATTERN SEQ(A a, B b) WITHIN 5")
    assert part.columns == tuple(SCHEMA.names)
    (part,) = groups("PATTERN SEQ(A a, B b) WHERE partition_contiguity(a, b) {[id]} WITHIN 5")
    assert part.types is None, "an event of any type ends a run"


def test_queries_with_one_key_are_one_share() -> None:
    parts = groups(
        {
            "first": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5",
            "second": "PATTERN SEQ(A a, B b) WITHIN 5",
            "third": "PATTERN SEQ(B b, A a) WHERE [id] WITHIN 9",
        }
    )
    found = [(part.group.queries, part.group.first_query) for part in parts]
    assert found == [(("first", "third"), 0), (("second",), 2)]


def test_matching_passes_every_option_on(monkeypatch: pytest.MonkeyPatch) -> None:
    options = [name for name in inspect.signature(api.match).parameters if name not in ("events", "query")]
    assert list(api.MatchOptions.__annotations__) == options
    given = {name: object() for name in options}
    passed: dict = {}

    def match(events: object, query: object, **options: object) -> object:
        passed.update(options)
        return events

    monkeypatch.setattr(api, "match", match)
    monkeypatch.setattr(api, "DataFrame", object)
    api.matching("PATTERN A a", **given)(object())
    assert passed == given


# ── Workers ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("sys.modules['ouzel'] = None", "it cannot be imported there"),
        ("import ouzel; sys.modules['ouzel.spark.tasks'] = None", "not a wheel with --py-files"),
        (
            "import ouzel, ouzel.spark.tasks as tasks; ouzel.__version__ = '0.0.9'; tasks.COMPATIBILITY = 0",
            "Ouzel 0.0.9 is installed there, with compatibility number 0, and",
        ),
    ],
)
def test_a_worker_without_this_ouzel_says_so(setting: str, message: str, tmp_path: Path) -> None:
    done = run_on_worker(setting, tmp_path)
    last_line = done.stderr.strip().splitlines()[-1]
    assert last_line.startswith("RuntimeError: Spark's executors need an Ouzel compatible with the driver's: ")
    assert message in last_line


def test_a_worker_with_another_version_runs_if_the_numbers_agree(tmp_path: Path) -> None:
    done = run_on_worker("import ouzel; ouzel.__version__ = '0.0.9'", tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def run_on_worker(setting: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a function in another process, as a worker does, after a change there."""
    (folder / "function").write_bytes(cloudpickle.dumps(on_workers(unpack, 0)))
    program = f"""
import pathlib, pickle, sys
sys.path.insert(0, {str(SOURCES.parents[1])!r})
{setting}
print(list(pickle.loads(pathlib.Path({str(folder / "function")!r}).read_bytes())([])))
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


SENT = Path(__file__).parent / "stored" / f"sent_{COMPATIBILITY}.txt"


def sent() -> str:
    """What a worker of another version must have: functions, with their parameters, and what they are given."""
    lines = set()
    for path in sorted(SOURCES.glob("*.py")):
        driver_only = re.search(r"^(from|import) pyspark", path.read_text("utf-8"), re.MULTILINE)
        module = importlib.import_module(f"ouzel.spark.{path.stem}")
        for name, value in vars(module).items():
            if getattr(value, "__module__", None) != module.__name__ or name.startswith("_"):
                continue
            if dataclasses.is_dataclass(value) and not driver_only:
                fields = ", ".join(f"{field.name}: {field.type}" for field in dataclasses.fields(value))
                lines.add(f"{module.__name__}.{name} {fields}")
            elif inspect.isfunction(value):
                parameters = list(inspect.signature(value).parameters)
                if parameters[-1:] == ["batches"] or value in (step_rows, total_rows):
                    lines.add(f"{module.__name__}.{name}({', '.join(parameters)})")
    lines |= {f"{form.name}: format {form.number}" for form in (PROGRAM, SNAPSHOT)}
    return "\n".join(sorted(lines)) + "\n"


def test_the_compatibility_number_covers_what_is_sent() -> None:
    """If this fails: if a release has this number, raise it. Then run `python -m tests.spark.test_parts`."""
    assert sent() == SENT.read_text(encoding="utf-8")


def test_a_hundred_queries_are_small_enough_to_be_sent() -> None:
    """Spark's stateful steps cannot start from functions of more than a megabyte."""
    query = "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.x < b.x AND a.place != 'nowhere' WITHIN {}"
    parts = groups([query.format(number) for number in range(1, 101)])
    assert len(cloudpickle.dumps(on_workers(match_partition, True, parts[0].group))) < 200_000


@pytest.mark.parametrize("path", sorted(SOURCES.glob("*.py")), ids=lambda path: path.stem)
def test_only_sparks_public_interface_is_used(path: Path) -> None:
    """So that Spark Connect works: nothing private, and no SparkContext."""
    names = {node.attr for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Attribute)}
    assert not names & {"_jdf", "_jvm", "_jc", "_jsparkSession", "_sc", "sparkContext", "rdd"}


def test_workers_do_not_load_pyspark_or_pandas() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(SOURCES.parents[1])!r}); import ouzel.spark.worker; "
        "print(sorted({'pyspark', 'pandas'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


if __name__ == "__main__":
    SENT.write_text(sent(), encoding="utf-8")


# ── Expressions of the algebra ─────────────────────────────────────────────────────────────────────

EXPRESSIONS = {
    "STREAM A a NEXT A b ON b.name = a.name AND b.x > a.x FOLD A c ON c.name = b.name AND DUR < 30": ["name"],
    "STREAM A NEXT A ON name = name.last AND id = id.last AND DUR < 50": ["id", "name"],
    "STREAM A a NEXT A b ON b.name = a.name FOLD A c ON c.id = b.id AND DUR < 20": [],
    "STREAM A WHERE x > 3 UNION (A WHERE x < 9)": ["ts"],
    "STREAM A UNION (A NEXT A ON id = id.last AND DUR < 9)": ["id"],
    "STREAM A a NEXT A b ON b.x > a.x AND DUR < 9": [],
    "STREAM A a NEXT A b ON b.name = a.id OR b.x = a.x": [],
    "STREAM A a NEXT (A NEXT A ON id = id.last) b ON b.id = a.id": [],
}


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_the_partitions_of_an_expression_answer_as_the_whole(text: str) -> None:
    rows = [{"type": "A", "ts": k, "id": k % 7, "name": k % 3, "x": k * 5 % 11} for k in range(50)]
    table = pa.Table.from_pylist([*rows, {"type": "A", "ts": 60, "id": None, "name": None, "x": 1}])
    program = make_program(as_queries(text), table.schema, time="ts", type="type")
    (part,) = plan_query_groups(program, Clock(1))
    keys = [name for (name,) in part.keys]
    assert keys == EXPRESSIONS[text]
    found: list[dict[str, Any]] = []
    for values in dict.fromkeys(tuple(row[name] for name in keys) for row in table.to_pylist()):
        mine = [row for row in table.to_pylist() if tuple(row[name] for name in keys) == values]
        batches = pa.Table.from_pylist(mine, table.schema).select(list(part.columns)).to_batches()
        for batch in match_partition(False, part.group, Memory(), batches):
            found += batch.to_pylist()
    assert counted(found) == counted(ouzel.match(table, text).to_pylist()) != {}


def test_expressions_and_patterns_have_groups_of_their_own() -> None:
    table = pa.Table.from_pylist([{"type": "A", "ts": 1, "id": 1, "x": 1}])
    queries = {
        "by_id": "STREAM A a NEXT A b ON b.id = a.id",
        "pattern": "PATTERN SEQ(A a, A b) WHERE [x] WITHIN 9 RETURN P(a.x AS x)",
        "alone": "STREAM A a NEXT A b",
    }
    program = make_program(as_queries(queries), table.schema, time="ts", type="type")
    groups = {group.group.queries: group.keys for group in plan_query_groups(program, Clock(1))}
    assert groups == {("pattern",): (("x",),), ("by_id",): (("id",),), ("alone",): ()}
