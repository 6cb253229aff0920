"""The parts of docs/spark.md about batches, SQL and data for trials run as they stand, one example after the other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ouzel.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
READINGS = [("Shelf", 8, 7), ("Shelf", 8, 9), ("Shelf", 9, 9), ("Register", 10, 9), ("Exit", 11, 7), ("Exit", 11, 9)]


def test_the_examples_of_the_page(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "readings").mkdir()
    rows = [{"type": kind, "ts": f"2024-05-01T{hour:02}:00:00Z", "tag": tag} for kind, hour, tag in READINGS]
    (tmp_path / "readings" / "day.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    # The page starts a session of its own; here it is the one of all tests.
    monkeypatch.setattr(ouzel.spark, "session", lambda: spark)
    text = PAGE.read_text(encoding="utf-8")
    parts = [text.split(f"\n## {title}\n")[1].split("\n## ")[0] for title in ("Batches", "SQL")]
    examples = [example for part in parts for example in re.findall(r"```py\n(.*?)```", part, re.DOTALL)]
    assert len(examples) == 4
    names: dict[str, Any] = {"folder": str(tmp_path)}
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102
    assert [row["tag"] for row in names["thefts"].collect()] == [row["tag"] for row in names["same"].collect()] == [7]
    assert [row["tag"] for row in spark.read.parquet(str(tmp_path / "thefts_of_day")).collect()] == [7]
    assert spark.read.json(str(tmp_path / "lingering")).count() == 1
    shown = capsys.readouterr().out
    said = (
        "no match: a negative component forbids it",
        "did you mean 'Shelf'?",
        "query: partitioned by tag",
        "count(1)",
    )
    assert [one for one in said if one not in shown] == []
