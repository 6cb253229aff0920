"""Scores against quadrature, tables against what they tabulate."""

from __future__ import annotations

import itertools
import random
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate, stats

from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.curves import (
    ERROR_ABSOLUTE,
    ERROR_RELATIVE,
    Panels,
    Pieces,
    Trend,
    breaks_for,
    build_curve,
    convolution,
)
from ouzel.loss.scoring import ENTRY, LossyComponent, Scoring

GAPS = [
    Exponential(4),
    Gamma(0.7, 5),
    Gamma(3, 2),
    LogNormal(6, 0.6),
    Uniform(2, 9),
    Histogram((0, 3, 7, 12), (2, 0, 1)),
]


def positive(
    name: str, gap: Gap | None, loss: float = 0.1, prior: float = 0.7, skip: Gap | None = None
) -> LossyComponent:
    return LossyComponent(name, False, loss, gap, prior, skip)


def quadrature(function, end: float, kinks: tuple[float, ...] = ()) -> float:  # type: ignore[no-untyped-def]
    edges = [0.0, *sorted({kink for kink in kinks if 0 < kink < end}), end]
    return sum(integrate.quad(function, a, b, limit=400)[0] for a, b in pairwise(edges))


def at(gap: Gap, name: str, t: float) -> float:
    return float(getattr(gap, name)(np.array([t]))[0])


