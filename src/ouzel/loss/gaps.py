"""Gaps, the times from one component to the next: five families of distributions.

A plain number is a length in ticks. A text ("10 min") or a timedelta is a duration, which `in_ticks` converts once the
tick is known.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ouzel.errors import InputError, QueryError, argument
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT

Array = NDArray[np.float64]

# Between these quantiles every family is smooth enough for a polynomial of moderate degree.
_LANDMARKS = (1e-12, 1e-8, 1e-5, 1e-3, 0.02, 0.1, 0.3, 0.6)
_LOGARITHMS = np.linspace(-300.0, 300.0, 4801)


@dataclass(frozen=True, slots=True)
class Duration:
    """A length of time in nanoseconds. It does not depend on the ticks of an input."""

    nanoseconds: float


Length = float | Duration
GivenLength = float | str | timedelta | Duration


def length_of(given: GivenLength, what: str) -> Length:
    """A length of time from a user: a number of ticks, text like "10 min", or a timedelta.

    >>> length_of("1 min", "mean")
    Duration(nanoseconds=60000000000.0)
    """
    if isinstance(given, Duration):
        return given
    if isinstance(given, timedelta):
        return Duration(given / timedelta(microseconds=1) * 1000)
    if isinstance(given, str):
        from ouzel.lang import parse_expression
        from ouzel.lang.syntax import Duration as WrittenDuration

        try:
            parsed = parse_expression(given)
        except QueryError as error:
            raise InputError(f"{what}='{given}' is not a duration: {error.message}") from None
        if not isinstance(parsed, WrittenDuration):
            raise InputError(f"{what}='{given}' is not a duration; write it like '5 s' or '2 hours'")
        return Duration(float(parsed.amount) * NANOSECONDS_OF_UNIT[parsed.unit])
    return number_of(given, what)


def number_of(given: Any, what: str) -> float:
    """The value as a finite number. Raises an error if it is not one."""
    if isinstance(given, bool) or not isinstance(given, int | float | np.integer | np.floating):
        raise InputError(f"{what} must be a number, got {given!r}")
    if not math.isfinite(given):
        raise InputError(f"{what} must be finite, got {given!r}")
    return float(given)


def in_ticks(length: GivenLength, tick_ns: int | None, what: str) -> float:
    """A length, already checked, in ticks."""
    if not isinstance(length, Duration):
        return _known(length)
    if tick_ns is None:
        raise InputError(
            f"{what} has a unit, but the time column holds bare numbers; give ",
            argument("time_unit"),
            " to say what they count, or a number of ticks",
        )
    return length.nanoseconds / tick_ns


@dataclass(frozen=True)
class Gap(ABC):
    """The distribution of a gap. To compute its density, cdf or survival, all its lengths must be in ticks."""

    family: ClassVar[str]
    # Fields that hold a length of time, or several.
    lengths: ClassVar[tuple[str, ...]]

    def in_ticks(self, tick_ns: int | None) -> Gap:
        """The same distribution with every length in ticks. `tick_ns` is None if ticks have no unit."""
        changed: dict[str, Any] = {}
        for name in self.lengths:
            value = getattr(self, name)
            if isinstance(value, tuple):
                changed[name] = tuple(in_ticks(item, tick_ns, f"'{name}' of a gap") for item in value)
            else:
                changed[name] = in_ticks(value, tick_ns, f"'{name}' of a gap")
        return replace(self, **changed)

    @abstractmethod
    def density(self, t: Array) -> Array:
        """The probability density at gaps of t ticks."""

    @abstractmethod
    def cdf(self, t: Array) -> Array:
        """The probability that a gap is at most t ticks."""

    @abstractmethod
    def survival(self, t: Array) -> Array:
        """The probability that a gap is longer than t ticks. Small values have a small relative error."""

    @property
    def kinks(self) -> tuple[float, ...]:
        """The gaps at which the density jumps."""
        return ()

    @property
    def steps(self) -> tuple[Array, Array] | None:
        """Of a density that is constant between edges, these and its values."""
        return None

    def landmarks(self) -> list[float]:
        """Gaps at which panels should end, so that the density is smooth inside each panel."""
        # On a logarithmic scale: landmarks need only one or two digits.
        t = np.exp(_LOGARITHMS)
        low = t[np.minimum(np.searchsorted(self.cdf(t), _LANDMARKS), len(t) - 1)]
        high = t[np.minimum(np.searchsorted(-self.survival(t), -np.array(_LANDMARKS)), len(t) - 1)]
        return sorted({*low.tolist(), *high.tolist(), *self.kinks})

    def to_dict(self) -> dict[str, Any]:
        """The distribution as plain values for JSON."""
        return {"family": self.family, **{f.name: plain(getattr(self, f.name)) for f in fields(self)}}

    @abstractmethod
    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Random gaps, in ticks."""

    def _check(self, condition: bool, message: str) -> None:
        if not condition:
            raise InputError(f"the gap {self.family} {message}")


def _size(length: GivenLength) -> float:
    return length.nanoseconds if isinstance(length, Duration) else _known(length)


