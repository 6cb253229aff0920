"""The streaming part of docs/spark.md runs as it stands, one example after the other."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ouzel.spark
from tests.spark.streams import FIRST_FILE_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
READINGS = [
    [("Shelf", 8, 7), ("Shelf", 8, 9)],
    [("Register", 9, 9), ("Exit", 10, 7), ("Exit", 11, 9)],
    [("Cart", 12, 0)],
    [("Register", 9, 7)],  # late: the watermark stands at 11:54
    [("Shelf", 13, 8)],
]


def test_the_examples_of_the_page(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "readings"
    source.mkdir()
    for number, batch in enumerate(READINGS):
        rows = [{"type": kind, "ts": f"2024-05-01T{hour:02}:00:00Z", "tag": tag} for kind, hour, tag in batch]
        path = source / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
        # Spark takes files in the order of their times.
        os.utime(path, (FIRST_FILE_SECONDS + number,) * 2)
    # The page starts a session of its own; here it is the one of all tests.
    monkeypatch.setattr(ouzel.spark, "session", lambda: spark)
    part = PAGE.read_text(encoding="utf-8").split("## Streams")[1].split("\n## ")[0]
    names: dict[str, Any] = {"folder": str(tmp_path)}
    examples = re.findall(r"```py\n(.*?)```", part, re.DOTALL)
    assert len(examples) == 4
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102
    spark.streams.removeListener(names["listener"])
    assert [row["tag"] for row in spark.read.parquet(str(tmp_path / "thefts")).collect()] == [7]
    assert [row["tag"] for row in spark.read.parquet(str(tmp_path / "found")).collect()] == [7]
    assert [(row["type"], row["tag"]) for row in spark.read.parquet(str(tmp_path / "late")).collect()] == [
        ("Register", 7)
    ]
    shown = capsys.readouterr().out
    assert "open_events" in shown and "queries over streams" in shown
