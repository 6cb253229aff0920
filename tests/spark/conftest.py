"""One Spark session for the whole test run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import ouzel.spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Workers unpickle the golden cases' clocks, which live among the tests.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    session = ouzel.spark.session("tests", "local[2]", **{"spark.log.level": "OFF", "spark.sql.shuffle.partitions": 2})
    yield session
    session.stop()
