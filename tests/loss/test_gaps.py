"""The gap distributions against scipy's, and models that are fitted, stored and drawn."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import special, stats

import ouzel
from ouzel import InputError, LossModel
from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.loss.fitting import fit_gap
from ouzel.loss.gaps import Duration, gap_from_dict, incomplete_gamma

SEEN = (np.array([3, 0, 1]), np.array([1, 2, 5, 9]))
PAIRS = [
    (Exponential(7), stats.expon(scale=7)),
    (Gamma(0.4, 3), stats.gamma(0.4, scale=3)),
    (Gamma(3.5, 2), stats.gamma(3.5, scale=2)),
    (Gamma(400, 0.1), stats.gamma(400, scale=0.1)),
    (LogNormal(5, 0.3), stats.lognorm(0.3, scale=5)),
    (LogNormal(5, 2.0), stats.lognorm(2.0, scale=5)),
    (Uniform(2, 9), stats.uniform(2, 7)),
    (
        Histogram((1, 2, 5, 9), (3, 0, 1)),
        stats.rv_histogram((np.array([3, 0, 1]), np.array([1, 2, 5, 9])), density=False),
    ),
]


@pytest.mark.parametrize(("gap", "known"), PAIRS, ids=[f"{type(gap).__name__} {n}" for n, (gap, _) in enumerate(PAIRS)])
def test_densities_and_distributions_are_scipys(gap: Gap, known: stats.rv_continuous) -> None:
    t = np.array([1e-6, 0.01, 0.3, 1.1, 2.2, 4.9, 8.7, 20.0, 41.5, 100.0])
    np.testing.assert_allclose(gap.density(t), known.pdf(t), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(gap.cdf(t), known.cdf(t), rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(gap.survival(t), known.sf(t), rtol=1e-9, atol=1e-15)


def test_the_tails_keep_their_digits() -> None:
    """S^N divides by a survival that may be tiny, so 1 - F will not do."""
    t = np.array([200.0, 400.0])
    np.testing.assert_allclose(Gamma(3, 2).survival(t), stats.gamma(3, scale=2).sf(t), rtol=1e-10)
    np.testing.assert_allclose(LogNormal(5, 0.2).survival(t), stats.lognorm(0.2, scale=5).sf(t), rtol=1e-9)


@pytest.mark.parametrize("shape", [0.1, 0.9, 1.0, 5.0, 77.0, 9_999.0])
def test_incomplete_gamma_is_scipys(shape: float) -> None:
    x = shape * np.array([0.01, 0.5, 0.9, 1.0, 1.1, 2.0, 5.0])
    lower, upper = incomplete_gamma(shape, x)
    np.testing.assert_allclose(lower, special.gammainc(shape, x), rtol=1e-8, atol=1e-290)
    np.testing.assert_allclose(upper, special.gammaincc(shape, x), rtol=1e-8, atol=1e-290)


@pytest.mark.parametrize(("gap", "known"), PAIRS, ids=[f"{type(gap).__name__} {n}" for n, (gap, _) in enumerate(PAIRS)])
def test_samples_follow_their_distribution(gap: Gap, known: stats.rv_continuous) -> None:
    sample = gap.sample(np.random.default_rng(1), 20_000)
    assert stats.kstest(sample, known.cdf).pvalue > 1e-3


def test_lengths_are_ticks_or_durations() -> None:
    assert Exponential("2 min").in_ticks(1000) == Exponential(120_000_000)
    assert Uniform(0, datetime.timedelta(seconds=1)).in_ticks(1000) == Uniform(0, 1_000_000)
    assert Histogram(("0 s", "1 s"), (1,)).in_ticks(10**9) == Histogram((0, 1), (1,))
    with pytest.raises(InputError, match="holds bare numbers"):
        Exponential("2 min").in_ticks(None)


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: Exponential(0), "positive mean"),
        (lambda: Exponential("soon"), "not a duration"),
        (lambda: Exponential("3"), "not a duration"),
        (lambda: Exponential(float("nan")), "must be finite"),
        (lambda: Exponential(True), "must be a number"),
        (lambda: Gamma(0.01, 1), "shape from 0.1"),
        (lambda: Gamma(1, -1), "positive scale"),
        (lambda: LogNormal(0, 1), "positive median"),
        (lambda: LogNormal(1, 0), "sigma from"),
        (lambda: Uniform(3, 3), "low < high"),
        (lambda: Uniform(1, "3 s"), "both ends in ticks"),
        (lambda: Histogram((0, 1), (1, 2)), "one edge more"),
        (lambda: Histogram((0, 2, 1), (1, 2)), "rise"),
        (lambda: Histogram((0, 1), (0,)), "not all 0"),
        (lambda: LossModel(1.0), "below 1"),
        (lambda: LossModel(-0.1), "between 0 and 1"),
        (lambda: LossModel(0.1, priors={"a": 1.2}), "priors"),
        (lambda: LossModel(0.1, gaps={"a": 5}), "must be a gap"),
        (lambda: LossModel(0.1, component_loss=0.2), "by name"),
        (lambda: LossModel(0.1, reader=5), "name of an attribute"),
        (lambda: Histogram(5, (1,)), "list of edges"),
        (lambda: LossModel.from_json(None), "not a loss model"),
        (lambda: LossModel.from_json('{"gaps": {"a": 5}}'), "object with a family"),
        (lambda: LossModel.fit(5), "a history must be"),
        (lambda: LossModel.fit([1, 2]), "a history must be"),
        (lambda: LossModel.fit([{"a": {"ts": 1}, "b": {"ts": 2}}], gaps=3), "gaps must be a dictionary"),
        (lambda: MODEL.plot(components=["z"]), "no gap of 'z'"),
        (lambda: MODEL.plot("no/such/folder/model.png"), "cannot write the picture"),
        (lambda: LossModel.from_json("["), "not a loss model"),
        (lambda: LossModel.from_json('{"losss": 1}'), "no 'losss'"),
        (lambda: LossModel.from_json('{"version": 9}'), "version 9"),
        (lambda: LossModel.from_json('{"gaps": {"a": {"family": "normal"}}}'), "no gap distribution 'normal'"),
        (lambda: LossModel.from_json('{"gaps": {"a": {"family": "uniform", "low": 1}}}'), "has high, low"),
    ],
)
def test_mistakes_are_reported(make: object, error: str) -> None:
    with pytest.raises(InputError, match=error):
        make()  # type: ignore[operator]


# ── Models ─────────────────────────────────────────────────────────────────────────────────────────

MODEL = LossModel(
    0.05,
    gaps={"b": Gamma(2.5, "5 min"), "c": Histogram((0, 5, 9), (1, 2))},
    priors={"a": 0.9},
    skip_gaps={"b": LogNormal(40, 0.5)},
    component_loss={"a": 0.1},
    reader_loss={"shelf": 0.2},
)


def test_a_model_survives_json() -> None:
    assert LossModel.from_json(MODEL.to_json()) == MODEL
    assert json.loads(MODEL.to_json())["version"] == 1


@pytest.mark.parametrize("gap", [gap for gap, _ in PAIRS] + [Uniform("1 s", "2 min")])
def test_a_gap_survives_json(gap: Gap) -> None:
    assert gap_from_dict(json.loads(json.dumps(gap.to_dict()))) == gap


def test_which_loss_rate_counts() -> None:
    assert MODEL.loss_of("a", ["shelf"]) == 0.1
    assert MODEL.loss_of("b", ["shelf"]) == 0.2
    assert MODEL.loss_of("b", ["door"]) == 0.05
    assert MODEL.loss_of("b", ["door", "shelf"]) == 0.2
    assert MODEL.loss_of("b", None) == 0.05
    assert MODEL.loss_of("b", []) == 0.0


def test_a_model_is_drawn(tmp_path: Path) -> None:
    figure = MODEL.plot(str(tmp_path / "model.png"))
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["b: loss 0.05", "c: loss 0.05"]
    assert (tmp_path / "model.png").stat().st_size > 5_000


# ── Fitting ────────────────────────────────────────────────────────────────────────────────────────


def history(gaps: np.ndarray, unit: str | None = None) -> pa.Table:
    start = np.arange(len(gaps)) * 1_000_000
    kind = pa.int64() if unit is None else pa.timestamp(unit)
    columns = [pa.StructArray.from_arrays([pa.array(t.astype(np.int64), kind)], ["ts"]) for t in (start, start + gaps)]
    return pa.table(columns, names=["a", "b"])


@pytest.mark.parametrize("gap", [Exponential(3_000), Gamma(4, 500), LogNormal(2_000, 0.8)])
def test_the_right_family_is_found_again(gap: Gap) -> None:
    sample = gap.sample(np.random.default_rng(5), 20_000).round()
    found = LossModel.fit(history(sample), loss=0.1).gaps["b"]
    t = np.array([500.0, 1_000.0, 2_000.0, 5_000.0])
    assert type(found) is type(gap)
    np.testing.assert_allclose(found.cdf(t), gap.cdf(t), atol=0.01)


@pytest.mark.parametrize("family", ["exponential", "gamma", "lognormal", "uniform", "histogram"])
def test_every_family_can_be_asked_for(family: str) -> None:
    sample = np.random.default_rng(2).uniform(100, 900, 5_000).round()
    found = LossModel.fit(history(sample), family=family).gaps["b"]
    assert found.family == family
    if family in ("uniform", "histogram"):
        np.testing.assert_allclose(found.cdf(np.array([300.0, 700.0])), [0.25, 0.75], atol=0.03)


def test_a_histogram_of_a_long_tail_keeps_the_rest() -> None:
    """Two modes, and a hundredth of a gap a thousand times as long."""
    gaps = np.array([*range(100, 200), *range(600, 700), 600_000.0])
    found = fit_gap(gaps, np.array([25.0] * 200 + [0.01]), "histogram")
    t = np.array([100.0, 150.0, 200.0, 400.0, 600.0, 650.0, 700.0, 5_000.0])
    np.testing.assert_allclose(found.cdf(t), [0, 0.25, 0.5, 0.5, 0.5, 0.75, 1, 1], atol=0.02)
    assert isinstance(found, Histogram) and len(found.counts) < 8


def test_times_with_a_unit_give_durations() -> None:
    found = LossModel.fit(history(np.full(50, 2_000_000.0), "us"), family="exponential").gaps["b"]
    assert found == Exponential(Duration(2_000_000_000.0))


def test_what_did_not_happen_gives_priors_and_the_gaps_that_skip_it() -> None:
    rows = [{"a": {"ts": 0}, "b": {"ts": 10}, "c": {"ts": 30}}] * 3 + [{"a": {"ts": 0}, "b": None, "c": {"ts": 8}}]
    found = LossModel.fit(rows, family="exponential", loss=0.1)
    # Of four that always happened the next one may fail: 5/6.
    assert found.priors == {"a": 5 / 6, "b": 0.75}
    assert found.gaps == {"b": Exponential(10), "c": Exponential(20)}
    assert found.skip_gaps == {"b": Exponential(8)}


def test_what_a_match_gives_can_be_fitted() -> None:
    events = [{"type": kind, "ts": ts} for kind, ts in (("A", 0), ("B", 4), ("A", 100), ("B", 106))]
    matches = ouzel.match(events, "PATTERN SEQ(A a, B b) WITHIN 50")
    assert LossModel.fit(matches, family="exponential").gaps == {"b": Exponential(5)}


@pytest.mark.parametrize(
    ("matches", "options", "error"),
    [
        ([], {}, "at least two components"),
        ([{"a": {"ts": 1}}], {}, "at least two components"),
        ([{"a": {"ts": 1}, "b": {"t": 1}}], {"components": ["a", "b"]}, "must be a struct with a field 'ts'"),
        ([{"a": {"ts": 1}, "b": {"ts": 0}}], {}, "negative gap"),
        ([{"a": {"ts": 1.5}, "b": {"ts": 2.5}}], {}, "whole numbers"),
        ([{"a": {"ts": 1}, "b": {"ts": 2}}], {"family": "normal"}, "no family"),
        ([{"a": {"ts": 1}, "b": {"ts": 2}}], {"components": ["a", "x"]}, "no column 'x'"),
    ],
)
def test_histories_that_cannot_be_fitted(
    matches: list[dict[str, object]], options: dict[str, object], error: str
) -> None:
    with pytest.raises(InputError, match=error):
        LossModel.fit(matches, **options)
