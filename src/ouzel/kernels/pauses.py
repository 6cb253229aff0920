"""Points at which work may be interrupted: between two calls of a kernel, each of which reads a piece of the events.

Ctrl-C does not stop a kernel. The size of a piece depends on the time that the last piece took, so that `pause` is
called many times a second, for cheap and for expensive events.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter

import numpy as np

_EVENTS_FIRST = 1024
_SHORT_SECONDS = 0.01
_LONG_SECONDS = 0.04


# The numbers of events that kernels have read, if a person waits for them. Threads that work together share the list.
events_read: ContextVar[list[int] | None] = ContextVar("events_read", default=None)


class _Thread(threading.local):
    on_pause: Callable[[], None] | None = None


_thread = _Thread()


def call_on_pause(on_pause: Callable[[], None] | None) -> None:
    """Set what `pause` does in this thread."""
    _thread.on_pause = on_pause


def pause() -> None:
    """Allow an interruption here: the state is ready for the next call of a kernel."""
    on_pause = _thread.on_pause
    if on_pause is not None:
        on_pause()


class Pieces:
    """Cuts the events before a slot into pieces that a kernel reads in a few hundredths of a second each.

    `times` are the sorted times of the events, for kernels that must read simultaneous events in one call.

    >>> pieces = Pieces(5000)
    >>> pieces.end(0), pieces.end(4500)
    (1024, 5000)
    """

    def __init__(self, last: int, times: np.ndarray | None = None) -> None:
        self._last = last
        self._times = times
        self._size = _EVENTS_FIRST
        self._began: float | None = None
        self._read = 0

    def end(self, position: int) -> int:
        """The end of the piece that begins at a position."""
        if self._began is None:
            if self._last - position <= self._size:
                return self._last
            self._began = perf_counter()
            self._read = position
            return self._cut(position)
        pause()
        if (numbers := events_read.get()) is not None:
            numbers.append(position - self._read)
            self._read = position
        now = perf_counter()
        seconds, self._began = now - self._began, now
        if seconds < _SHORT_SECONDS:
            # Calling a kernel costs as much as about a thousand events.
            self._size *= 8 if 16 * seconds < _SHORT_SECONDS else 2
        elif seconds > _LONG_SECONDS:
            self._size = max(1, self._size // 2)
        return self._cut(position)

    def _cut(self, position: int) -> int:
        end = min(self._last, position + self._size)
        if self._times is None:
            return end
        return position + int(np.searchsorted(self._times[position : self._last], self._times[end - 1], side="right"))
