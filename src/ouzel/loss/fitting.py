"""Maximum likelihood for weighted gaps, and the family that fits best."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.gaps import Duration, Exponential, Gamma, Gap, Histogram, LogNormal, Uniform

Array = NDArray[np.float64]

# With fewer gaps a histogram would show noise; with more, its bins hold a few dozen each.
_BINS_MAX = 40
# What "auto" chooses from.
AUTO = ("exponential", "gamma", "lognormal")


def best_gap(gaps: Array, weights: Array, families: Collection[str]) -> Gap:
    """The family that fits weighted gaps best by Schwarz's criterion."""
    return min((fit_gap(gaps, weights, name) for name in families), key=lambda gap: schwarz(gap, gaps, weights))


def fit_gap(gaps: Array, weights: Array, family: str) -> Gap:
    """Fit a family to weighted gaps.

    >>> fit_gap(np.array([5.0, 20.0]), np.array([2.0, 1.0]), "exponential")
    Exponential(mean=10.0)
    """
    kept = weights > 0
    return _FITS[family](gaps[kept], weights[kept])


def schwarz(gap: Gap, gaps: Array, weights: Array) -> float:
    """The Bayesian information criterion; smaller is better. An extra parameter must improve the fit clearly."""
    return _parameters(gap) * math.log(max(weights.sum(), 1.0)) - 2 * log_likelihood(gap, gaps, weights)


def log_likelihood(gap: Gap, gaps: Array, weights: Array) -> float:
    """Of weighted gaps."""
    return float(weights @ np.log(np.maximum(gap.density(gaps), 1e-300)))


def _parameters(gap: Gap) -> int:
    if isinstance(gap, Histogram):
        # The edges are quantiles, so they are fitted too.
        return 2 * len(gap.counts) - 1
    return 1 if isinstance(gap, Exponential) else 2


def with_units(gap: Gap) -> Gap:
    """Fitted in nanoseconds, so that the model holds for every tick of an input."""
    stored = gap.to_dict()
    changed: dict[str, Any] = {}
    for name, value in stored.items():
        if name in gap.lengths:
            changed[name] = [Duration(item) for item in value] if isinstance(value, list) else Duration(value)
        elif name != "family":
            changed[name] = value
    return type(gap)(**changed)


def _mean(values: Array, weights: Array) -> float:
    return float(values @ weights / weights.sum())


def _exponential(gaps: Array, weights: Array) -> Gap:
    return Exponential(_mean(gaps, weights))


def _gamma(gaps: Array, weights: Array) -> Gap:
    """Maximum likelihood: log(shape) - digamma(shape) = log(mean) - mean(log), solved by Newton's method."""
    mean = _mean(gaps, weights)
    spread = math.log(mean) - _mean(np.log(gaps), weights)
    if spread <= 1e-8:
        return Gamma(10_000.0, mean / 10_000)
    shape = (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    for _ in range(30):
        step = (math.log(shape) - _digamma(shape) - spread) / (1 / shape - _trigamma(shape))
        shape = max(shape - step, shape / 10)
        if abs(step) < 1e-12 * shape:
            break
    shape = min(max(shape, 0.1), 10_000.0)
    return Gamma(shape, mean / shape)


def _digamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    return (
        total + math.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    )


def _trigamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total += 1 / (x * x)
        x += 1
    inverse = 1 / (x * x)
    return total + 1 / x + inverse / 2 + inverse / x * (1 / 6 - inverse * (1 / 30 - inverse * (1 / 42 - inverse / 30)))


def _lognormal(gaps: Array, weights: Array) -> Gap:
    logs = np.log(gaps)
    middle = _mean(logs, weights)
    sigma = math.sqrt(_mean((logs - middle) ** 2, weights))
    return LogNormal(math.exp(middle), min(max(sigma, 0.001), 20.0))


def _uniform(gaps: Array, weights: Array) -> Gap:
    """A uniform distribution slightly wider than the observed gaps, because later gaps may be shorter or longer."""
    low, high = float(gaps.min()), float(gaps.max())
    beyond = max((high - low) / max(weights.sum() - 1, 1.0), 1e-6 * high)
    return Uniform(max(low - beyond, 0.0), high + beyond)


def _histogram(gaps: Array, weights: Array) -> Gap:
    """Bins of equal counts, so that the density is fine where there are many gaps."""
    bins = int(min(max(round(math.sqrt(weights.sum())), 1), _BINS_MAX))
    order = np.argsort(gaps)
    gaps, weights = gaps[order], weights[order]
    summed = np.cumsum(weights)
    # Where equal weights are interpolated as by np.quantile.
    places = (summed - weights / 2 - weights[0] / 2) / max(summed[-1] - (weights[0] + weights[-1]) / 2, 1e-300)
    edges = np.unique(np.interp(np.linspace(0, 1, bins + 1), places, gaps))
    edges = np.concatenate([[max(edges[0] * 0.999, 0.0)], edges[1:-1], [edges[-1] * 1.001 + 1e-9]])
    return binned(gaps, weights, edges)


def binned(gaps: Array, weights: Array, edges: Array) -> Gap:
    """A histogram with given edges; gaps beyond them count for the outer bins."""
    counts = np.histogram(np.clip(gaps, edges[0], edges[-1]), edges, weights=weights)[0]
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


_FITS: Mapping[str, Callable[[Array, Array], Gap]] = {
    "exponential": _exponential,
    "gamma": _gamma,
    "lognormal": _lognormal,
    "uniform": _uniform,
    "histogram": _histogram,
}