@pytest.mark.parametrize("seed", range(10))
def test_s_pp_is_its_integral(seed: int) -> None:
    """S^PP(T) = ε² ∫ f_{i+1} F_i."""
    rng = random.Random(seed)
    first, second = rng.choice(GAPS), rng.choice(GAPS)
    scoring = Scoring([positive("a", None), positive("b", first), positive("c", second), positive("d", None)], 30.0)
    for t in (1.0, 4.0, 11.0, 30.0):
        want = 0.01 * quadrature(
            lambda u: at(second, "density", u) * at(first, "cdf", u), t, (*first.kinks, *second.kinks)
        )
        assert scoring.score(scoring.edge(0, 3), np.array([t]))[0] == pytest.approx(want, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_convolutions_are_their_integrals(seed: int) -> None:
    rng = random.Random(100 + seed)
    first, second = rng.choice(GAPS), rng.choice(GAPS)
    one, other = (Pieces(g.density, breaks_for(g.landmarks(), 40.0), steps=g.steps) for g in (first, second))
    for t in (0.5, 3.0, 8.5, 40.0):
        found = convolution(one, other, np.array([t]))[0]
        splits = (*first.kinks, *(t - kink for kink in second.kinks), t / 2)
        want = quadrature(lambda u, t=t: at(first, "density", u) * at(second, "density", t - u), t, splits)  # type: ignore[misc]
        assert found == pytest.approx(want, rel=1e-5, abs=1e-12)


def test_s_p_s_n_and_their_products() -> None:
    negative = LossyComponent("n", True, 0.2, Exponential(10))
    scoring = Scoring([positive("a", None), negative, positive("b", Gamma(2, 3)), positive("c", None)], 50.0)
    t = np.array([5.0])
    happened = 1 - np.exp(-0.5)
    not_happened = (1 - happened) / (0.2 * happened + 1 - happened)
    assert scoring.score(scoring.edge(0, 1), t)[0] == pytest.approx(not_happened)
    missing = 0.1 * Gamma(2, 3).cdf(t)[0]
    assert scoring.score(scoring.edge(1, 2), t)[0] == 1.0
    assert scoring.score(scoring.edge(0, 2), t)[0] == pytest.approx(missing * not_happened)
    # F of the first component is 1 unless given.
    assert scoring.score(scoring.edge(ENTRY, 1), t)[0] == pytest.approx(0.1 * not_happened)
    assert scoring.score(scoring.edge(ENTRY, 0), t)[0] == 1.0


def test_a_negative_that_is_never_lost_counts_for_nothing() -> None:
    scoring = Scoring([positive("a", None), LossyComponent("n", True, 0.0), positive("b", None)], 50.0)
    assert scoring.score(scoring.edge(0, 1), np.array([7.0]))[0] == 1.0


MIXED = [Gamma(0.6, 9), Histogram((0, 3, 7, 12, 40), (2, 0, 1, 3)), Uniform(2, 33), LogNormal(6, 0.05), Gamma(0.2, 30)]


@pytest.mark.parametrize("seed", range(12))
def test_scores_are_exact_to_1e_9_for_every_mix_of_families(seed: int) -> None:
    """ε² ∫ f₂ F₁ and ε³ ∫ f₃ ∫ f₂ F₁, integrated over the logarithm of time between all kinks and steep places."""
    rng = random.Random(seed)
    first, second, third = rng.choice(MIXED), rng.choice([*MIXED, *GAPS]), rng.choice(GAPS)
    gaps = (None, first, second, third, None)
    scoring = Scoring([positive(name, gap) for name, gap in zip("abcde", gaps, strict=True)], 60.0)
    nodes, weights = np.polynomial.legendre.leggauss(30)
    legendre = np.polynomial.legendre
    basis = np.stack([legendre.legval(nodes, legendre.legint(row, lbnd=-1)) for row in np.eye(30)], axis=1)
    inside = basis @ np.linalg.inv(legendre.legvander(nodes, 29))
    marks = {float(np.log(p)) for gap in (first, second, third) for p in gap.landmarks() if p > 0}
    for end in (4.0, 13.0, 60.0):
        bends = [-300.0, *np.arange(-200.0, -20.0, 20.0), *sorted(m for m in marks if m > -20), *np.arange(-20, 5, 0.5)]
        cuts = np.unique([*(b for b in bends if b < np.log(end)), np.log(end)])
        half = np.diff(cuts)[:, None] / 2
        t = np.exp(cuts[:-1, None] + half * (1 + nodes))
        value = first.cdf(t.ravel()).reshape(t.shape)
        for place, gap in ((3, second), (4, third)):
            product = gap.density(t.ravel()).reshape(t.shape) * t * value * half
            sums = product @ weights
            want = 0.1 ** (place - 1) * sums.sum()
            found = scoring.score(scoring.edge(0, place), np.array([end]))[0]
            assert found == pytest.approx(want, rel=1e-9, abs=1e-15)
            value = (np.cumsum(sums) - sums)[:, None] + product @ inside.T


# ── Tables ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("window", [1, 7, 1_000, 43_200_000_000])
def test_tables_keep_their_stated_error(window: int) -> None:
    scale = window / 40
    components = [
        positive("a", None),
        LossyComponent("n", True, 0.2, Gamma(2, 6 * scale)),
        positive("b", LogNormal(5 * scale, 0.8)),
        positive("c", Uniform(2 * scale, 9 * scale)),
        positive("d", Exponential(5 * scale)),
    ]
    scoring = Scoring(components, float(window))
    rng = np.random.default_rng(3)
    t = np.unique(np.exp(rng.uniform(0, np.log(window), 400)).astype(np.int64)) if window > 1 else np.array([1])
    for source, target in ((0, 1), (0, 2), (ENTRY, 1), (ENTRY, 2), (1, 3), (0, 3)):
        edge = scoring.edge(source, target)
        exact = scoring.score(edge, t.astype(np.float64))
        allowed = np.maximum(ERROR_RELATIVE * exact, ERROR_ABSOLUTE)
        for kinks in ((), scoring.kinks(edge)):
            curve = build_curve(lambda x, e=edge: scoring.score(e, x), window, kinks=kinks)  # type: ignore[misc]
            assert (np.abs(curve(t) - exact) <= allowed).all(), (source, target)
            assert (curve(t) <= curve.best * (1 + 1e-9)).all()


def test_constants_and_zeros_are_exact() -> None:
    flat = build_curve(lambda t: np.full(len(t), 0.05), 10**10, Trend.RISING)
    assert flat.constant == 0.05 and flat.best == 0.05
    step = build_curve(lambda t: np.where(t < 12_345, 0.0, 0.3), 10**9)
    assert step(np.array([12_344, 12_345])).tolist() == [0.0, 0.3]


def test_panels_hold_tails() -> None:
    breaks = breaks_for(Gamma(3, 2).landmarks(), 500.0)
    held = Panels.of(Gamma(3, 2).density, breaks)
    t = np.array([1.0, 30.0, 200.0, 480.0])
    np.testing.assert_allclose(held(t), Gamma(3, 2).density(t), rtol=1e-8)


# ── Against scipy alone ────────────────────────────────────────────────────────────────────────────


FROZEN = {
    "gamma": (Gamma(0.6, 9), stats.gamma(0.6, scale=9), ()),
    "histogram": (
        Histogram((0, 3, 7, 12, 40), (2, 0, 1, 3)),
        stats.rv_histogram((np.array([2.0, 0, 1, 3]), np.array([0.0, 3, 7, 12, 40])), density=False),
        (3.0, 7.0, 12.0, 40.0),
    ),
    "uniform": (Uniform(2, 33), stats.uniform(2, 31), (2.0, 33.0)),
    "lognormal": (LogNormal(6, 0.3), stats.lognorm(0.3, scale=6), ()),
    "exponential": (Exponential(4), stats.expon(scale=4), ()),
}


@pytest.mark.parametrize(
    "names", [("gamma", "histogram", "uniform"), ("uniform", "histogram", "gamma"), *itertools.product(FROZEN, FROZEN)]
)
def test_scores_are_those_of_scipy(names: tuple[str, ...]) -> None:
    """ε² ∫ f₂ F₁ and ε³ ∫ f₃ ∫ f₂ F₁ by nested adaptive quadrature of scipy's distributions, in u = √t, which takes the
    infinite density of Gamma(0.6) at 0 away; nothing of the package is in the expected value."""
    own = [FROZEN[name] for name in names]
    components = [positive("a", None), *(positive(str(n), one[0]) for n, one in enumerate(own)), positive("z", None)]
    scoring = Scoring(components, 60.0)

    def nested(place: int, end: float) -> float:
        if place == 0:
            return float(own[0][1].cdf(end))
        bends = sorted({u for one in own for u in one[2] if 0 < u < end})
        pieces = pairwise([0.0, *(u**0.5 for u in bends), end**0.5])
        return sum(
            integrate.quad(
                lambda u: 2 * u * float(own[place][1].pdf(u * u)) * nested(place - 1, u * u),
                low, high, epsabs=1e-15, epsrel=1e-11, limit=200,
            )[0]
            for low, high in pieces
        )  # fmt: skip

    for end in (5.0, 60.0):
        found = scoring.score(scoring.edge(0, len(own) + 1), np.array([end]))[0]
        assert found == pytest.approx(0.1 ** len(own) * nested(len(own) - 1, end), rel=1e-9, abs=1e-15)
