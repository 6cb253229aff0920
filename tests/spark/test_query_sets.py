"""Sets of queries on Spark answer as the embedded set does: batch and stream, by key and by slices, and while they
change."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ouzel
import ouzel.spark
from ouzel.algebra import stream, to_text
from ouzel.errors import InputError, StateError
from tests.generate.cases import counted
from tests.spark.streams import FileStream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

S = stream("Stock")
PAIRS = S.rename({"price": "first"}).next(S, "name = name.last AND DUR <= 12")
KEYED_TEXTS = {
    "pattern": "PATTERN SEQ(Stock a, Stock b) WHERE [name] AND b.price > a.price WITHIN 6 RETURN P(b.price AS price)",
    "lonely": "PATTERN SEQ(Stock a, !(Other b)) WHERE [name] WITHIN 4 RETURN P(a.price AS price)",
    "count": "PATTERN SEQ(Stock a, Stock b) GROUP BY name AGG COUNT WITHIN 5",
}


SCHEMA = pa.schema({"type": pa.string(), "ts": pa.int64(), "name": pa.string(), "price": pa.int64()})


def keyed_set() -> ouzel.QuerySet:
    """All queries agree on `name`: the algebra, merged and alone, patterns, an aggregate, a template."""
    held = ouzel.QuerySet()
    for number in range(12):
        held.add(f"pairs {number}", PAIRS.select(f"price > {number % 5} * first"))
    held.add("single", S.select("price > 8"))
    for name, text in KEYED_TEXTS.items():
        held.add(name, text)
    held.add_template("above", PAIRS.select("price > :limit"), [{"id": f"t{k}", "limit": k} for k in range(8)])
    return held


def mixed_set() -> ouzel.QuerySet:
    """Nothing that all queries agree on."""
    held = keyed_set()
    held.add("any", S.rename({"name": "other"}).next(S, "price > price.last AND DUR <= 3"))
    held.add("resubscribed", S.next(PAIRS.rename({"name": "n2", "price": "p2"}), "first > price AND DUR <= 9"))
    held.add("total", "PATTERN SEQ(Stock a, Other b) AGG COUNT WITHIN 4")
    return held


def random_quotes(seed: int, count: int) -> pa.Table:
    rng = random.Random(seed)
    rows = [
        {
            "type": rng.choice(["Stock", "Stock", "Other"]),
            "ts": k // 2,
            "name": rng.choice(["IBM", "Dell", "MSFT", None]),
            "price": rng.randint(0, 9),
        }
        for k in range(count)
    ]
    return pa.Table.from_pylist(
        rows, pa.schema({"type": pa.string(), "ts": pa.int64(), "name": pa.string(), "price": pa.int64()})
    )


def embedded(held: ouzel.QuerySet, quotes: pa.Table) -> list[dict[str, Any]]:
    given = [held.push(quotes), held.finish()]
    return [row for answers in given for part in answers.values() for row in part.to_pylist()]


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    """Rows without the columns that a query does not have."""
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    wanted = [{name: value for name, value in row.items() if value is not None} for row in wanted]
    assert len(wanted) > 20
    assert counted(found) == counted(wanted)


@pytest.mark.parametrize(("make", "key"), [(keyed_set, None), (mixed_set, None), (keyed_set, "")])
def test_batches_answer_as_the_embedded_set(spark: SparkSession, make: Any, key: str | None) -> None:
    quotes = random_quotes(1, 150)
    found = ouzel.spark.match_set(spark.createDataFrame(quotes), make(), key=key).toArrow()
    same(rows_of(found), embedded(make(), quotes))


def explosive_set() -> ouzel.QuerySet:
    held = ouzel.QuerySet(limits={"max_partial_matches": 1_000})
    held.add("explosive", "PATTERN SEQ(Stock a, Stock b, Stock c) WHERE [name] WITHIN 900 RETURN R(a.price AS price)")
    held.add("high", S.select("price > 8"))
    held.add("pairs", PAIRS)
    return held


def test_suspended_queries_are_reported_in_rows(spark: SparkSession, tmp_path: Path) -> None:
    quotes = random_quotes(3, 400)
    others = ouzel.QuerySet()
    others.add("high", S.select("price > 8"))
    others.add("pairs", PAIRS)
    wanted = embedded(others, quotes)

    def check(table: pa.Table) -> None:
        rows = rows_of(table)
        same([row for row in rows if row["query"] != "explosive"], wanted)
        reasons = [row["problem"] for row in rows if "problem" in row]
        assert reasons and all("'explosive'" in one and "max_partial_matches=1,000" in one for one in reasons)
        assert all("at time" in one for one in reasons)

    frame = spark.createDataFrame(quotes)
    check(ouzel.spark.match_set(frame, explosive_set(), key="", on_error="report").toArrow())
    with pytest.raises(ouzel.LimitError, match="explosive"), ouzel.spark.unwrap_errors():
        ouzel.spark.match_set(frame, explosive_set(), key="").toArrow()
    with pytest.raises(InputError, match="on_error='ignore' is neither"):
        ouzel.spark.match_set(frame, explosive_set(), on_error="ignore")
    files = FileStream(spark, tmp_path, quotes.schema)

    def step(frame: DataFrame) -> DataFrame:
        return ouzel.spark.match_set(frame, explosive_set(), max_delay=2, key="", buckets=1, on_error="report")

    files.add([quotes.slice(0, 300)])
    files.run(step)
    files.add([quotes.slice(300), END])
    files.run(step)
    found = files.answer_table()
    check(found)
    assert sum(row["problem"] is not None for row in found.to_pylist()) == 1


END = pa.table({"type": ["End"], "ts": [10**6], "name": ["none"], "price": [0]}).cast(SCHEMA)


def test_streams_restarted_half_way_answer_as_the_embedded_set(spark: SparkSession, tmp_path: Path) -> None:
    quotes = random_quotes(2, 120)
    files = FileStream(spark, tmp_path, quotes.schema)

    def step(frame: DataFrame) -> DataFrame:
        return ouzel.spark.match_set(frame, keyed_set(), max_delay=2, buckets=2)

    files.add([quotes.slice(0, 50), quotes.slice(50, 20)])
    files.run(step)
    files.add([quotes.slice(70), END])
    files.run(step)
    same(rows_of(files.answer_table()), embedded(keyed_set(), quotes))
    with pytest.raises(InputError, match="whose state has no keys"):
        ouzel.spark.state(files.checkpoint, spark)
    with pytest.raises(StateError, match="queries that the set begins with"), ouzel.spark.unwrap_errors():
        files.add([END])
        files.run(lambda frame: ouzel.spark.match_set(frame, with_one_more(keyed_set()), max_delay=2, buckets=2))


def with_one_more(held: ouzel.QuerySet) -> ouzel.QuerySet:
    held.add("more", S.select("price > 1"))
    return held


class Table:
    """A table of queries that grows, as files in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self._files = 0
        self.write({})

    def write(self, rows: Mapping[str, str | None]) -> None:
        columns = {"id": pa.array(rows.keys(), pa.string()), "query": pa.array(rows.values(), pa.string())}
        pq.write_table(pa.table(columns), self.folder / f"{self._files}.parquet")
        self._files += 1


