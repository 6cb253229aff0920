"""Limits that keep memory bounded."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps memory bounded (semantics 7). Passing one is an error that names it, never a silent loss."""

    max_matches_per_moment: int = 10_000_000
    max_partial_matches: int = 10_000_000
    max_buffered_events: int = 100_000_000
