"""Fits gap distributions to weighted gaps by maximum likelihood, and chooses the family that fits best."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.gaps import Duration, Exponential, Gamma, Gap, Histogram, LogNormal, Uniform

Array = NDArray[np.float64]

# The most places where a bin of a histogram may end.
_EDGES_MAX = 1_024
# What "auto" chooses from.
AUTO = ("exponential", "gamma", "lognormal")


def best_gap(gaps: Array, weights: Array, families: Collection[str]) -> Gap:
    """The distribution that fits weighted gaps best, among the given families, by Schwarz's criterion."""
    return min((fit_gap(gaps, weights, name) for name in families), key=lambda gap: schwarz(gap, gaps, weights))


def fit_gap(gaps: Array, weights: Array, family: str) -> Gap:
    """The distribution of one family that fits weighted gaps best.

    >>> fit_gap(np.array([5.0, 20.0]), np.array([2.0, 1.0]), "exponential")
    Exponential(mean=10.0)
    """
    kept = weights > 0
    return _FITS[family](gaps[kept], weights[kept])


def schwarz(gap: Gap, gaps: Array, weights: Array) -> float:
    """The Bayesian information criterion of a distribution; smaller is better. It makes sure that an additional
    parameter is used only if it improves the fit clearly.
    """
    return _parameters(gap) * math.log(max(weights.sum(), 1.0)) - 2 * log_likelihood(gap, gaps, weights)


def log_likelihood(gap: Gap, gaps: Array, weights: Array) -> float:
    """The log-likelihood of weighted gaps."""
    return float(weights @ np.log(np.maximum(gap.density(gaps), 1e-300)))


def _parameters(gap: Gap) -> int:
    if isinstance(gap, Histogram):
        # The edges are quantiles, so they are fitted too.
        return 2 * len(gap.counts) - 1
    return 1 if isinstance(gap, Exponential) else 2


def with_units(gap: Gap) -> Gap:
    """A distribution fitted in nanoseconds, with durations as its lengths, so that it is valid for inputs with any
    tick.
    """
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
    """The gamma distribution of maximum likelihood: log(shape) - digamma(shape) = log(mean) - mean(log), solved by
    Newton's method.
    """
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
    """The histogram whose bins maximise the likelihood minus Schwarz's penalty for each bin (Jackson et al. 2005).

    With bins of equal counts, the last bin would be as wide as the tail.
    """
    values, group = np.unique(gaps, return_inverse=True)
    before = np.concatenate([[0.0], np.cumsum(np.bincount(group, weights))])
    total = before[-1]
    edges = np.concatenate([[values[0] * 0.999], (values[1:] + values[:-1]) / 2, [values[-1] * 1.001 + 1e-9]])
    # Between equal shares of the gaps a bin may end, and in the tails between ever smaller ones.
    count = int(min(max(4 * round(math.sqrt(total)), 1), _EDGES_MAX))
    tails = 2.0 ** -np.arange(math.log2(max(total, 1.0)) + 2) / count
    levels = np.array([*np.linspace(0, 1, count + 1), *tails, *(1 - tails)]) * total
    allowed = np.unique([0, *np.searchsorted(before, levels * (1 - 1e-12)), len(values)])
    edges, before = edges[allowed], before[allowed]
    best, last = np.zeros(len(edges)), np.zeros(len(edges), int)
    for end in range(1, len(edges)):
        inside, width = before[end] - before[:end], edges[end] - edges[:end]
        worth = best[:end] + inside * np.log(np.maximum(inside, 1e-300) / width) - math.log(max(total, 1.0))
        last[end] = np.argmax(worth)
        best[end] = worth[last[end]]
    chosen = [len(edges) - 1]
    while chosen[-1] > 0:
        chosen.append(int(last[chosen[-1]]))
    return binned(gaps, weights, edges[chosen[::-1]])


def binned(gaps: Array, weights: Array, edges: Array) -> Gap:
    """A histogram with given edges. Gaps beyond the edges are counted in the first or last bin."""
    counts = np.histogram(np.clip(gaps, edges[0], edges[-1]), edges, weights=weights)[0]
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))


_FITS: Mapping[str, Callable[[Array, Array], Gap]] = {
    "exponential": _exponential,
    "gamma": _gamma,
    "lognormal": _lognormal,
    "uniform": _uniform,
    "histogram": _histogram,
}