def test_the_set_changes_between_micro_batches(spark: SparkSession, tmp_path: Path) -> None:
    quotes = random_quotes(3, 160)
    batches = [quotes.slice(first, 40) for first in range(0, 160, 40)]
    table = Table(tmp_path / "queries")
    files = FileStream(spark, tmp_path, quotes.schema)

    def step(frame: DataFrame) -> DataFrame:
        begin = ouzel.QuerySet()
        begin.add("lonely", KEYED_TEXTS["lonely"])
        return ouzel.spark.match_set(
            frame, begin, changes=table.folder, columns="price long, name string, first long", max_delay=2, buckets=2
        )

    reference = Reference({"lonely": KEYED_TEXTS["lonely"]}, delay=2)
    # Read with the first event, and after a restart.
    for changes, brought in (
        ({"pairs": to_text(PAIRS), "rising": KEYED_TEXTS["pattern"]}, batches[:2]),
        ({"high": to_text(S.select("price > 7")), "rising": None, "bad": "PATTERN SEQ("}, [*batches[2:], END]),
    ):
        table.write(changes)
        files.add(brought)
        files.run(step)
        for number, events in enumerate(brought):
            reference.step({} if number else changes, events)
    reference.step({}, END.slice(0, 0))
    found = rows_of(files.answer_table())
    assert [row["query"] for row in found if "problem" in row] == ["bad"]
    same([row for row in found if "problem" not in row], reference.answers)
    assert {row["query"] for row in found} == {"lonely", "pairs", "rising", "high", "bad"}


