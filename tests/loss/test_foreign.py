"""Probabilities on streams that do not follow the model of docs/semantics.md: after learning, of the explanations with
a probability near p the share near p is true, or the report says that they are not to be trusted."""

from __future__ import annotations

import warnings

import pytest

from benchmarks.lossy_parcels import PATTERN, STREAMS, stream
from ouzel import LossModel, ModelWarning
from ouzel.loss import Exponential
from tests.loss.test_posterior import worst_bin

pytestmark = pytest.mark.compiled  # thousands of events


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
