"""Models learnt from lossy streams (docs/semantics.md, "Learning"): bindings and likelihoods against enumeration, and
parameters that samples of known models give back."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import ouzel
from ouzel import InputError, LossModel
from ouzel.bind.model import Catalog
from ouzel.learning import Local, count, fit, report, source_of
from ouzel.loss import Exponential, Gamma, Histogram
from ouzel.loss.gaps import Duration
from ouzel.loss.learning import Bindings, Chain, Counts, Edges, counted
from tests.loss.test_posterior import TICKS, Stage, model_of, sampled
from tests.oracle import posterior

WINDOW = 60.0
Row = Mapping[str, Any]


def query_of(stages: Sequence[Stage]) -> str:
    parts = ", ".join(f"!({s.name} {s.name})" if s.negated else f"{s.name} {s.name}" for s in stages)
    return f"PATTERN SEQ({parts}) WHERE [id] WITHIN {round(WINDOW * TICKS)}"


def chain_of(stages: Sequence[Stage], cells: int = 1_024) -> Chain:
    return Chain(tuple(s.name for s in stages), tuple(s.negated for s in stages), WINDOW * TICKS, cells)


def enumerated(stages: Sequence[Stage], events: Sequence[Row]) -> list[tuple[int, tuple[float | None, ...]]]:
    """All bindings of one key after another: the number of the last event, and times since the window's start."""
    found = []
    by_key: dict[int, list[Row]] = {}
    for event in events:
        by_key.setdefault(event["id"], []).append(event)
    for number, last in enumerate(events):
        if last["type"] != stages[-1].name:
            continue
        start = last["ts"] - WINDOW * TICKS
        own = [event for event in by_key[last["id"]] if start < event["ts"] < last["ts"]]
        for chosen in itertools.product(*([None, *(e["ts"] for e in own if e["type"] == s.name)] for s in stages[:-1])):
            times = [time for time in chosen if time is not None]
            if all(a < b for a, b in itertools.pairwise(times)):
                found.append((number, tuple(None if time is None else time - start for time in chosen)))
    return found


def bindings_of(stages: Sequence[Stage], events: pa.Table, chain: Chain) -> Bindings:
    found = enumerated(stages, events.to_pylist())
    times = np.array([[np.nan if time is None else time for time in times] for _, times in found], float)
    group, ends = np.array([group for group, _ in found]), events["ts"].to_numpy()
    return Bindings.of(chain, times, group, ends[group])


class Naive(Local):
    """Bindings that the test enumerated."""

    def __init__(self, stages: Sequence[Stage], events: pa.Table) -> None:
        chain = chain_of(stages)
        bound = ouzel.query(query_of(stages)).bind(Catalog())
        super().__init__(chain, bound, bindings_of(stages, events, chain))


STAGES = [
    Stage("A", None, 0.9, 0.2, 200),
    Stage("B", Gamma(3, 3), 0.7, 0.2, 200),
    Stage("C", Gamma(2, 4)),
]
WITH_NEGATIVE = [
    Stage("A", None, 0.9, 0.15, 300),
    Stage("B", Gamma(4, 2), 0.8, 0.15, 300),
    Stage("N", Exponential(12), loss=0.15, background=300, negated=True),
    Stage("C", Gamma(3, 3)),
]


@pytest.mark.parametrize("stages", [STAGES, WITH_NEGATIVE], ids=["positive", "with a negative"])
def test_bindings_are_all_ways_to_bind_events(stages: list[Stage]) -> None:
    events, _ = sampled(stages, WINDOW, 40, 3)
    source = source_of(events, query_of(stages), time="ts", type="type", time_unit=None, params=None)
    assert isinstance(source, Local)
    naive = bindings_of(stages, events, source.chain)

    def rows(one: Bindings) -> list[tuple[int, ...]]:
        return sorted((int(g), *map(int, lengths)) for g, lengths in zip(one.group, one.lengths, strict=True))

    assert rows(source.bindings) == rows(naive)


