"""Lookup tables: a function of an integer number of ticks, as short polynomials on small pieces.

A table's error is at most ERROR_RELATIVE (of the value) or ERROR_ABSOLUTE, whichever is larger. Pieces are halved until
the polynomial agrees with the function between its nodes to a quarter of that. Near a jump, pieces shrink to single
ticks, whose values are exact. Values that are exactly 0 and constant functions are stored exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

Array = NDArray[np.float64]

ERROR_RELATIVE = 1e-9
ERROR_ABSOLUTE = 1e-15
COEFFICIENTS = 8
# Between the checked points the error was up to 1.5 times the error at them.
_CHECKED_SHARE = 0.25

_NODES = np.cos(np.pi * (2 * np.arange(COEFFICIENTS) + 1) / (2 * COEFFICIENTS))
_BETWEEN = np.cos(np.pi * np.arange(COEFFICIENTS + 1) / COEFFICIENTS)
_TO_CHEBYSHEV = np.linalg.inv(chebyshev.chebvander(_NODES, COEFFICIENTS - 1))
_TO_POWERS = np.stack(
    [np.pad(chebyshev.cheb2poly(row), (0, COEFFICIENTS))[:COEFFICIENTS] for row in np.eye(COEFFICIENTS)], axis=1
)


class Trend(IntEnum):
    """Whether a function only rises or only falls with time, which makes bounds tighter (AYAC 5.1)."""

    NEITHER = 0
    RISING = 1
    FALLING = 2


@dataclass(frozen=True)
class Curve:
    """A function on the whole numbers 1 … window.

    `middle` and `half` map a piece to [-1, 1], where its coefficients apply to powers. half = 0 marks a piece whose
    coefficients are the values at its first ticks. `ceiling` bounds the function from 1 to the end of a piece.
    """

    low: NDArray[np.int64]
    middle: Array
    half: Array
    coefficients: Array
    ceiling: Array
    trend: Trend
    best: float

    @property
    def constant(self) -> float | None:
        """The value of a constant function, otherwise None."""
        if len(self.low) == 1 and not self.coefficients[0, 1:].any() and self.half[0] > 0:
            return float(self.coefficients[0, 0])
        return None

    def __call__(self, t: NDArray[np.int64]) -> Array:
        piece = np.searchsorted(self.low, t, side="right") - 1
        half = self.half[piece]
        listed = half == 0
        x = (t - self.middle[piece]) / np.where(listed, 1.0, half)
        value = np.zeros(len(t))
        for k in range(COEFFICIENTS - 1, -1, -1):
            value = value * x + self.coefficients[piece, k]
        offset = np.clip(t - self.low[piece], 0, COEFFICIENTS - 1)
        return np.where(listed, self.coefficients[piece, offset], np.clip(value, 0.0, 1.0))


def build_curve(function: Callable[[Array], Array], window: int, trend: Trend = Trend.NEITHER) -> Curve:
    """Tabulate a function with values in [0, 1].

    >>> curve = build_curve(lambda t: 1 - np.exp(-t / 5e9), 10**11, Trend.RISING)
    >>> len(curve.low) < 60, bool(abs(curve(np.array([10**9]))[0] - 0.18126924692201815) < 1e-9)
    (True, True)
    """
    done: list[tuple[int, float, float, Array, float]] = []
    pending = np.array([[1, window]], np.int64)
    while len(pending):
        few = pending[:, 1] - pending[:, 0] < COEFFICIENTS
        done += _listed(function, pending[few])
        pending = pending[~few]
        if len(pending):
            fits, made = _fitted(function, pending)
            done += made
            low, high = pending[~fits].T
            middle = (low + high) // 2
            pending = np.concatenate([np.stack([low, middle], axis=1), np.stack([middle + 1, high], axis=1)])
    done.sort(key=lambda piece: piece[0])
    low, middle, half, coefficients, highest = (np.array(column) for column in zip(*done, strict=True))
    ceiling = np.maximum.accumulate(np.minimum(highest, 1.0))
    return Curve(low, middle, half, coefficients, ceiling, trend, float(ceiling[-1]))


def _listed(
    function: Callable[[Array], Array], pieces: NDArray[np.int64]
) -> list[tuple[int, float, float, Array, float]]:
    """Pieces so short that their values are listed."""
    if not len(pieces):
        return []
    ticks = pieces[:, :1] + np.arange(COEFFICIENTS)
    ticks = np.minimum(ticks, pieces[:, 1:])
    values = function(ticks.ravel().astype(np.float64)).reshape(ticks.shape)
    return [(int(low), 0.0, 0.0, row, float(row.max())) for (low, _), row in zip(pieces, values, strict=True)]


def _fitted(
    function: Callable[[Array], Array], pieces: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], list[tuple[int, float, float, Array, float]]]:
    """The pieces that a polynomial fits, and those polynomials."""
    middle, half = (pieces[:, 0] + pieces[:, 1]) / 2, (pieces[:, 1] - pieces[:, 0]) / 2
    places = np.concatenate([_NODES, _BETWEEN])
    values = function((middle[:, None] + half[:, None] * places).ravel()).reshape(len(pieces), -1)
    nodes, between = values[:, :COEFFICIENTS], values[:, COEFFICIENTS:]
    coefficients = nodes @ _TO_CHEBYSHEV.T
    error = np.abs(coefficients @ chebyshev.chebvander(_BETWEEN, COEFFICIENTS - 1).T - between)
    allowed = _CHECKED_SHARE * np.maximum(ERROR_RELATIVE * np.abs(between), ERROR_ABSOLUTE)
    fits = (error <= allowed).all(axis=1)
    # A value that is exactly 0 decides whether a path is reported, so it is never smoothed.
    zero = values == 0
    fits &= ~zero.any(axis=1) | zero.all(axis=1)
    constant = values.max(axis=1) == values.min(axis=1)
    made = []
    for place in np.flatnonzero(fits):
        powers = _TO_POWERS @ coefficients[place]
        # Chebyshev polynomials stay within [-1, 1], so this also bounds the piece between its nodes.
        highest = coefficients[place, 0] + np.abs(coefficients[place, 1:]).sum()
        if constant[place]:
            powers = np.array([values[place, 0]] + [0.0] * (COEFFICIENTS - 1))
            highest = values[place, 0]
        made.append((int(pieces[place, 0]), float(middle[place]), float(half[place]), powers, float(highest)))
    return fits, made
