"""The run and graph kernels are plain Python too: the same answers without compilation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_the_same_answers_without_compilation() -> None:
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(HERE.parent.parent / "src")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "test_runs.py")]
    finished = subprocess.run(command, env=environment, cwd=HERE.parent.parent, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout
