"""`Listener`: the progress of the queries of running streams, after each micro-batch."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from ouzel.spark.streaming import OBSERVED

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

# Spark reports the end of a stream within milliseconds, unless the machine is very busy.
REPORT_SECONDS_MAX = 10.0

COLUMNS = ("query", "matches", "open runs", "open events", "state", "late", "behind newest", "behind clock")


@dataclass
class QueryStatus:
    """The progress of one query of a stream. Counts go back to the start of the stream's checkpoint."""

    stream: str
    query: str
    matches: int = 0
    open_runs: int = 0
    open_events: int = 0
    state_bytes: int = 0
    late: int = 0
    # How far the watermark is behind the newest event, and behind the clock; None before the first event.
    behind_newest_seconds: float | None = None
    behind_clock_seconds: float | None = None


@dataclass
class _Stream:
    name: str
    # The last report of each bucket: (number of the record, counts by query).
    buckets: dict[int, tuple[int, dict[str, dict[str, int]]]] = field(default_factory=dict)
    newest: datetime | None = None
    behind_newest_seconds: float | None = None
    behind_clock_seconds: float | None = None


class Listener(StreamingQueryListener):
    """Follows all streams of a session in which queries run: matches, what is open, its size, late events and lag.

    Add it before the stream starts; a bucket is known from its first micro-batch on. `progress()` gives a
    `QueryStatus` for each query, and `live()` shows them in the terminal.

    >>> listener = Listener()
    >>> spark.streams.addListener(listener)                                                   # doctest: +SKIP
    >>> listener.progress()
    []
    """

    def __init__(self) -> None:
        self._streams: dict[str, _Stream] = {}
        # Runs of streams whose end Spark has not reported yet.
        self._running: set[str] = set()
        # Spark calls from a thread of its own.
        self._lock = threading.Lock()

    # ── What Spark calls ───────────────────────────────────────────────────────────────────────────

    def onQueryStarted(self, event: Any) -> None:
        """A stream has started."""
        with self._lock:
            self._running.add(str(event.runId))

    def onQueryIdle(self, event: Any) -> None:
        """A stream has nothing to do."""

    def onQueryTerminated(self, event: Any) -> None:
        """A stream has ended; its last progress stays."""
        with self._lock:
            self._running.discard(str(event.runId))

    def onQueryProgress(self, event: Any) -> None:
        """A micro-batch has ended."""
        progress = event.progress
        ours = [row for name, row in progress.observedMetrics.items() if name.startswith(f"{OBSERVED} ")]
        if ours:
            reports = [json.loads(report) for row in ours for report in json.loads(row["reports"] or "[]")]
            times = {name: _time(text) for name, text in dict(progress.eventTime or {}).items()}
            self._take(str(progress.id), progress.name or str(progress.id)[:8], reports, times, progress.timestamp)

    def _take(
        self, identity: str, name: str, reports: list[dict[str, Any]], times: dict[str, datetime], clock: str
    ) -> None:
        with self._lock:
            stream = self._streams.setdefault(identity, _Stream(name))
            for report in reports:
                known = stream.buckets.get(report["bucket"], (-1, {}))
                if report["record"] > known[0]:
                    stream.buckets[report["bucket"]] = (report["record"], report["queries"])
            newest = times.get("max")
            if newest is not None and (stream.newest is None or newest > stream.newest):
                stream.newest = newest
            watermark = times.get("watermark")
            # Spark's watermark is in 1970 until it has seen an event.
            if watermark is not None and watermark.timestamp() > 0:
                stream.behind_clock_seconds = (_time(clock) - watermark).total_seconds()
                if stream.newest is not None:
                    stream.behind_newest_seconds = (stream.newest - watermark).total_seconds()

    # ── What it knows ──────────────────────────────────────────────────────────────────────────────

    def progress(self) -> list[QueryStatus]:
        """The progress of each query of each stream, after the last micro-batch that Spark has reported.

        Spark reports shortly after a micro-batch has ended. This waits for the reports of streams that have ended, so
        that nothing is missing right after `awaitTermination`.
        """
        self._await_ended_streams()
        return self._progress()

    def _await_ended_streams(self) -> None:
        spark = SparkSession.getActiveSession()
        until = time.monotonic() + REPORT_SECONDS_MAX
        while spark is not None:
            active = {str(stream.runId) for stream in spark.streams.active}
            with self._lock:
                if time.monotonic() > until:
                    # A listener that was removed in the meantime gets no more reports.
                    self._running &= active
                if self._running <= active:
                    return
            time.sleep(0.01)

    def _progress(self) -> list[QueryStatus]:
        found: dict[tuple[str, str], QueryStatus] = {}
        with self._lock:
            for identity, stream in self._streams.items():
                for _, queries in stream.buckets.values():
                    for query, counts in queries.items():
                        status = found.setdefault((identity, query), QueryStatus(stream.name, query))
                        for name, value in counts.items():
                            setattr(status, name, getattr(status, name) + value)
                        status.behind_newest_seconds = stream.behind_newest_seconds
                        status.behind_clock_seconds = stream.behind_clock_seconds
        return list(found.values())

    def table(self) -> Table:
        """The progress as a table of the package rich."""
        from rich.table import Table

        table = Table(title="queries over streams")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "query" else "right")
        for one in self._progress():
            counts = (one.matches, one.open_runs, one.open_events)
            table.add_row(
                one.query,
                *(f"{count:,}" for count in counts),
                f"{one.state_bytes / 1e6:.1f} MB",
                f"{one.late:,}",
                *(_seconds(lag) for lag in (one.behind_newest_seconds, one.behind_clock_seconds)),
            )
        return table

    @contextmanager
    def live(self, console: Console | None = None) -> Iterator[None]:
        """Show the table in the terminal, four times a second, while the block lasts.

        >>> with listener.live():                                                             # doctest: +SKIP
        ...     stream.awaitTermination()
        """
        from rich.live import Live

        with Live(get_renderable=self.table, console=console, refresh_per_second=4):
            yield


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _seconds(lag: float | None) -> str:
    return "–" if lag is None else f"{lag:,.1f} s"
