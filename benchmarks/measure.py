"""Measuring by ratio in one run: alternating runs, medians of CPU time, bars that pass or fail."""

from __future__ import annotations

import datetime
import gc
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

# One core is compared with one core; `all_cores` gives the number of threads itself.
os.environ.setdefault("OUZEL_THREADS", "1")


@dataclass(frozen=True, slots=True)
class Bar:
    """Something that must hold: a measured ratio against its limit."""

    name: str
    measured: float
    limit: float
    at_least: bool
    at: tuple[str, str] = field(default_factory=lambda: measured_at())  # the date and the last commit

    @property
    def passed(self) -> bool:
        return self.measured >= self.limit if self.at_least else self.measured <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "measured": round(self.measured, 3), "passed": self.passed}

    def cells(self) -> list[str]:
        """A row of a table of bars."""
        sense = "at least" if self.at_least else "at most"
        cells = [self.name, f"{self.measured:.2f}", f"{sense} {self.limit:g}", "PASS" if self.passed else "FAIL"]
        return [*cells, *self.at]


@cache
def measured_at() -> tuple[str, str]:
    """The date, and the last commit of the sources."""
    folder = Path(__file__).parent
    found = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=folder, capture_output=True, text=True)
    return datetime.datetime.now(datetime.UTC).date().isoformat(), found.stdout.strip() or "none"


class Times(dict[str, float]):
    """Median seconds of CPU by contestant, and how two of them compare within a round.

    >>> times = Times({"slow": [2.0, 8.0, 3.0], "fast": [1.0, 4.0, 1.0]})
    >>> times["slow"], times.ratio("slow", "fast")
    (3.0, 2.0)
    """

    def __init__(self, rounds: Mapping[str, Sequence[float]]) -> None:
        super().__init__({name: statistics.median(taken) for name, taken in rounds.items()})
        self._rounds = rounds

    def ratio(self, over: str, under: str) -> float:
        """The median of the rounds' ratios: a machine that is slow for a while slows both of a round."""
        pairs = zip(self._rounds[over], self._rounds[under], strict=True)
        return statistics.median(above / below for above, below in pairs)


def alternate(contestants: Mapping[str, Callable[[], Any]], runs: int = 5) -> Times:
    """Seconds of CPU for each contestant: one warm-up, then run after run, each time all of them in turn.

    A busy machine slows all of them alike, so that ratios hold where single times do not.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for work in contestants.values():
        work()
    for _ in range(runs):
        for name, work in contestants.items():
            seconds[name].append(cpu_seconds(work))
    return Times(seconds)


def cpu_seconds(work: Callable[[], Any]) -> float:
    """CPU time of one call; giving its answer back to the system is not part of it."""
    gc.collect()
    # The peers make millions of tuples; walking through them would be held against them.
    gc.disable()
    try:
        started = time.process_time()
        answer = work()
        taken = time.process_time() - started
        del answer
        return taken
    finally:
        gc.enable()


def process_seconds(program: str, *arguments: str) -> float:
    """CPU time of a fresh Python process from its first instruction to the end of a program."""
    text = f"{program}\nimport sys, time\nsys.stdout.write(str(time.process_time()))"
    ended = subprocess.run([sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=True)
    return float(ended.stdout.splitlines()[-1])


def machine() -> dict[str, str]:
    return {"python": platform.python_version(), "system": platform.system(), "processor": platform.machine()}


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, readable as it is and on a page."""
    widths = [max(len(str(line[i])) for line in (headings, *rows)) for i in range(len(headings))]
    rule = ["-" * width for width in widths]
    lines = [[str(cell).ljust(width) for cell, width in zip(line, widths, strict=True)] for line in (headings, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))