def _known(length: GivenLength) -> float:
    """A length that is already in ticks."""
    assert isinstance(length, float), "asked before `in_ticks`"
    return length


def plain(value: Any) -> Any:
    """Lengths as plain values for JSON."""
    if isinstance(value, Duration):
        return {"ns": value.nanoseconds}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


@dataclass(frozen=True)
class Exponential(Gap):
    """A gap without memory: its remaining length does not depend on the time that has passed.

    >>> Exponential(mean=10).cdf(np.array([10.0])).round(4).tolist()
    [0.6321]
    """

    mean: GivenLength

    family = "exponential"
    lengths = ("mean",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", length_of(self.mean, "mean"))
        self._check(_size(self.mean) > 0, "needs a positive mean")

    def density(self, t: Array) -> Array:
        return np.where(t >= 0, np.exp(-np.maximum(t, 0.0) / _known(self.mean)) / _known(self.mean), 0.0)

    def cdf(self, t: Array) -> Array:
        return np.asarray(-np.expm1(-np.maximum(t, 0.0) / _known(self.mean)))

    def survival(self, t: Array) -> Array:
        return np.asarray(np.exp(-np.maximum(t, 0.0) / _known(self.mean)))

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return rng.exponential(_known(self.mean), count)


@dataclass(frozen=True)
class Gamma(Gap):
    """A gap that is a sum of exponential ones: with shape 3 and scale 10, of three with mean 10."""

    shape: float
    scale: GivenLength

    family = "gamma"
    lengths = ("scale",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", number_of(self.shape, "shape"))
        object.__setattr__(self, "scale", length_of(self.scale, "scale"))
        self._check(0.1 <= self.shape <= 10_000, "needs a shape from 0.1 to 10,000")
        self._check(_size(self.scale) > 0, "needs a positive scale")

    def density(self, t: Array) -> Array:
        x = np.maximum(t / _known(self.scale), 1e-300)
        log = (self.shape - 1) * np.log(x) - x - math.lgamma(self.shape) - math.log(_known(self.scale))
        at_zero = 1 / _known(self.scale) if self.shape == 1 else 0.0
        return np.where(t > 0, np.exp(np.minimum(log, 700.0)), np.where(t == 0, at_zero, 0.0))

    def cdf(self, t: Array) -> Array:
        return incomplete_gamma(self.shape, np.maximum(t, 0.0) / _known(self.scale))[0]

    def survival(self, t: Array) -> Array:
        return incomplete_gamma(self.shape, np.maximum(t, 0.0) / _known(self.scale))[1]

    def landmarks(self) -> list[float]:
        """Points that approach 0 by a fixed ratio if the shape is below 1, because the density is then infinite at
        0.
        """
        found = super().landmarks()
        steep = [found[0] * 8.0**k for k in range(int(math.log(found[-1] / found[0], 8)))] if self.shape < 1 else []
        return sorted({*found, *steep})

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return rng.gamma(self.shape, _known(self.scale), count)


@dataclass(frozen=True)
class LogNormal(Gap):
    """A gap whose logarithm is normal. Half of the gaps are below the median; sigma is the standard deviation of the
    logarithm.
    """

    median: GivenLength
    sigma: float

    family = "lognormal"
    lengths = ("median",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "median", length_of(self.median, "median"))
        object.__setattr__(self, "sigma", number_of(self.sigma, "sigma"))
        self._check(_size(self.median) > 0, "needs a positive median")
        self._check(0.001 <= self.sigma <= 20, "needs a sigma from 0.001 to 20")

    def _standard(self, t: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(np.maximum(t, 0.0) / _known(self.median)) / self.sigma)

    def density(self, t: Array) -> Array:
        inside = t > 0
        safe = np.where(inside, t, 1.0)
        z = self._standard(safe)
        return np.where(inside, np.exp(-z * z / 2) / (safe * self.sigma * math.sqrt(2 * math.pi)), 0.0)

    def cdf(self, t: Array) -> Array:
        return np.asarray(_erfc(-self._standard(t) / math.sqrt(2)) / 2)

    def survival(self, t: Array) -> Array:
        return np.asarray(_erfc(self._standard(t) / math.sqrt(2)) / 2)

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        return np.asarray(_known(self.median) * np.exp(self.sigma * rng.standard_normal(count)))


class _Stepwise(Gap):
    """A distribution whose density is constant between edges."""

    @abstractmethod
    def _edges(self) -> tuple[Array, Array]:
        """(edges, the probability of each interval between them)."""

    @property
    def steps(self) -> tuple[Array, Array]:
        """Edges, and the density of each interval between them."""
        edges, shares = self._edges()
        return edges, shares / np.diff(edges)

    def density(self, t: Array) -> Array:
        edges, shares = self._edges()
        place = np.searchsorted(edges, t, side="right") - 1
        inside = (place >= 0) & (place < len(shares))
        return np.where(inside, (shares / np.diff(edges))[np.clip(place, 0, len(shares) - 1)], 0.0)

    def cdf(self, t: Array) -> Array:
        edges, shares = self._edges()
        summed = np.concatenate([[0.0], np.cumsum(shares)])
        summed[-1] = 1.0
        return np.asarray(np.interp(t, edges, summed))

    def survival(self, t: Array) -> Array:
        edges, shares = self._edges()
        left = np.concatenate([np.cumsum(shares[::-1])[::-1], [0.0]])
        left[0] = 1.0
        return np.asarray(np.interp(t, edges, left))

    @property
    def kinks(self) -> tuple[float, ...]:
        return tuple(self._edges()[0].tolist())

    def landmarks(self) -> list[float]:
        return sorted({edge for edge in self.kinks if edge > 0})

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        edges, shares = self._edges()
        place = rng.choice(len(shares), count, p=shares)
        return edges[place] + rng.random(count) * np.diff(edges)[place]


@dataclass(frozen=True)
class Uniform(_Stepwise):
    """A gap between two lengths, all equally likely."""

    low: GivenLength
    high: GivenLength

    family = "uniform"
    lengths = ("low", "high")

    def __post_init__(self) -> None:
        object.__setattr__(self, "low", length_of(self.low, "low"))
        object.__setattr__(self, "high", length_of(self.high, "high"))
        self._check(isinstance(self.low, Duration) == isinstance(self.high, Duration) or self.low == 0,
                    "needs both ends in ticks, or both as durations")  # fmt: skip
        self._check(0 <= _size(self.low) < _size(self.high), "needs 0 <= low < high")

    def _edges(self) -> tuple[Array, Array]:
        return np.array([_known(self.low), _known(self.high)], np.float64), np.array([1.0])


@dataclass(frozen=True)
class Histogram(_Stepwise):
    """Observed gaps: how many were between adjacent edges.

    >>> Histogram(edges=(0, 10, 20), counts=(3, 1)).cdf(np.array([10.0])).tolist()
    [0.75]
    """

    edges: Sequence[GivenLength]
    counts: Sequence[float]

    family = "histogram"
    lengths = ("edges",)

    def __post_init__(self) -> None:
        for name in ("edges", "counts"):
            given = getattr(self, name)
            self._check(
                isinstance(given, Sequence | np.ndarray) and not isinstance(given, str), f"needs a list of {name}"
            )
        edges = tuple(length_of(edge, "edges") for edge in self.edges)
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "counts", tuple(number_of(count, "counts") for count in self.counts))
        self._check(len(edges) == len(self.counts) + 1 >= 2, "needs one edge more than counts")
        sizes = [_size(edge) for edge in edges]
        self._check(sizes[0] >= 0 and all(a < b for a, b in pairwise(sizes)),
                    "needs edges that rise from 0 or more")  # fmt: skip
        self._check(all(count >= 0 for count in self.counts) and sum(self.counts) > 0, "needs counts, not all 0")

    def _edges(self) -> tuple[Array, Array]:
        counts = np.array(self.counts, np.float64)
        return np.array([_known(edge) for edge in self.edges]), counts / counts.sum()


FAMILIES: Mapping[str, type[Gap]] = {
    family.family: family for family in (Exponential, Gamma, LogNormal, Uniform, Histogram)
}


def gap_from_dict(stored: Mapping[str, Any]) -> Gap:
    """The distribution from the values that `to_dict` returned.

    >>> gap_from_dict(Exponential("5 s").to_dict()) == Exponential("5 s")
    True
    """
    if not isinstance(stored, Mapping):
        raise InputError(f"a stored gap must be an object with a family, got {stored!r}")
    family = FAMILIES.get(str(stored.get("family")))
    if family is None:
        raise InputError(f"there is no gap distribution '{stored.get('family')}'; there are {', '.join(FAMILIES)}")
    names = {f.name for f in fields(family)}
    given = {name: from_plain(value) for name, value in stored.items() if name != "family"}
    if set(given) != names:
        raise InputError(f"the gap {family.family} has {', '.join(sorted(names))}, not {', '.join(sorted(given))}")
    return family(**given)


def from_plain(value: Any) -> Any:
    """Lengths from the values that `plain` returned."""
    if isinstance(value, Mapping):
        return Duration(number_of(value.get("ns"), "a duration"))
    if isinstance(value, list):
        return tuple(from_plain(item) for item in value)
    return value


# ── Special functions ──────────────────────────────────────────────────────────────────────────────

# By numpy alone, because Ouzel does not depend on scipy.
_erfc = np.vectorize(math.erfc, otypes=[np.float64])
_ITERATIONS_MAX = 100_000
_SMALLEST = 1e-300
_CLOSE = 1e-16


def incomplete_gamma(shape: float, x: Array) -> tuple[Array, Array]:
    """(lower, upper): the regularised incomplete gamma functions, each with a small relative error.

    A series is used below the mean, and a continued fraction above it, so that no nearly equal numbers are subtracted
    (Numerical Recipes 6.2).

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
    """The continued fraction of the upper function, by Lentz's method."""
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