class Reference:
    """What the micro-batches of a stream do to an embedded set."""

    def __init__(self, queries: Mapping[str, str], delay: int) -> None:
        self._held = ouzel.QuerySet(schema=SCHEMA)
        for id, text in queries.items():
            self._held.add(id, text)
        self._delay = delay
        self._newest: int | None = None
        self.answers: list[dict[str, Any]] = []

    def step(self, changes: Mapping[str, str | None], events: pa.Table) -> None:
        if self._newest is not None:
            # Spark's watermark follows one tick behind the delay.
            given = self._held.advance(self._newest - self._delay - 1)
            self.answers += [row for part in given.values() for row in part.to_pylist()]
        for id, text in changes.items():
            if text is None:
                self._held.remove(id)
            elif id != "bad":
                self._held.add(id, text)
        self._held.take(events)
        self._newest = max([self._newest or 0, *events["ts"].to_pylist()])


def test_what_cannot_be_is_told(spark: SparkSession, tmp_path: Path) -> None:
    quotes = spark.createDataFrame(random_quotes(4, 10))
    match_set = ouzel.spark.match_set

    def held(**queries: Any) -> ouzel.QuerySet:
        made = ouzel.QuerySet()
        for name, given in queries.items():
            made.add(name, given)
        return made

    for message, call in {
        "takes an ouzel.QuerySet": lambda: match_set(quotes, "PATTERN Stock s WITHIN 5"),  # type: ignore[arg-type]
        "takes one DataFrame": lambda: match_set({"Stock": quotes}, held(p=PAIRS)),  # type: ignore[arg-type]
        "no query in the set": lambda: match_set(quotes, held()),
        "is already fixed": lambda: match_set(quotes, with_one_more(ouzel.QuerySet(schema=SCHEMA))),
        "changes= is for streams": lambda: match_set(quotes, held(p=PAIRS), changes=quotes),
        "the events of an answer may differ": lambda: match_set(quotes, held(p=PAIRS), key="price"),
        "is not a column of the events": lambda: match_set(quotes, held(p=PAIRS), key="nme"),
        "give it another name": lambda: match_set(quotes, held(p=PAIRS, q=S.rename({"name": "first"}))),
        "is not a list of columns": lambda: match_set(quotes, held(p=PAIRS), columns="price what"),
        "did you mean 'price'": lambda: match_set(quotes, held(p=S.select("prise > 3"))),
    }.items():
        with pytest.raises(ouzel.OuzelError, match=message):
            call()
            pytest.fail(message)
    files = FileStream(spark, tmp_path, SCHEMA)
    events = files.events()
    table = Table(tmp_path / "queries")
    for message, options in {
        "not a folder of Parquet files": {"changes": tmp_path / "nowhere"},
        "a batch cannot change": {"changes": quotes},
        "no column 'id'": {"changes": events},
        "a maximum delay of its events": {"changes": table.folder, "max_delay": None},
        "buckets must be an integer from 1": {"changes": table.folder, "buckets": 0},
    }.items():
        with pytest.raises(InputError, match=message):
            match_set(events, held(p=PAIRS), **{"max_delay": 1, **options})
