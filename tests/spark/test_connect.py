"""Spark Connect: the same answers where the driver is on another machine and reaches Spark by its protocol alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.long)])
def test_golden_cases_over_connect(step: int) -> None:
    # With the first, Spark's server listens at a port that is free, and its client asks for it.
    environment = {**os.environ, "SPARK_TESTING": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect", str(step)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["cases"] > 200 / step
    assert told["wrong"] == {}
    assert told["error"].startswith("the time column 'ts' is null in 1 of 1 rows")
