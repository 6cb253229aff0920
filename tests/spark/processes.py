"""The processes of Spark below another one, found in /proc: executors, and the Python workers of executors."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

EXECUTOR = b"CoarseGrainedExecutorBackend"
DAEMON = b"pyspark.daemon"


def executors(root: int | None = None) -> list[int]:
    """The Java processes of executors below `root`, by default below this process."""
    return [process for process, (_, command) in _below(root).items() if EXECUTOR in command]


def python_workers(root: int | None = None) -> list[int]:
    """The processes that PySpark's daemons below `root` have forked for tasks."""
    found = _below(root)
    daemons = {process for process, (_, command) in found.items() if DAEMON in command}
    return [process for process in daemons if found[process][0] in daemons]


def cpu_seconds(roots: list[int]) -> float:
    """CPU of processes and of all below them; the dead count with their parents."""
    ticks = 0
    for process in {*roots, *(below for root in roots for below in _below(root))}:
        with contextlib.suppress(OSError):
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _below(root: int | None) -> dict[int, tuple[int, bytes]]:
    """The parent and the command of each process below `root`."""
    known: dict[int, tuple[int, bytes]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                known[int(entry.name)] = parent, (entry / "cmdline").read_bytes()
            except OSError:
                continue
    ancestor = os.getpid() if root is None else root

    def is_below(process: int) -> bool:
        while process in known:
            process = known[process][0]
            if process == ancestor:
                return True
        return False

    return {process: found for process, found in known.items() if is_below(process)}