def enumerated_likelihood(stages: Sequence[Stage], events: pa.Table, model: LossModel) -> float:
    """By the weights of tests/oracle/posterior.py, with the density of background events."""
    stored = json.loads(model.to_json())
    names = tuple(s.name for s in stages)
    chain = posterior.Chain(
        names,
        {s.name: s.negated for s in stages},
        {s.name: model.loss_of(s.name, None) for s in stages},
        stored,
        float,
        round(WINDOW * TICKS),
    )
    places = [number for number, s in enumerate(stages) if not s.negated][:-1]
    rows = events.to_pylist()
    total = 0.0
    for last in (event for event in rows if event["type"] == names[-1]):
        start = last["ts"] - WINDOW * TICKS
        own = [event for event in rows if event["id"] == last["id"] and start < event["ts"] < last["ts"]]
        bound = []
        for chosen in itertools.product(*([None, *(e["ts"] for e in own if e["type"] == names[p])] for p in places)):
            times = [time for time in chosen if time is not None]
            if all(a < b for a, b in itertools.pairwise(times)):
                bound.append({place: time for place, time in enumerate(chosen) if time is not None})

        def times(place: int, chosen: Any, last: Row = last) -> tuple[int, int]:
            moment = last["ts"] if chosen == "last" else chosen
            return moment, moment

        def observed(name: str, low: int, high: int, own: list[Row] = own) -> list[int]:
            return [event["ts"] for event in own if event["type"] == name and low < event["ts"] < high]

        every = math.fsum(
            posterior.weight(chain, choice, times, start, observed, negatives_happen=True)
            for choice in posterior.choices(chain, bound)
        )
        prior = chain.prior(names[-1])
        total += math.log(prior * every + 1 - prior)
        for stage in stages[:-1]:
            seen = sum(event["type"] == stage.name for event in own)
            total -= seen * math.log(chain.background(stage.name))
            total -= WINDOW * TICKS / chain.background(stage.name)
    return total


@pytest.mark.parametrize(
    "stages",
    [STAGES, [Stage(**{**vars(s), "loss": 0.0 if not s.negated else s.loss}) for s in WITH_NEGATIVE]],
    ids=["positive", "with a negative"],
)
def test_the_likelihood_is_that_of_enumerated_explanations(stages: list[Stage]) -> None:
    events, _ = sampled(stages, WINDOW, 12, 8)
    model = model_of([*stages[:-1], Stage(**{**vars(stages[-1]), "prior": 0.8})])
    chain = chain_of(stages, 4_096)
    found = counted(Edges(chain, model), bindings_of(stages, events, chain)).likelihood
    assert found == pytest.approx(enumerated_likelihood(stages, events, model), abs=0.02)


def assert_close(found: LossModel, stages: Sequence[Stage], within: float = 0.06) -> None:
    t = np.linspace(2, 30, 8)
    for stage in stages[:-1]:
        assert found.loss_of(stage.name, None) == pytest.approx(stage.loss, abs=within), stage.name
        if not stage.negated:
            assert found.priors[stage.name] == pytest.approx(stage.prior, abs=within)
    for stage in stages:
        if stage.gap is not None and not stage.negated:
            np.testing.assert_allclose(found.gaps[stage.name].cdf(t * TICKS), stage.gap.cdf(t), atol=within)


@pytest.mark.parametrize("stages", [STAGES, WITH_NEGATIVE], ids=["positive", "with a negative"])
def test_parameters_are_recovered_and_the_likelihood_never_falls(stages: list[Stage]) -> None:
    events, _ = sampled(stages, WINDOW, 3_000, 11)
    found, likelihoods = fit(Naive(stages, events), {})
    assert all(a <= b for a, b in itertools.pairwise(likelihoods))
    assert_close(found, stages)


