"""The two special functions that gap distributions need, over arrays. Uses numpy only, because Ouzel does not depend on
scipy."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_ITERATIONS_MAX = 100_000
_SMALLEST = 1e-300
_CLOSE = 1e-16


def complementary_error(x: Array) -> Array:
    """erfc, to the last digits of a double.

    >>> float(complementary_error(np.array([0.0]))[0])
    1.0
    """
    return np.fromiter((math.erfc(value) for value in x.ravel()), np.float64, x.size).reshape(x.shape)


def incomplete_gamma(shape: float, x: Array) -> tuple[Array, Array]:
    """The regularised incomplete gamma functions, lower and upper, each with a small relative error.

    The series is used below the mean and the continued fraction above it, so that neither subtracts nearly equal
    numbers (Numerical Recipes 6.2).

    >>> lower, upper = incomplete_gamma(1.0, np.array([2.0]))
    >>> bool(np.isclose(upper[0], np.exp(-2.0), rtol=1e-14, atol=0.0))
    True
    """
    lower, upper = np.zeros(x.shape), np.ones(x.shape)
    inside = np.isfinite(x) & (x > 0)
    small = inside & (x < shape + 1)
    large = inside & ~small
    beyond = np.isposinf(x)
    lower[small] = _series(shape, x[small])
    upper[small] = 1 - lower[small]
    upper[large] = _continued_fraction(shape, x[large])
    lower[large] = 1 - upper[large]
    lower[beyond], upper[beyond] = 1.0, 0.0
    return lower, upper


def _front(shape: float, x: Array) -> Array:
    return np.exp(shape * np.log(x) - x - math.lgamma(shape))


def _series(shape: float, x: Array) -> Array:
    term = np.full(x.shape, 1 / shape)
    total = term.copy()
    for step in range(1, _ITERATIONS_MAX):
        term *= x / (shape + step)
        total += term
        if not np.any(term > total * _CLOSE):
            break
    return np.asarray(np.minimum(total * _front(shape, x), 1.0))


def _continued_fraction(shape: float, x: Array) -> Array:
    """Lentz's method."""
    b = x + 1 - shape
    c = np.full(x.shape, 1 / _SMALLEST)
    d = 1 / b
    value = d.copy()
    for step in range(1, _ITERATIONS_MAX):
        numerator = -step * (step - shape)
        b = b + 2
        d = numerator * d + b
        d = 1 / np.where(np.abs(d) < _SMALLEST, _SMALLEST, d)
        c = b + numerator / c
        c = np.where(np.abs(c) < _SMALLEST, _SMALLEST, c)
        factor = c * d
        value *= factor
        if not np.any(np.abs(factor - 1) > 1e-15):
            break
    return np.asarray(np.clip(value * _front(shape, x), 0.0, 1.0))
