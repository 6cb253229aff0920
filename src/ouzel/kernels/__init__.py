"""Numba functions over plain arrays: arrays in, arrays out, nothing else of ours imported.

Kernels are compiled once and cached on disk. Where neither the package's folder nor the user's cache can be written, as
in some containers and Spark workers, numba would refuse to cache at all; they then go to a temporary folder.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path


def _can_write(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def use_writable_cache(candidates: Iterable[Path]) -> None:
    """Point numba to a temporary folder if it could cache in none of the places where it would look."""
    if os.environ.get("NUMBA_CACHE_DIR") or any(map(_can_write, candidates)):
        return
    folder = tempfile.mkdtemp(prefix="ouzel-kernels-")
    os.environ["NUMBA_CACHE_DIR"] = folder
    if "numba" in sys.modules:
        # Numba reads its environment only once, when it is first imported.
        sys.modules["numba"].config.CACHE_DIR = folder


use_writable_cache([Path(__file__).parent / "__pycache__"])
