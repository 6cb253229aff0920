"""Probabilities against samples of the model itself (docs/semantics.md, "Probabilities"): of the explanations with a
probability near p, the share that is true is near p."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel import LossModel
from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal

pytestmark = pytest.mark.compiled  # thousands of events

# Fine enough that whole ticks do not matter.
TICKS = 1_000


@dataclass(frozen=True)
class Stage:
    """A component as it is sampled. `background` is the mean time between events that belong to no attempt."""

    name: str
    gap: Gap | None = None
    prior: float = 1.0
    loss: float = 0.0
    background: float = 1e9
    skip: Gap | None = None
    negated: bool = False


def sampled(stages: list[Stage], window: float, keys: int, seed: int) -> tuple[pa.Table, dict[tuple[int, int], object]]:
    """Events of one attempt for each key with its background, and the truth: for each last event the explanation that
    is true, as a tuple of times with None for a lost one, or nothing if the complex event did not happen."""
    rng = np.random.default_rng(seed)
    rows: list[tuple[int, str, int]] = []
    truth: dict[tuple[int, int], object] = {}
    positives = [stage for stage in stages if not stage.negated]

    def draw(gap: Gap) -> float:
        return float(gap.sample(rng, 1)[0])

    for key in range(keys):
        origin = key * 10 * window
        clock, happened, times = origin, [], {}
        negatives: list[tuple[Stage, float]] = []
        is_real = rng.random() < positives[-1].prior
        # Gaps are drawn forwards and the attempt is shifted, so that its last event is where it should be.
        for place, stage in enumerate(positives):
            happens = place == len(positives) - 1 or rng.random() < stage.prior
            if not happens:
                continue
            if happened:
                skipped = positives[place - 1]
                gap = stage.gap if happened[-1] == place - 1 or skipped.skip is None else skipped.skip
                assert gap is not None
                length = draw(gap)
                low = stages.index(positives[happened[-1]])
                for negative in stages[low : stages.index(stage)]:
                    if negative.negated and (due := draw(negative.gap)) < length:  # type: ignore[arg-type]
                        negatives.append((negative, clock + due))
                clock += length
            happened.append(place)
            times[stage.name] = clock
        shift = origin + 5 * window - clock
        last = round((clock + shift) * TICKS)
        whole = is_real and len(happened) == len(positives) and not negatives
        whole = whole and (clock - times[positives[0].name]) < window if whole else False
        if is_real:
            # The window that begins with the first component says until when a negative behind the last one counts.
            for stage in stages[stages.index(positives[-1]) + 1 :]:
                negatives.append((stage, clock + draw(stage.gap)))  # type: ignore[arg-type]
                whole = whole and negatives[-1][1] - times[positives[0].name] >= window
        explanation = []
        for stage in positives:
            if stage is positives[-1]:
                rows.append((last, stage.name, key))
                continue
            if is_real and stage.name in times and rng.random() >= stage.loss:
                moment = round((times[stage.name] + shift) * TICKS)
                rows.append((moment, stage.name, key))
                explanation.append(moment)
            else:
                explanation.append(None)
        truth[key, last] = tuple(explanation) if whole else None
        if is_real:
            rows += [
                (round((moment + shift) * TICKS), n.name, key) for n, moment in negatives if rng.random() >= n.loss
            ]
        for stage in stages:
            if stage is not positives[-1]:
                for _ in range(rng.poisson(3 * window / stage.background)):
                    moment = origin + 6 * window - rng.uniform(0, 3 * window)
                    rows.append((round(moment * TICKS), stage.name, key))
    rows.sort()
    return pa.table(dict(zip(("ts", "type", "id"), map(list, zip(*rows, strict=True)), strict=True))), truth


def finer(gap: Gap | None) -> Gap | None:
    """The same gap in ticks."""
    if gap is None:
        return None
    stored = gap.to_dict()
    for name in gap.lengths:
        stored[name] = [TICKS * v for v in stored[name]] if isinstance(stored[name], list) else TICKS * stored[name]
    return type(gap)(**{name: value for name, value in stored.items() if name != "family"})


def model_of(stages: list[Stage]) -> LossModel:
    return LossModel(
        gaps={s.name: finer(s.gap) for s in stages if s.gap is not None},  # type: ignore[misc]
        skip_gaps={s.name: finer(s.skip) for s in stages if s.skip is not None},  # type: ignore[misc]
        priors={s.name: s.prior for s in stages if not s.negated},
        component_loss={s.name: s.loss for s in stages},
        background={s.name: s.background * TICKS for s in stages},
    )


def judged(stages: list[Stage], window: float, keys: int, seed: int, model: LossModel) -> tuple[np.ndarray, np.ndarray]:
    """The probabilities of all paths, and whether each is true."""
    events, truth = sampled(stages, window, keys, seed)
    parts = ", ".join(f"!({s.name} {s.name})" if s.negated else f"{s.name} {s.name}" for s in stages)
    text = f"PATTERN SEQ({parts}) WHERE [id] WITHIN {round(window * TICKS)} THRESHOLD 0"
    positives = [s.name for s in stages if not s.negated]
    found = ouzel.match(events, text, model=model).to_pylist()
    right = []
    sums: dict[tuple[int, int], float] = {}
    for row in found:
        last = row[positives[-1]]
        key = last["id"], last["ts"]
        path = tuple(row[name]["ts"] if row[name] is not None else None for name in positives[:-1])
        right.append(truth[key] == path)
        sums[key] = sums.get(key, 0.0) + row["probability"]
    assert max(sums.values()) <= 1 + 1e-9, "explanations of one last event exclude each other"
    return np.array([row["probability"] for row in found]), np.array(right)


def worst_bin(probability: np.ndarray, right: np.ndarray, least: int = 300) -> tuple[float, int]:
    """The largest distance between the mean probability of a bin and the share that is true, less its random error."""
    worst, checked = 0.0, 0
    for low in np.arange(0, 1, 0.1):
        inside = (probability >= low) & (probability < low + 0.1 + (low > 0.85))
        if inside.sum() >= least:
            mean, share = probability[inside].mean(), right[inside].mean()
            noise = 3 * np.sqrt(mean * (1 - mean) / inside.sum())
            worst, checked = max(worst, abs(mean - share) - noise), checked + 1
    return worst, checked


WORLDS = {
    "two starts": [Stage("A", None, 0.9, 0.2, 15), Stage("B", Gamma(2, 4))],
    "a missing one beside a negative": [
        Stage("A", None, 0.95, 0.1, 400),
        Stage("B", Gamma(3, 3), 0.6, 0.5, 400),
        Stage("N", Exponential(8), loss=0.3, background=400, negated=True),
        Stage("C", Gamma(2, 4)),
    ],
    "negatives on both sides": [
        Stage("A", None, 0.8, 0.3, 60),
        Stage("M", Exponential(20), loss=0.4, background=100, negated=True),
        Stage("B", LogNormal(6, 0.6), 0.7, 0.4, 80, skip=Exponential(9)),
        Stage("N", Gamma(2, 6), loss=0.4, background=100, negated=True),
        Stage("C", Histogram((0, 2, 6, 15), (2, 5, 1))),
    ],
    "a negated end": [
        Stage("A", None, 0.95, 0.1, 60),
        Stage("B", Gamma(3, 3), 0.7, 0.4, 80),
        Stage("C", Gamma(2, 4), prior=0.7),
        Stage("N", Exponential(40), loss=0.3, background=200, negated=True),
    ],
    "last events that are background": [
        Stage("A", None, 0.9, 0.2, 40),
        Stage("B", Gamma(3, 2), 0.8, 0.3, 40),
        Stage("C", Exponential(5), prior=0.6),
    ],
}


@pytest.mark.parametrize("world", WORLDS)
def test_probabilities_are_calibrated_on_samples_of_the_model(world: str) -> None:
    stages = WORLDS[world]
    probability, right = judged(stages, 60.0, 6_000, 5, model_of(stages))
    worst, checked = worst_bin(probability, right)
    assert checked >= 4
    assert worst < 0.02


def test_a_wrong_model_is_caught() -> None:
    """The same check fails if the model has four times the loss."""
    stages = WORLDS["a missing one beside a negative"]
    wrong = [Stage(**{**vars(s), "loss": s.loss / 4}) for s in stages]
    probability, right = judged(stages, 60.0, 6_000, 5, model_of(wrong))
    assert worst_bin(probability, right)[0] > 0.05


def test_a_very_long_gap_is_not_believed() -> None:
    """LogNormal(100, 0.6) hardly ever reaches 2,020: the shelf reading belongs to something else."""
    model = LossModel(0.05, gaps={"b": LogNormal(100, 0.6)}, priors={"a": 0.9})
    events = [{"ts": 0, "type": "A", "id": 1}, {"ts": 2020, "type": "B", "id": 1}]
    query = "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 7200 THRESHOLD 0.5"
    (row,) = ouzel.match(events, query, model=model).to_pylist()
    assert row["missing"] == [] and row["probability"] < 0.1
