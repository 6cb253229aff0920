"""Every part of the benchmark runs on a small stream and finds its answers right; its figures mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import aggregate


@pytest.mark.parametrize("part", list(aggregate.PARTS))
def test_parts_agree_with_each_other(part: str, tmp_path: Path) -> None:
    written = tmp_path / "bars.json"
    aggregate.main(["--events", "12000", "--runs", "1", "--only", part, "--json", str(written)])
    bars = json.loads(written.read_text(encoding="utf-8"))["bars"]
    assert all(bar["measured"] > 0 for bar in bars)
