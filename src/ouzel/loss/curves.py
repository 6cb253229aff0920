"""Functions stored as polynomials on pieces: either on panels, for integrals and convolutions, or as lookup tables over
an integer number of ticks.

A *panel* is the interval between two adjacent breaks. It stores a function's values at its Gauss points, or their
logarithms if these are smoother, so that small values in tails keep their relative precision.

The error of a lookup table is at most ERROR_RELATIVE (of the value) or ERROR_ABSOLUTE, whichever is larger. Pieces are
halved until the polynomial differs from the function, between its nodes, by at most a quarter of that. Near a jump,
pieces shrink to single ticks, whose values are exact. Zeros and constant functions are stored exactly.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable
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
_LEGENDRE_TO_POWERS = np.stack(
    [np.pad(legendre.leg2poly(row), (0, _DEGREE))[:_DEGREE] for row in np.eye(_DEGREE)], axis=1
)
_GAUSS = _GAUSS_NODES, _WEIGHTS
_FEWER_GAUSS = legendre.leggauss(8)
_MANY_PIECES = 60
# Panels are halved until the last coefficients are below this share of the values, or there are too many of them.
_UNRESOLVED = 1e-9
_CANCELLED = 1e-6
_PANELS_MAX = 120
_HALVINGS_MAX = 40
# The number of values computed at once, so that convolutions do not fill the memory.
_CHUNK_VALUES = 4_000_000


def breaks_for(points: Iterable[float], width: float) -> Array:
    """Breaks of panels of (0, width]. Every given point is a break, and the end of a panel is at most twice its
    beginning.
    """
    inside = sorted({point for point in points if 0 < point < width})
    lowest = inside[0] if inside else width / 2
    doubled = [lowest * 2.0**k for k in range(1, max(1, int(np.ceil(np.log2(width / lowest)))))]
    kept = list(inside)
    for point in doubled:
        near = bisect.bisect(kept, point)
        clear_below = point > kept[near - 1] * 1.25 if near else True
        if clear_below and point * 1.25 < (kept[near] if near < len(kept) else width):
            kept.insert(near, point)
    return np.array([0.0, *kept, width])


@dataclass(frozen=True)
class Pieces:
    """A function that is smooth between adjacent breaks. The breaks begin with 0 and end with the function's width.

    The function or its derivatives may jump at `kinks`. `marks` are a few points that span where the function is not
    small. A function that is constant between edges, and 0 outside of them, has these and its values as `steps`.
    """

    function: Function
    breaks: Array
    kinks: tuple[float, ...] = ()
    marks: tuple[float, ...] = ()
    steps: tuple[Array, Array] | None = None

    def __call__(self, t: Array) -> Array:
        return self.function(t)


class Panels:
    """A function on (0, W], stored by its values in panels. It can be evaluated anywhere.

    >>> line = Panels.of(lambda t: 3 * t, np.array([0.0, 1.0, 2.0]))
    >>> line(np.array([0.5, 2.0])).round(12).tolist()
    [1.5, 6.0]
    """

    def __init__(self, breaks: Array, values: Array) -> None:
        self.breaks = breaks
        self.values = values
        self._logarithmic, coefficients, _ = _fit_panels(values)
        self._powers = np.ascontiguousarray((coefficients @ _LEGENDRE_TO_POWERS.T).T)

    @staticmethod
    def nodes(breaks: Array) -> Array:
        """The Gauss points of every panel."""
        middle, half = (breaks[1:] + breaks[:-1]) / 2, np.diff(breaks) / 2
        return np.asarray(middle[:, None] + half[:, None] * _GAUSS_NODES[None, :])

    @classmethod
    def of(cls, function: Function, breaks: Array) -> Panels:
        return cls(breaks, function(cls.nodes(breaks).ravel()).reshape(-1, _DEGREE))

    @classmethod
    def resolving(cls, function: Function, breaks: Array) -> Panels:
        """The function on panels that are halved until their polynomials are accurate enough."""
        done_breaks: list[float] = []
        done_values: list[Array] = []
        low, high = breaks[:-1], breaks[1:]
        largest = 0.0
        for halving in range(_HALVINGS_MAX):
            ends = np.stack([low, high], axis=1)
            middle, half = ends.mean(axis=1), (high - low) / 2
            nodes = middle[:, None] + half[:, None] * _GAUSS_NODES
            values = function(nodes.ravel()).reshape(nodes.shape)
            largest = max(largest, float(values.max(initial=0.0)))
            _, _, error = _fit_panels(values)
            allowed = _UNRESOLVED * (np.abs(values).max(axis=1) + 1e-6 * largest)
            fits = error <= allowed
            if len(low) + len(done_breaks) > _PANELS_MAX or halving == _HALVINGS_MAX - 1:
                fits[:] = True
            done_breaks += low[fits].tolist()
            done_values += list(values[fits])
            low, high, middle = low[~fits], high[~fits], middle[~fits]
            if not len(low):
                break
            low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
        order = np.argsort(done_breaks)
        return cls(np.array([*np.array(done_breaks)[order], breaks[-1]]), np.array(done_values)[order])

    def __call__(self, t: Array) -> Array:
        panel = np.clip(np.searchsorted(self.breaks, t, side="right") - 1, 0, len(self.breaks) - 2)
        low, high = self.breaks[panel], self.breaks[panel + 1]
        x = np.clip((2 * t - low - high) / (high - low), -1.0, 1.0)
        value = self._powers[-1][panel]
        for powers in self._powers[-2::-1]:
            value = value * x + powers[panel]
        logarithmic = self._logarithmic[panel]
        with np.errstate(over="ignore"):
            found = np.where(logarithmic, np.exp(np.where(logarithmic, value, 0.0)), np.maximum(value, 0.0))
        return np.where((t > 0) & (t <= self.breaks[-1]), found, 0.0)

    def antiderivative_of_product(self, density: Array) -> Panels:
        """The integral, from 0 on, of this function times a density that is given at the same nodes (S^PP of AYAC
        3.3).
        """
        half = np.diff(self.breaks)[:, None] / 2
        product = self.values * density
        whole = (product @ _WEIGHTS) * half[:, 0]
        before = np.concatenate([[0.0], np.cumsum(whole)[:-1]])
        return Panels(self.breaks, np.maximum(before[:, None] + (product @ _INTEGRATION.T) * half, 0.0))


def _fit_panels(values: Array) -> tuple[NDArray[np.bool_], Array, Array]:
    """For each panel: (whether logarithms are more accurate, the coefficients, the truncation error)."""
    lowest = values.min(axis=1)
    plain = values @ _TO_COEFFICIENTS.T
    logarithms = np.log(np.where(values > 0, values, 1.0)) @ _TO_COEFFICIENTS.T
    plain_error = np.abs(plain[:, -3:]).max(axis=1)
    logarithm_error = np.abs(logarithms[:, -3:]).max(axis=1)
    logarithmic = (lowest > 0) & (logarithm_error * lowest < plain_error)
    error = np.where(logarithmic, logarithm_error * np.abs(values).max(axis=1), plain_error)
    return logarithmic, np.where(logarithmic[:, None], logarithms, plain), error


def convolution(first: Pieces, second: Pieces, at: Array) -> Array:
    """∫ over (0, T) of first(t) second(T - t) dt, for each T in `at`.

    It is computed as two halves, each with a variable that starts at its own end. So a density that is infinite at 0 is
    evaluated at exact small arguments. A function of steps needs only the antiderivative of the other.
    """
    if second.steps is None:
        return _half(first, second, at) + _half(second, first, at)
    found, terms = _stepped(first, *second.steps, at)
    # Where large terms cancel each other, as in tails, little of the difference is right.
    cancelled = found < _CANCELLED * terms
    if cancelled.any():
        rest = at[cancelled]
        found[cancelled] = _half(first, second, rest) + _half(second, first, rest)
    return found


def _stepped(first: Pieces, edges: Array, values: Array, at: Array) -> tuple[Array, Array]:
    """∫ of first(T - t) times each value, between neighbouring edges; and the sum of the terms without their signs."""
    panels = first.function if isinstance(first.function, Panels) else Panels.of(first.function, first.breaks)
    summed = panels.antiderivative_of_product(np.ones_like(panels.values))
    jumps = np.diff(values, prepend=0.0, append=0.0)
    found, terms = np.zeros(len(at)), np.zeros(len(at))
    for edge, jump in zip(edges, jumps, strict=True):
        term = jump * summed(at - edge)
        found += term
        terms += np.abs(term)
    return found, terms


def _half(near: Pieces, far: Pieces, at: Array) -> Array:
    """∫ over (0, T/2) of near(t) far(T - t) dt."""
    found = np.empty(len(at))
    count = len(near.breaks) + len(far.breaks)
    # Many pieces are short, so fewer points in each do.
    nodes, weights = _GAUSS if count < _MANY_PIECES else _FEWER_GAUSS
    step = max(1, _CHUNK_VALUES // (count * len(nodes)))
    for low in range(0, len(at), step):
        ends = at[low : low + step, None]
        pieces = np.concatenate(
            [np.broadcast_to(near.breaks, (len(ends), len(near.breaks))), ends - far.breaks], axis=1
        )
        pieces = np.sort(np.clip(pieces, 0.0, ends / 2), axis=1)
        half = np.diff(pieces, axis=1) / 2
        row, piece = np.nonzero(half > 0)
        half = half[row, piece]
        t = (pieces[row, piece] + half)[:, None] + half[:, None] * nodes
        rest = ends[row] - t
        values = near(t.ravel()) * far(rest.ravel())
        found[low : low + step] = np.bincount(row, (values.reshape(t.shape) @ weights) * half, len(ends))
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
    """Whether a function only rises, or only falls, with time. This makes bounds tighter (AYAC 5.1)."""

    NEITHER = 0
    RISING = 1
    FALLING = 2


@dataclass(frozen=True)
class Curve:
    """A function on the integers 1 … window, as a lookup table.

    A piece is scaled to [-1, 1] by `middle` and `half`, and is there a polynomial with its coefficients. If half = 0,
    the coefficients are the values at the first ticks of the piece. `ceiling` is an upper bound of the function from 1
    to the end of a piece.
    """

    low: NDArray[np.int64]
    middle: Array
    half: Array
    coefficients: Array
    ceiling: Array
    trend: Trend
    best: float
    largest: float = 1.0

    @property
    def constant(self) -> float | None:
        """The value of a constant function; None for other functions."""
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
        return np.where(listed, self.coefficients[piece, offset], np.clip(value, 0.0, self.largest))


def build_curve(
    function: Callable[[Array], Array],
    window: int,
    trend: Trend = Trend.NEITHER,
    *,
    kinks: Iterable[float] = (),
    largest: float = 1.0,
    absolute: float = ERROR_ABSOLUTE,
) -> Curve:
    """A lookup table of a function with values in [0, `largest`]. No piece crosses a kink.

    >>> curve = build_curve(lambda t: 1 - np.exp(-t / 5e9), 10**11, Trend.RISING)
    >>> len(curve.low) < 60, bool(abs(curve(np.array([10**9]))[0] - 0.18126924692201815) < 1e-9)
    (True, True)
    """
    done: list[tuple[int, float, float, Array, float]] = []
    starts = np.array([1, *sorted({int(np.ceil(kink)) for kink in kinks if 1 < kink <= window})], np.int64)
    pending = np.stack([starts, np.append(starts[1:] - 1, window)], axis=1)
    while len(pending):
        few = pending[:, 1] - pending[:, 0] < COEFFICIENTS
        done += _listed(function, pending[few])
        pending = pending[~few]
        if len(pending):
            fits, made = _fitted(function, pending, absolute)
            done += made
            low, high = pending[~fits].T
            middle = (low + high) // 2
            pending = np.concatenate([np.stack([low, middle], axis=1), np.stack([middle + 1, high], axis=1)])
    done.sort(key=lambda piece: piece[0])
    low, middle, half, coefficients, highest = (np.array(column) for column in zip(*done, strict=True))
    ceiling = np.maximum.accumulate(np.minimum(highest, largest))
    return Curve(low, middle, half, coefficients, ceiling, trend, float(ceiling[-1]), largest)


def _listed(
    function: Callable[[Array], Array], pieces: NDArray[np.int64]
) -> list[tuple[int, float, float, Array, float]]:
    """Pieces that are so short that they store their values."""
    if not len(pieces):
        return []
    ticks = pieces[:, :1] + np.arange(COEFFICIENTS)
    ticks = np.minimum(ticks, pieces[:, 1:])
    values = function(ticks.ravel().astype(np.float64)).reshape(ticks.shape)
    return [(int(low), 0.0, 0.0, row, float(row.max())) for (low, _), row in zip(pieces, values, strict=True)]


def _fitted(
    function: Callable[[Array], Array], pieces: NDArray[np.int64], absolute: float
) -> tuple[NDArray[np.bool_], list[tuple[int, float, float, Array, float]]]:
    """(which pieces a polynomial fits, the polynomials of these)."""
    middle, half = (pieces[:, 0] + pieces[:, 1]) / 2, (pieces[:, 1] - pieces[:, 0]) / 2
    places = np.concatenate([_NODES, _BETWEEN])
    values = function((middle[:, None] + half[:, None] * places).ravel()).reshape(len(pieces), -1)
    nodes, between = values[:, :COEFFICIENTS], values[:, COEFFICIENTS:]
    coefficients = nodes @ _TO_CHEBYSHEV.T
    error = np.abs(coefficients @ chebyshev.chebvander(_BETWEEN, COEFFICIENTS - 1).T - between)
    allowed = _CHECKED_SHARE * np.maximum(ERROR_RELATIVE * np.abs(between), absolute)
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
