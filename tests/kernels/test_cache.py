"""Kernels run where nothing can be cached next to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ouzel.kernels import use_writable_cache


def test_a_writable_place_is_left_to_numba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    use_writable_cache([tmp_path / "cache"])
    assert "NUMBA_CACHE_DIR" not in os.environ


def test_kernels_run_where_no_place_is_writable(tmp_path: Path) -> None:
    """A file stands where each folder would be, which stops even the superuser."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    program = f"""
import os, pathlib
from ouzel.kernels import use_writable_cache
use_writable_cache([pathlib.Path({str(blocked)!r}) / "cache"])
assert "ouzel-kernels-" in os.environ["NUMBA_CACHE_DIR"]
import ouzel
rows = [dict(type="A", ts=1), dict(type="B", ts=2)]
assert ouzel.match(rows, "PATTERN SEQ(A a, B b) WITHIN 5").num_rows == 1
assert any(pathlib.Path(os.environ["NUMBA_CACHE_DIR"]).iterdir())
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["TMPDIR"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", program], check=True, env=environment, timeout=250)
