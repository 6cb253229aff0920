"""Segments of patterns that are counted once wherever they stand (Chop-Connect): which of them pay."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ouzel.kernels.counters_shared_tables import Part, SegmentPart, build_shared_tables
from ouzel.plan.sharing_cost import cost

SEGMENTS_MAX = 8
_CANDIDATES_MAX = 64
# Estimates are rough: a segment must promise this much before it is cut out, so that a wrong one costs little.
WORTH_MAX = 0.85


def choose_segments(
    patterns: Sequence[tuple[int, ...]],
    rates: Sequence[float],
    weighted: Collection[int] = (),
    *,
    worth: float | None = None,
    most: int = SEGMENTS_MAX,
) -> tuple[tuple[tuple[Part, ...], ...], tuple[tuple[int, ...], ...]]:
    """The patterns with segments cut out as long as that promises to pay, the best first; none has a `weighted` symbol,
    nor stands beside one. With one, a pattern must cost at most `worth` times what it did.

    >>> choose_segments([(0, 1, 2)], [1.0] * 3)
    (((0, 1, 2),), ())
    """
    worth = WORTH_MAX if worth is None else worth
    parts: tuple[tuple[Part, ...], ...] = tuple(tuple(pattern) for pattern in patterns)
    segments: tuple[tuple[int, ...], ...] = ()
    now = cost(parts, segments, rates)
    while len(segments) < most:
        best = None
        for candidate in _candidates(parts, rates, weighted):
            cut = tuple(_cut(pattern, candidate, len(segments), weighted) for pattern in parts)
            then = cost(cut, (*segments, candidate), rates)
            if then <= worth * now and (best is None or then < best[0]) and _is_orderly(cut, (*segments, candidate)):
                best = then, cut, candidate
        if best is None:
            break
        now, parts = best[0], best[1]
        segments = (*segments, best[2])
    return parts, segments


def _candidates(
    patterns: Sequence[tuple[Part, ...]], rates: Sequence[float], weighted: Collection[int]
) -> list[tuple[int, ...]]:
    """Substrings that stand behind several different beginnings, with an own part before and behind them."""
    places: dict[tuple[int, ...], set[tuple[Part, ...]]] = {}
    for pattern in patterns:
        for first in range(1, len(pattern) - 2):
            for last in range(first + 2, len(pattern)):
                inner = pattern[first:last]
                around = (pattern[first - 1], *inner, pattern[last])
                if any(isinstance(part, SegmentPart) or part in weighted for part in around):
                    continue
                places.setdefault(tuple(part for part in inner if isinstance(part, int)), set()).add(pattern[:first])
    saving = {
        segment: (len(starts) - 1) * sum(rates[symbol] for symbol in segment)
        for segment, starts in places.items()
        if len(starts) > 1
    }
    return sorted(saving, key=lambda segment: -saving[segment])[:_CANDIDATES_MAX]


def _cut(
    pattern: tuple[Part, ...], segment: tuple[int, ...], number: int, weighted: Collection[int]
) -> tuple[Part, ...]:
    """A pattern with the first place where a segment may stand taken by it."""
    width = len(segment)
    for first in range(1, len(pattern) - width):
        if pattern[first : first + width] == segment:
            neighbours = (pattern[first - 1], pattern[first + width])
            if not any(isinstance(part, SegmentPart) or part in weighted for part in neighbours):
                return (*pattern[:first], SegmentPart(number), *pattern[first + width :])
    return pattern


def _is_orderly(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]]) -> bool:
    """No two segments stand in both orders, so that within a moment the later one can be counted first."""
    try:
        build_shared_tables(patterns, segments, window=1, summed=[False] * len(patterns))
    except ValueError:
        return False
    return True
