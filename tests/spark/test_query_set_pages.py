"""The Spark part of docs/query-sets.md runs as it stands, one example after the other."""

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

PAGE = Path(__file__).parents[2] / "docs" / "query-sets.md"


def write(path: Path, minutes: list[tuple[int, str, float]]) -> None:
    rows = [
        {"type": "Stock", "ts": f"2024-05-01T09:{minute:02}:00Z", "name": name, "price": price}
        for minute, name, price in minutes
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def test_the_examples_of_the_page(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "history" / "0.json", [(0, "IBM", 80.0), (3, "Dell", 20.0), (5, "IBM", 92.0), (40, "Dell", 30.0)])
    write(tmp_path / "ticks" / "0.json", [(0, "IBM", 80.0), (3, "IBM", 96.0), (30, "Dell", 20.0)])
    # The page starts a session of its own; here it is the one of all tests.
    monkeypatch.setattr(ouzel.spark, "session", lambda: spark)
    names: dict[str, Any] = {"folder": str(tmp_path)}
    examples = re.findall(r"```py\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 3
    for number, example in enumerate(examples):
        exec(compile(example, str(PAGE), "exec"), names)  # noqa: S102
        if number == 0:
            found = ouzel.spark.match_set(names["history"], names["alerts"]).orderBy("query", "end").collect()
            assert [(row["query"], row["name"], row["price"]) for row in found] == [
                ("a1", "IBM", 92.0),
                ("rises", "IBM", 92.0),
            ]
        if number == 1:
            write(tmp_path / "ticks" / "1.json", [(35, "Dell", 99.0), (50, "Dell", 1.0), (59, "IBM", 1.0)])
    found = names["found"].collect()
    assert sorted((row["query"], row["name"]) for row in found if row["problem"] is None) == [
        ("high", "Dell"),
        ("high", "IBM"),
        ("rises", "IBM"),
    ]
    assert [row["query"] for row in found if row["problem"] is not None] == ["odd"]
