"""A clock by which cases that count time each in their own way can group one watermark of Spark's."""

from __future__ import annotations

from dataclasses import dataclass

END_OF_TIME = 2**62
BATCH_MS = 1_000


@dataclass(frozen=True)
class CaseClock:
    """Stands for `ouzel.spark.worker.Clock`: event k of the case, in order of time, comes with the mark
    (k + 1) * BATCH_MS, and the watermark follows 1 ms behind the marks."""

    ticks: tuple[int, ...]

    def watermark_tick(self, watermark_ms: int) -> int:
        """Just before the newest event that the watermark has passed, as when embedded."""
        marks = (watermark_ms + 1) // BATCH_MS
        if marks > len(self.ticks):
            return END_OF_TIME
        return self.ticks[marks - 1] - 1

    def timer_ms(self, tick: int) -> int:
        """The first watermark that has reached the tick."""
        marks = next((k for k, own in enumerate(self.ticks, start=1) if own - 1 >= tick), len(self.ticks) + 1)
        return marks * BATCH_MS - 1
