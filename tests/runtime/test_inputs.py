"""What events are read from: globs, folders, URIs, batches; and what is not events."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ouzel

QUERY = "PATTERN SEQ(A a, B b) WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)"
ROWS = [{"ts": ts, "type": kind} for ts, kind in enumerate("AB")]
TABLE = pa.Table.from_pylist(ROWS)
ANSWER = [{"start": 0, "end": 1, "a": 0, "b": 1}]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(2):
        pq.write_table(TABLE.slice(number, 1), tmp_path / f"{number}.parquet")
    return tmp_path


def test_globs_folders_and_uris(folder: Path) -> None:
    for path in (f"{folder}/*.parquet", str(folder), folder.as_uri(), Path(folder, "?.parquet")):
        assert ouzel.match(path, QUERY).to_pylist() == ANSWER
    assert ouzel.match({"A": f"{folder}/0.parquet", "B": (folder / "1.parquet").as_uri()}, QUERY).to_pylist() == ANSWER


def test_uris_that_cannot_be_read(folder: Path) -> None:
    with pytest.raises(ouzel.InputError, match=r"'nowhere://x/y.parquet' cannot be read"):
        ouzel.match("nowhere://x/y.parquet", QUERY)
    with pytest.raises(ouzel.InputError, match="there is no file or folder"):
        ouzel.match(f"{folder}/*.csv", QUERY)


def test_readers_and_generators_of_batches() -> None:
    batches = TABLE.to_batches(max_chunksize=1)
    for events in (iter(batches), batches, pa.RecordBatchReader.from_batches(TABLE.schema, batches)):
        assert ouzel.match(events, QUERY).to_pylist() == ANSWER
    assert ouzel.match((TABLE.slice(n, 1) for n in range(2)), QUERY).to_pylist() == ANSWER


def test_one_event_and_columns_are_refused() -> None:
    with pytest.raises(ouzel.InputError, match=r"this looks like one event; pass a list"):
        ouzel.Engine(QUERY).push({"ts": 1, "type": "A"})
    with pytest.raises(ouzel.InputError, match=r"this looks like columns; .* pyarrow.table"):
        ouzel.match({"ts": [1, 2], "type": ["A", "B"]}, QUERY)


def test_engines_and_sets_are_context_managers_and_say_what_they_are() -> None:
    with ouzel.Engine({"pairs": QUERY}) as engine:
        assert repr(engine) == "<Engine of pairs; no events yet>"
        engine.push(ROWS)
        assert repr(engine) == "<Engine of pairs; 2 events held, 0 late>"
    assert repr(engine) == "<Engine of pairs; finished>"
    with pytest.raises(ouzel.InputError, match="finished"):
        engine.push(ROWS)
    with ouzel.QuerySet() as queries:
        queries.add(1, QUERY)
        assert repr(queries) == "<QuerySet of 1 queries; no events yet>"

    async def run() -> list[dict[str, int]]:
        async with ouzel.Engine(QUERY) as engine:
            engine.push(ROWS)
            return engine.finish()["query"].to_pylist()

    assert asyncio.run(run()) == ANSWER


def test_several_queries_are_explained_as_json() -> None:
    told = json.loads(ouzel.explain({"one": QUERY, "two": QUERY}, "json"))
    assert set(told) == {"queries", "sharing"} and list(told["queries"]) == ["one", "two"]
    assert told["queries"]["one"] == json.loads(ouzel.explain(ouzel.query(QUERY, name="one"), "json"))
