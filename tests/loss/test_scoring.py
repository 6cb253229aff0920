"""Scores against quadrature, probabilities against simulation, tables against what they tabulate."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from scipy import integrate

from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.curves import ERROR_ABSOLUTE, ERROR_RELATIVE, Panels, Trend, breaks_for, build_curve, convolution
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
    kinks = sorted({*first.kinks, *second.kinks})
    breaks = breaks_for([*first.landmarks(), *second.landmarks()], kinks, 40.0)
    for t in (0.5, 3.0, 8.5, 40.0):
        found = convolution(first.density, second.density, breaks, np.array([t]))[0]
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


# ── Simulation ─────────────────────────────────────────────────────────────────────────────────────


def simulated(components: list[LossyComponent], count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The model of docs/semantics.md, "Probabilities", as written: times, what happened, what was observed."""
    rng = np.random.default_rng(seed)
    length = len(components)
    times = np.zeros((length, count))
    happened = np.ones((length, count), bool)
    clock = np.zeros(count)
    before = np.ones(count, bool)
    for place, component in enumerate(components):
        is_last = place == length - 1
        happened[place] = True if is_last or component.prior is None else rng.random(count) < component.prior
        if place:
            own = component.gap.sample(rng, count)  # type: ignore[union-attr]
            skip = components[place - 1].skip_gap
            gap = own if skip is None else np.where(before, own, skip.sample(rng, count))
            # The first that happens starts the clock.
            started = happened[:place].any(axis=0)
            clock = np.where(happened[place] & started, clock + gap, clock)
        times[place] = clock
        before = happened[place]
    lost = rng.random((length, count)) < np.array([c.loss for c in components])[:, None]
    lost[-1] = False
    return times, happened, happened & ~lost


def on_a_grid(scoring: Scoring, source: int, target: int, t: np.ndarray, window: float) -> np.ndarray:
    """An edge's probability at many times; between the points of a fine grid it hardly changes."""
    grid = np.linspace(0, window, 1_201)[1:]
    return np.interp(t, grid, scoring.probability(scoring.edge(source, target), grid))


SHOPS = [
    [positive("a", None, 0.3), positive("b", Gamma(3, 2), 0.4, 0.6), positive("c", Exponential(5))],
    [positive("a", None, 0.3), positive("b", Exponential(3), 0.4, 0.6, Gamma(4, 3)), positive("c", LogNormal(5, 0.5))],
    [
        positive("a", None, 0.2, 0.9),
        positive("b", Uniform(1, 6), 0.5, 0.7, Exponential(9)),
        positive("c", Gamma(2, 2), 0.5, 0.5),
        positive("d", Exponential(4)),
    ],
]


@pytest.mark.parametrize("shop", range(len(SHOPS)))
def test_the_probability_of_a_missing_stretch_is_calibrated(shop: int) -> None:
    """Of the paths with a probability near p, the share that really happened is near p."""
    components = SHOPS[shop]
    scoring = Scoring(components, 60.0)
    times, happened, observed = simulated(components, 400_000, shop)
    last = len(components) - 1
    whole = observed[0] & observed[last] & ~observed[1:last].any(axis=0)
    gap = times[last, whole] - times[0, whole]
    found = on_a_grid(scoring, 0, last, gap, 60.0)
    truth = happened[1:last, whole].all(axis=0)
    checked = 0
    for low in np.arange(0, 1, 0.05):
        inside = (found >= low) & (found < low + 0.05) & (gap < 60)
        if inside.sum() >= 2_000:
            checked += 1
            assert truth[inside].mean() == pytest.approx(found[inside].mean(), abs=0.02)
    assert checked >= 3


@pytest.mark.parametrize("shop", range(len(SHOPS)))
def test_the_probability_of_leading_missing_ones_is_calibrated(shop: int) -> None:
    components = SHOPS[shop]
    window = 14.0
    scoring = Scoring(components, window)
    times, happened, observed = simulated(components, 400_000, 50 + shop)
    last = len(components) - 1
    for first in range(1, last + 1):
        chosen = observed[first:].all(axis=0) & ~observed[:first].any(axis=0)
        left = window - (times[last, chosen] - times[first, chosen])
        reported = left > 0
        truth = happened[:first, chosen].all(axis=0) & (times[first, chosen] - times[0, chosen] < left)
        found = on_a_grid(scoring, ENTRY, first, left, window)
        if reported.sum() > 5_000:
            assert truth[reported].mean() == pytest.approx(found[reported].mean(), abs=0.01)


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
        for function in (scoring.score, scoring.probability):
            curve = build_curve(lambda x, e=edge, f=function: f(e, x), window)  # type: ignore[misc]
            exact = function(edge, t.astype(np.float64))
            allowed = np.maximum(ERROR_RELATIVE * exact, ERROR_ABSOLUTE)
            assert (np.abs(curve(t) - exact) <= allowed).all(), (source, target, function.__name__)
            assert (curve(t) <= curve.best * (1 + 1e-9)).all()


def test_constants_and_zeros_are_exact() -> None:
    flat = build_curve(lambda t: np.full(len(t), 0.05), 10**10, Trend.RISING)
    assert flat.constant == 0.05 and flat.best == 0.05
    step = build_curve(lambda t: np.where(t < 12_345, 0.0, 0.3), 10**9)
    assert step(np.array([12_344, 12_345])).tolist() == [0.0, 0.3]


def test_panels_hold_tails() -> None:
    breaks = breaks_for(Gamma(3, 2).landmarks(), (), 500.0)
    held = Panels.of(Gamma(3, 2).density, breaks)
    t = np.array([1.0, 30.0, 200.0, 480.0])
    np.testing.assert_allclose(held(t), Gamma(3, 2).density(t), rtol=1e-8)
