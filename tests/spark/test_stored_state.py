"""State that earlier versions stored is read by this one: a stream that was stored half-way goes on from there.

One file for each version of the format. A version that writes another format adds a file and leaves the old ones:

    python -m tests.spark.test_stored_state 2
"""

from __future__ import annotations

import base64
import json
import random
import sys
from pathlib import Path

import pytest

import ouzel
from ouzel.sealing import MANIFEST
from ouzel.spark.state_store import Manifest
from tests.spark.test_steps import MemoryStore, Stream, as_set, flush, job_for, table_of

FOLDER = Path(__file__).parent / "stored"
QUERIES = {
    "lonely": "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 3 ms RETURN L(a.row AS row)",
    "pair": "PATTERN SEQ(A a, !(C c), B b) WHERE [id] AND a.row < b.row WITHIN 9 ms RETURN P(a.row AS a, b.row AS b)",
    "climb": (
        "PATTERN SEQ(A+ a[], B b) WHERE skip_till_next_match(a[], b) { [id] AND a[i].row > a[i-1].row } "
        "WITHIN 4 ms RETURN C(a[1].row AS first, b.row AS last, a.LEN AS length)"
    ),
    "count": "PATTERN SEQ(A a, C c) GROUP BY id AGG COUNT, SUM(c.row) WITHIN 8 ms",
}
ROWS, BATCH_ROWS = 240, 20


def rows() -> list[tuple[str, int, int]]:
    chance = random.Random(5)
    return [(chance.choice("ABCD"), 300 * place + chance.randrange(900), chance.randrange(4)) for place in range(ROWS)]


def play(stream: Stream, first: int, end: int) -> None:
    table = table_of(rows())
    for at in range(first, end, BATCH_ROWS):
        stream.micro_batch(table.slice(at, BATCH_ROWS))


def store(version: int) -> None:
    """Run half of the stream and write what it has stored."""
    assert version == MANIFEST.number, f"this Ouzel writes version {MANIFEST.number}"
    stream = Stream(job_for(QUERIES, log_bytes_min=1_500), delay_ms=1)
    play(stream, 0, ROWS // 2)
    told = {
        "watermark_ms": stream.watermark_ms,
        "newest_us": stream.newest_us,
        "timers": {name: sorted(own) for name, own in stream.timers.items()},
        "written": stream.written,
        "stores": {
            name: {
                "values": {key: base64.b64encode(value).decode() for key, value in bucket.values.items()},
                "chunks": {key: base64.b64encode(value).decode() for key, value in bucket.chunks.items()},
            }
            for name, bucket in stream.stores.items()
        },
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"version_{version}.json").write_text(json.dumps(told, default=str), encoding="utf-8")


def load(path: Path) -> Stream:
    told = json.loads(path.read_text(encoding="utf-8"))
    stores = {
        int(name): MemoryStore(
            {key: base64.b64decode(value) for key, value in stored["values"].items()},
            {int(key): base64.b64decode(value) for key, value in stored["chunks"].items()},
        )
        for name, stored in told["stores"].items()
    }
    timers = {int(name): set(own) for name, own in told["timers"].items()}
    job = job_for(QUERIES, log_bytes_min=1_500)
    return Stream(job, 1, told["watermark_ms"], told["newest_us"], stores, timers, told["written"])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_a_stream_goes_on_from_what_an_earlier_version_stored(path: Path) -> None:
    stream = load(path)
    manifests = [Manifest.load(bucket.values["manifest"]) for name, bucket in stream.stores.items() if name >= 0]
    assert any(manifest.snapshot_chunks for manifest in manifests) and any(
        manifest.last_record > manifest.snapshot_at for manifest in manifests
    )
    before = {name: len(written) for name, written in stream.written.items()}
    play(stream, ROWS // 2, ROWS)
    flush(stream)
    for name, table in ouzel.match(table_of(rows()), QUERIES).items():
        # What was written before went through JSON, times as text.
        found = [{key: str(value) for key, value in row.items()} for row in stream.written[name]]
        expected = [{key: str(value) for key, value in row.items()} for row in table.to_pylist()]
        assert as_set(found) == as_set(expected)
        assert before[name] < len(found)


def test_there_is_a_file_for_the_version_that_is_written_now() -> None:
    assert (FOLDER / f"version_{MANIFEST.number}.json").exists()


if __name__ == "__main__":
    store(int(sys.argv[1]))