def test_own_loss_rates_where_they_differ() -> None:
    """The first one's rate cannot be seen."""
    stages = [
        Stage("A", None, 0.9, 0.1, 1e5),
        Stage("B", Gamma(6, 2), 0.9, 0.05, 1e5),
        Stage("C", Gamma(6, 2), 0.9, 0.4, 1e5),
        Stage("D", Gamma(6, 1)),
    ]
    events, _ = sampled(stages, WINDOW, 3_000, 2)
    found, likelihoods = fit(Naive(stages, events), {})
    assert all(a <= b for a, b in itertools.pairwise(likelihoods))
    assert [found.loss_of(name, None) for name in "BC"] == pytest.approx([0.05, 0.4], abs=0.05)


def test_a_gap_that_skips_is_learnt_if_the_loss_is_given() -> None:
    stages = [STAGES[0], Stage(**{**vars(STAGES[1]), "skip": Exponential(6)}), STAGES[2]]
    events, _ = sampled(stages, WINDOW, 3_000, 4)
    found, _ = fit(Naive(stages, events), {"loss": 0.2}, {"B": "auto", "C": "gamma"})
    t = np.array([2.0, 5.0, 10.0, 20.0])
    np.testing.assert_allclose(found.skip_gaps["B"].cdf(t * TICKS), Exponential(6).cdf(t), atol=0.06)
    assert found.priors["B"] == pytest.approx(0.7, abs=0.05) and found.gaps["C"].family == "gamma"
    assert found.loss == 0.2 and not found.component_loss


def test_gaps_of_two_kinds_get_a_histogram() -> None:
    two = Histogram((0, 2, 4, 20, 24), (0, 5, 0, 5))
    stages = [STAGES[0], Stage("B", two, 0.9, 0.2, 200), STAGES[2]]
    events, _ = sampled(stages, WINDOW, 3_000, 9)
    found, _ = fit(Naive(stages, events), {})
    t = np.array([1.0, 4.0, 12.0, 19.0, 24.0])
    assert found.gaps["B"].family == "histogram"
    np.testing.assert_allclose(found.gaps["B"].cdf(t * TICKS), two.cdf(t), atol=0.06)


def test_what_is_given_stays() -> None:
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 300, 5)
    given: dict[str, Any] = {
        "component_loss": {"B": 0.11},
        "gaps": {"N": Exponential(12_000)},
        "priors": {"A": 0.77},
        "background": {"A": 5e6},
    }
    found, _ = fit(Naive(WITH_NEGATIVE, events), given | {"loss": 0.2})
    assert (found.loss, found.component_loss, found.gaps["N"]) == (0.2, {"B": 0.11}, Exponential(12_000))
    assert (found.priors["A"], found.background["A"]) == (0.77, 5e6)


def test_what_always_happened_gets_a_prior_below_1() -> None:
    """n + 1 of n + 2."""
    events = [{"type": t, "ts": 1_000 * n + at} for n in range(20) for t, at in (("A", 0), ("B", 7 + n % 5), ("C", 20))]
    model = LossModel.fit(events, "PATTERN SEQ(A a, B b, C c) WITHIN 500", loss=0.01)
    assert model.priors == {name: pytest.approx(21 / 22) for name in "abc"}


