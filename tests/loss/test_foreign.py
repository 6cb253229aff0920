"""Probabilities on streams that do not follow the model of docs/semantics.md: after learning, of the explanations with
a probability near p the share near p is true, or the report says that they are not to be trusted."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel import LossModel, ModelWarning
from ouzel.loss import Exponential
from tests.loss.test_posterior import worst_bin

pytestmark = pytest.mark.compiled  # thousands of events

PATTERN = "PATTERN SEQ(Depot a, Hub b, Van c, Door d) WHERE [parcel] WITHIN 250000"
TYPES = ("Depot", "Hub", "Van", "Door")
PARCELS = 5_000


@dataclass(frozen=True)
class Stream:
    """`truth` has for each parcel the events of the complex event that happened, or nothing."""

    events: pa.Table
    truth: list[tuple[int | None, ...] | None]

    def judged(self, model: LossModel) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities of all paths, and whether each is true."""
        found = ouzel.match(self.events, f"{PATTERN} THRESHOLD 0", model=model).to_pylist()
        paths = [tuple(row[name]["ts"] if row[name] is not None else None for name in "abcd") for row in found]
        right = [self.truth[row["d"]["parcel"]] == path for row, path in zip(found, paths, strict=True)]
        return np.array([row["probability"] for row in found]), np.array(right)


def stream(
    gaps: Callable[[np.random.Generator, int], np.ndarray],
    losses: Callable[[np.random.Generator, np.ndarray], np.ndarray],
    skips: float,
    seed: int,
) -> Stream:
    """`gaps` makes three lengths for each parcel, `losses` says which of three readings of each parcel are lost by the
    time of reading; a hub is skipped so often."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 20_000_000, PARCELS)
    between = gaps(rng, PARCELS)
    skipped = rng.random(PARCELS) < skips
    between[skipped, 0] = 0
    times = start[:, None] + np.concatenate([np.zeros((PARCELS, 1)), np.cumsum(between, axis=1)], axis=1)
    times = np.rint(times).astype(np.int64)
    seen = np.concatenate([~losses(rng, times[:, :3]), np.ones((PARCELS, 1), bool)], axis=1)
    seen[skipped, 1] = False
    rows = [(int(times[n, place]), TYPES[place], n) for n in range(PARCELS) for place in range(4) if seen[n, place]]
    # A few parcels are read twice at the hub, much later than the first time.
    rows += [(int(times[n, 1] + rng.integers(1, 5_000)), "Hub", n) for n in range(0, PARCELS, 50) if seen[n, 1]]
    rows.sort()
    truth = [
        None if skipped[n] else tuple(int(t) if s else None for t, s in zip(times[n], seen[n], strict=True))
        for n in range(PARCELS)
    ]
    ts, type_, parcel = zip(*rows, strict=True)
    return Stream(pa.table({"ts": ts, "type": type_, "parcel": parcel}), truth)


def parcels(rng: np.random.Generator, count: int) -> np.ndarray:
    """Slow and fast parcels: gaps of one parcel are correlated, and those that reach the hub at night wait there."""
    speed = rng.lognormal(0, 0.25, (count, 1))
    found = rng.normal([20_000, 30_000, 9_000], [4_000, 6_000, 2_500], (count, 3)).clip(600) * speed
    found[:, 1] += (rng.random(count) < 0.3) * rng.uniform(20_000, 40_000, count)
    return found


def bimodal(rng: np.random.Generator, count: int) -> np.ndarray:
    """By air or by road."""
    found = rng.gamma(8, [1_500, 2_500, 1_000], (count, 3))
    found[:, 1] += (rng.random(count) < 0.5) * 50_000
    return found


def independent(rate: float) -> Callable[[np.random.Generator, np.ndarray], np.ndarray]:
    return lambda rng, times: rng.random(times.shape) < rate


def in_bursts(rng: np.random.Generator, times: np.ndarray) -> np.ndarray:
    """A reader fails for hours: one reading in ten, all those of an hour."""
    failed = rng.random((3, 6_000)) < 0.1
    return np.stack([failed[place, times[:, place] // 3_600 % 6_000] for place in range(3)], axis=1)


STREAMS = {
    "parcels": (parcels, independent(0.08), 0.1),
    "parcels, readers fail for hours": (parcels, in_bursts, 0.1),
    "two kinds of gaps": (bimodal, independent(0.1), 0.15),
    "two kinds of gaps, a quarter lost": (bimodal, independent(0.25), 0.15),
}


@pytest.mark.parametrize("name", STREAMS)
def test_learnt_probabilities_are_calibrated(name: str) -> None:
    gaps, losses, skips = STREAMS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = LossModel.fit(stream(gaps, losses, skips, 1).events, PATTERN)
    worst, checked = worst_bin(*stream(gaps, losses, skips, 2).judged(model), least=100)
    assert checked >= 3
    assert worst < 0.05


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_wrong_loss_rates_are_reported_and_learnt(factor: float) -> None:
    """Probabilities of a model with four times the loss, or a quarter of it, are wrong; the report says so."""
    gaps, losses, skips = STREAMS["two kinds of gaps"]
    first, second = stream(gaps, losses, skips, 3), stream(gaps, losses, skips, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        model = LossModel.fit(first.events, PATTERN)
    observed = {name: model.priors[name] * (1 - model.loss_of(name, None)) for name in "abc"}
    wrong = LossModel(
        0.1 * factor,
        gaps=model.gaps,
        background=model.background,
        priors={name: min(share / (1 - 0.1 * factor), 1.0) for name, share in observed.items()},
    )
    report = wrong.report(first.events, PATTERN)
    assert worst_bin(*second.judged(wrong), least=100)[0] > 0.05
    assert not report.is_trusted and any("b" in text for text in report.warnings)
    assert worst_bin(*second.judged(model), least=100)[0] < 0.05


def test_fit_warns_where_the_stream_contradicts_what_was_given() -> None:
    gaps, losses, skips = STREAMS["two kinds of gaps"]
    with pytest.warns(ModelWarning, match="the gap before 'c' is not exponential"):
        LossModel.fit(stream(gaps, losses, skips, 3).events, PATTERN, gaps={"c": Exponential(40_000)})
