"""Functions on (0, W] as polynomials on panels, and the integrals of AYAC's section 3 over them.

A *panel* is the interval between two neighbouring breaks. A function is stored by its values at the Gauss points of
each panel, or by their logarithms if those are smoother, so that tails keep their relative precision.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

_DEGREE = 14
_NODES, _WEIGHTS = legendre.leggauss(_DEGREE)
_TO_COEFFICIENTS = np.linalg.inv(legendre.legvander(_NODES, _DEGREE - 1))
# Antiderivatives of the Legendre polynomials from -1, at the nodes: a matrix on values at nodes.
_INTEGRATION = (
    np.stack(
        [
            legendre.legval(_NODES, legendre.legint(np.eye(_DEGREE)[k], lbnd=-1))
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
        return np.asarray(middle[:, None] + half[:, None] * _NODES[None, :])

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
        t = middle[:, :, None] + half[:, :, None] * _NODES
        weights = half[:, :, None] * _WEIGHTS
        wanted = weights > 0
        rest = np.broadcast_to(ends[:, :, None], t.shape) - t
        product = np.zeros(t.shape)
        product[wanted] = weights[wanted] * near(t[wanted]) * far(rest[wanted])
        found[low : low + step] = product.sum(axis=(1, 2))
    return found