def test_counts_of_parts_add_up() -> None:
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 200, 6)
    chain = chain_of(WITH_NEGATIVE)
    data, edges = bindings_of(WITH_NEGATIVE, events, chain), Edges(chain, model_of(WITH_NEGATIVE))
    whole, sums = counted(edges, data), Counts()
    parts = list(data.parts(len(data.group) // 3))
    assert len(parts) >= 3
    for part in parts:
        sums += counted(edges, part)
    assert sums.likelihood == pytest.approx(whole.likelihood)
    assert sums.edges.keys() == whole.edges.keys()
    for key, cells in whole.edges.items():
        np.testing.assert_allclose(sums.edges[key], cells, atol=1e-9)


def test_times_with_a_unit_give_durations() -> None:
    events, _ = sampled(STAGES, WINDOW, 300, 7)
    stamped = events.set_column(0, "ts", events["ts"].cast(pa.timestamp("ms")))
    plain = LossModel.fit(events, query_of(STAGES), family="gamma")
    found = LossModel.fit(stamped, query_of(STAGES).replace("WITHIN 60000", "WITHIN 60 s"), family="gamma")
    gap, other = found.gaps["B"], plain.gaps["B"]
    assert isinstance(gap, Gamma) and isinstance(other, Gamma) and isinstance(gap.scale, Duration)
    assert gap.scale.nanoseconds == pytest.approx(1e6 * float(other.scale), rel=1e-6)  # type: ignore[arg-type]
    assert LossModel.from_json(found.to_json()) == found


def test_negatives_that_compare_attributes() -> None:
    """`n.id = c.id` holds for a negative without an event."""
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 60, 5)
    other = query_of(WITH_NEGATIVE).replace("[id]", "A.id[C.id] = C.id AND B.id[C.id] = C.id AND N.id = C.id")
    sources = [
        source_of(events, text, time="ts", type="type", time_unit=None, params=None)
        for text in (query_of(WITH_NEGATIVE), other)
    ]
    first, second = (count(source, model_of(WITH_NEGATIVE)).likelihood for source in sources)
    assert first == pytest.approx(second)


def test_a_report_finds_nothing_against_the_model_that_made_the_stream() -> None:
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 1_500, 11)
    found = report(Naive(WITH_NEGATIVE, events), model_of(WITH_NEGATIVE))
    assert found.is_trusted and "nothing in the stream contradicts the model" in str(found)
    assert json.loads(json.dumps(found.to_dict()))["last_events"] == found.last_events == 1_500
    assert all(
        mean == pytest.approx(share, abs=4 * math.sqrt(0.25 / count)) for count, mean, share in found.calibration
    )


def test_a_report_names_what_is_wrong() -> None:
    events, _ = sampled(WITH_NEGATIVE, WINDOW, 1_500, 11)
    right = model_of(WITH_NEGATIVE)
    source = Naive(WITH_NEGATIVE, events)
    for changed, warning in (
        ({"gaps": {**right.gaps, "B": Exponential(8_000)}}, "the gap before 'B' is not exponential.*; try gamma"),
        ({"component_loss": {"A": 0.04, "B": 0.04, "N": 0.04}}, "do not trust probabilities in which 'A' is missing"),
        ({"priors": {**right.priors, "B": 0.5}}, "the prior of 'B' is 0.500, and the stream suggests 0.[67]"),
    ):
        found = report(source, replace(right, **changed))  # type: ignore[arg-type]
        assert not found.is_trusted
        assert re.search(warning, str(found)), str(found)
    lacking = replace(right, gaps={name: gap for name, gap in right.gaps.items() if name != "B"})
    with pytest.raises(InputError, match="no gap of 'B'"):
        report(source, lacking)


EVENTS = [{"type": "A", "ts": 1}, {"type": "B", "ts": 2}, {"type": "C", "ts": 3}]


@pytest.mark.parametrize(
    ("text", "given", "reason"),
    [
        ("PATTERN SEQ(A a, B b) WITHIN 9", {}, "give loss= or component_loss="),
        ("PATTERN SEQ(A a, B b, C c)", {}, "give WITHIN"),
        ("PATTERN SEQ(A a, B b, C c) WITHIN 9 EVENTS", {}, "window of time"),
        ("PATTERN SEQ(A a, B+ b[], C c) WITHIN 9", {}, "single components"),
        ("PATTERN SEQ(A a, B b, !(C c)) WITHIN 9", {}, "last component, which must be positive"),
        ("PATTERN SEQ(A a, B b, D d) WITHIN 9", {}, "no event fits the last component"),
        ("PATTERN SEQ(A a, B b, C c) WITHIN 9", {"family": "normal"}, "no family of gaps 'normal'"),
    ],
)
def test_streams_that_cannot_be_learnt_from(text: str, given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        LossModel.fit(EVENTS, text, **given)
