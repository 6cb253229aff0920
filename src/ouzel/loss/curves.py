"""Functions as polynomials on pieces: on panels, for the integrals of AYAC's section 3, and lookup tables of a function
of an integer number of ticks.

A *panel* is the interval between two neighbouring breaks. A function is stored by its values at the Gauss points of
each panel, or by their logarithms if those are smoother, so that tails keep their relative precision.

A table's error is at most ERROR_RELATIVE (of the value) or ERROR_ABSOLUTE, whichever is larger. Pieces are halved until
the polynomial agrees with the function between its nodes to a quarter of that. Near a jump, pieces shrink to single
ticks, whose values are exact. Values that are exactly 0 and constant functions are stored exactly.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.polynomial import chebyshev, legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

_DEGREE = 14
_GAUSS_NODES, _WEIGHTS = legendre.leggauss(_DEGREE)
_TO_COEFFICIENTS = np.linalg.inv(legendre.legvander(_GAUSS_NODES, _DEGREE - 1))
# Antiderivatives of the Legendre polynomials from -1, at the nodes: a matrix on values at nodes.
_INTEGRATION = (
    np.stack(
        [
            legendre.legval(_GAUSS_NODES, legendre.legint(np.eye(_DEGREE)[k], lbnd=-1))
            for k in range(_DEGREE)
        ],
        axis=1,
    )
    @ _TO_COEFFICIENTS
)  # fmt: skip
# Neighbouring breaks differ by at least this factor, unless the density jumps there.
_RATIO_MIN = 1.25
_KINKS_MAX = 300
# The number of values computed at once, so that convolutions do not fill the memory.
_CHUNK_VALUES = 4_000_000


def breaks_for(landmarks: Iterable[float], kinks: Sequence[float], width: float) -> Array:
    """Panels of (0, width] that resolve every landmark, and also the kinks of a sum of up to three gaps."""
    sums = {0.0}
    for _ in range(3):
        sums |= {a + kink for a in sums for kink in kinks}
        if len(sums) > _KINKS_MAX:
            break
    exact = sorted(point for point in sums if 0 < point < width)
    loose = sorted({*landmarks, *(width * 2.0**-k for k in range(1, 9)), *(width * k / 4 for k in range(1, 4))})
    kept = list(exact)
    for point in loose:
        # Landmarks of several gaps that nearly coincide make one panel.
        near = bisect.bisect(kept, point)
        clear_below = near == 0 or point > kept[near - 1] * _RATIO_MIN
        clear_above = point * _RATIO_MIN < (kept[near] if near < len(kept) else width)
        if point > 0 and clear_below and clear_above:
            kept.insert(near, point)
    return np.array([0.0, *kept, width])


class Panels:
    """A function on (0, W] that can be evaluated anywhere in it.

    >>> line = Panels.of(lambda t: 3 * t, np.array([0.0, 1.0, 2.0]))
    >>> line(np.array([0.5, 2.0])).round(12).tolist()
    [1.5, 6.0]
    """

    def __init__(self, breaks: Array, values: Array) -> None:
        self.breaks = breaks
        self.values = values
        lowest = values.min(axis=1)
        plain = values @ _TO_COEFFICIENTS.T
        logarithms = np.log(np.where(values > 0, values, 1.0)) @ _TO_COEFFICIENTS.T
        # The relative truncation error of each representation: take the better one.
        left_out = np.abs(plain[:, -3:]).max(axis=1)
        self._logarithmic = (lowest > 0) & (np.abs(logarithms[:, -3:]).max(axis=1) * lowest < left_out)
        self._coefficients = np.where(self._logarithmic[:, None], logarithms, plain)

    @staticmethod
    def nodes(breaks: Array) -> Array:
        """The Gauss points of every panel."""
        middle, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
        return np.asarray(middle[:, None] + half[:, None] * _GAUSS_NODES[None, :])

    @classmethod
    def of(cls, function: Function, breaks: Array) -> Panels:
        return cls(breaks, function(cls.nodes(breaks).ravel()).reshape(-1, _DEGREE))

    def __call__(self, t: Array) -> Array:
        panel = np.clip(np.searchsorted(self.breaks, t, side="left") - 1, 0, len(self.breaks) - 2)
        low, high = self.breaks[panel], self.breaks[panel + 1]
        x = np.clip((2 * t - low - high) / (high - low), -1.0, 1.0)
        value = legendre.legval(x, np.moveaxis(self._coefficients[panel], -1, 0), tensor=False)
        logarithmic = self._logarithmic[panel]
        with np.errstate(over="ignore"):
            found = np.where(logarithmic, np.exp(np.where(logarithmic, value, 0.0)), np.maximum(value, 0.0))
        return np.where((t > 0) & (t <= self.breaks[-1]), found, 0.0)

    def antiderivative_of_product(self, density: Array) -> Panels:
        """∫ from 0 of this function times a density, given at the same nodes (S^PP of AYAC 3.3)."""
        half = np.diff(self.breaks)[:, None] / 2
        product = self.values * density
        whole = (product @ _WEIGHTS) * half[:, 0]
        before = np.concatenate([[0.0], np.cumsum(whole)[:-1]])
        return Panels(self.breaks, np.maximum(before[:, None] + (product @ _INTEGRATION.T) * half, 0.0))


def convolution(first: Function, second: Function, breaks: Array, at: Array) -> Array:
    """∫ over (0, T) of first(t) second(T - t) dt for each T, with panels that suit both.

    Each half is measured from its own end, so that a density that is infinite at 0 gets exact small arguments.
    """
    return _half(first, second, breaks, at) + _half(second, first, breaks, at)


def _half(near: Function, far: Function, breaks: Array, at: Array) -> Array:
    """∫ over (0, T/2) of near(t) far(T - t) dt."""
    found = np.empty(len(at))
    step = max(1, _CHUNK_VALUES // (2 * len(breaks) * _DEGREE))
    for low in range(0, len(at), step):
        ends = at[low : low + step, None]
        pieces = np.concatenate([np.broadcast_to(breaks, (len(ends), len(breaks))), ends - breaks], axis=1)
        pieces = np.sort(np.clip(pieces, 0.0, ends / 2), axis=1)
        half = np.diff(pieces, axis=1) / 2
        middle = (pieces[:, 1:] + pieces[:, :-1]) / 2
        t = middle[:, :, None] + half[:, :, None] * _GAUSS_NODES
        weights = half[:, :, None] * _WEIGHTS
        wanted = weights > 0
        rest = np.broadcast_to(ends[:, :, None], t.shape) - t
        product = np.zeros(t.shape)
        product[wanted] = weights[wanted] * near(t[wanted]) * far(rest[wanted])
        found[low : low + step] = product.sum(axis=(1, 2))
    return found


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
