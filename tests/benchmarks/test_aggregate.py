"""Every part of the benchmark runs on a small stream and finds its answers right; its figures mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import aggregate

pytestmark = pytest.mark.compiled


MANY_QUERIES = ("whole_answers", "never_worse")
# Spark has its own test, in a session that others share.
PARTS = [
    pytest.param(part, marks=pytest.mark.long) if part in MANY_QUERIES else part
    for part in aggregate.PARTS
    if part != "spark"
]


@pytest.mark.parametrize("part", PARTS)
def test_parts_agree_with_each_other(part: str, tmp_path: Path) -> None:
    written = tmp_path / "bars.json"
    aggregate.main(["--events", "4000", "--runs", "1", "--only", part, "--keep", str(written)])
    bars = json.loads(written.read_text(encoding="utf-8"))[part]["bars"]
    assert all(bar["measured"] > 0 for bar in bars)


def test_the_page_is_written_from_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = tmp_path / "part.json"
    few = ["--events", "3000", "--runs", "1", "--keep", str(written)]
    aggregate.main([*few, "--only", "sharing", "a-seq-15"])
    monkeypatch.setattr(aggregate, "RESULTS", tmp_path)
    aggregate.main([*few, "--only", "a-seq-16b", "--page"])
    page = (tmp_path / "aggregate.md").read_text(encoding="utf-8")
    assert "## A-Seq 16b" in page and "20 queries with a common prefix of 6" in page
    # What takes longest is kept from before.
    assert "W4 against Spark SQL" in page and "medians of 1 alternating runs (3 of spark)" in page
    assert (tmp_path / "figures" / "a-seq-16b.svg").exists()
