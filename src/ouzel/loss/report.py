"""How well a loss model fits a stream: `LossModel.report`.

What really happened is not known. So some of the observed events are hidden, and the model must guess which. The model
is calibrated if, among the cases to which it gives a probability near p, an event was hidden in a share near p.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ouzel.loss.fitting import AUTO, best_gap, schwarz
from ouzel.loss.learning import (
    Bindings,
    Chain,
    Counts,
    Edges,
    completed,
    convolved,
    edges_of,
    of_edge,
    posterior,
    weights,
)

if TYPE_CHECKING:
    from ouzel.loss.model import LossModel

Array = NDArray[np.float64]
_BINS = 10
# The share of observed events that is hidden.
_HIDDEN = 0.15
# A bin needs so many last events.
_BIN_MIN = 100
_CALIBRATION_MAX = 0.05
_DISTANCE_MAX = 0.05
_CHANGE_MAX = 0.03


@dataclass
class Hidden:
    """By component and bin of probability: the number of cases, the sum of their probabilities, and how many were
    really hidden.
    """

    bins: dict[int, Array] = field(default_factory=dict)

    def __iadd__(self, other: Hidden) -> Hidden:
        for key, value in other.bins.items():
            self.bins[key] = self.bins[key] + value if key in self.bins else value
        return self


def hidden(chain: Chain, model: LossModel, data: Bindings) -> Hidden:
    """Hide some events, and compare the model's probabilities with what was hidden."""
    made = Hidden()
    edges = Edges(chain, model)
    before, _ = posterior(edges, data, weights(edges, data))
    drop = np.zeros(len(before), bool)
    chosen: dict[int, NDArray[np.bool_]] = {}
    for position in chain.positives[:-1]:
        cells = data.lengths[:, position]
        chosen[position] = (cells >= 0) & (_mixed(data.ends, cells, position) < _HIDDEN)
        drop |= chosen[position]
    losses = {
        name: 1 - (1 - model.loss_of(name, None)) * (1 - (_HIDDEN if position in chosen else 0))
        for position, name in enumerate(chain.names)
    }
    edges = Edges(chain, replace(model, component_loss=losses))
    rest = data.without(drop)
    after, _ = posterior(edges, rest, weights(edges, rest))
    lost = lost_shares(edges, rest)
    for place, position in enumerate(chain.positives[:-1]):
        own = model.loss_of(chain.names[position], None)
        share = _HIDDEN * (1 - own) / losses[chain.names[position]]
        predicted = np.bincount(rest.group, after * lost[place] * share, data.groups)
        true = np.bincount(data.group, before * chosen[position], data.groups)
        number = np.minimum((predicted * _BINS).astype(int), _BINS - 1)
        made.bins[position] = np.stack(
            [np.bincount(number, of, _BINS) for of in (np.ones(data.groups), predicted, true)]
        )
    return made


def _mixed(ends: NDArray[np.int64], cells: NDArray[np.int32], position: int) -> Array:
    """A pseudo-random number in [0, 1) for each event before a last event."""
    mixed = ends.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= (cells.astype(np.int64) + 7_919 * (position + 1)).astype(np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    mixed *= np.uint64(0x94D049BB133111EB)
    return np.asarray((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53)


def lost_shares(edges: Edges, data: Bindings) -> dict[int, Array]:
    """For each binding, the probability that a positive component was lost, by the index of this component."""
    chain = edges.chain
    found = {place: np.zeros(len(data.lengths)) for place in range(len(chain.positives) - 1)}
    known: dict[tuple[int, int, int], Array] = {}

    def lost(source: int, target: int, place: int) -> Array:
        key = source, target, place
        if key not in known:
            made = np.zeros(chain.cells + 1)
            for last in range(max(source + 1, place), target):
                before = edges.every(source, last) if last == place else lost(source, last, place)
                made += edges.lost(last) * convolved(before, edges.step(last, target))
            known[key] = made
        return known[key]

    for bound, rows in data.by_bound:
        for edge in edges_of(chain, bound, data.lengths[rows]):
            for place in range(edge.source + 1, edge.target):
                part = lost(edge.source, edge.target, place)[edge.length]
                whole = edges.every(edge.source, edge.target)[edge.length]
                scale = np.ones_like(part)
                if edge.observed:
                    # As without the observed negatives, among the explanations in which something was lost.
                    alone, beside = of_edge(edges, edge)
                    scale = np.divide(beside, alone + beside, out=np.zeros_like(part), where=beside > 0)
                    whole = whole - edges.nothing_lost(edge.source, edge.target)[edge.length]
                share = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
                found[place][rows] = scale * np.minimum(share, 1.0)
    return found


# ── The report ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class ComponentReport:
    """The model's values for a component, and the values that the stream suggests if the rest of the model is
    correct.
    """

    name: str
    prior: float | None
    prior_in_stream: float | None
    loss: float
    loss_in_stream: float | None
    family: str | None
    # The largest distance between the distributions of the gap in the model and in the stream, less what may be chance.
    distance: float | None
    better_family: str | None


@dataclass(frozen=True)
class Report:
    """How well a loss model fits a stream: `print(report)` shows text, `report.to_dict()` returns data."""

    last_events: int
    log_likelihood: float
    components: tuple[ComponentReport, ...]
    # Of hidden events: how many, the mean probability, and the share that was hidden.
    calibration: tuple[tuple[int, float, float], ...]
    warnings: tuple[str, ...]

    @property
    def worst_bin(self) -> float:
        """The largest difference between a probability and the share of cases in which it was true."""
        return max((abs(mean - share) for _, mean, share in self.calibration), default=0.0)

    @property
    def is_trusted(self) -> bool:
        """Whether nothing in the stream contradicts the model."""
        return not self.warnings

    def to_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        return {**asdict(self), "worst_bin": self.worst_bin, "is_trusted": self.is_trusted}

    def __str__(self) -> str:
        rows = [["component", "prior", "in stream", "loss", "in stream", "gap", "distance", "better"]]
        for one in self.components:
            rows.append(
                [
                    one.name,
                    *(_number(v) for v in (one.prior, one.prior_in_stream, one.loss, one.loss_in_stream)),
                    one.family or "",
                    _number(one.distance),
                    one.better_family or "",
                ]
            )
        widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
        lines = [
            f"{self.last_events:,} last events, log-likelihood {self.log_likelihood:,.1f}",
            *("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows),
            f"hidden events: worst bin {self.worst_bin:.3f}",
            *(f"warning: {text}" for text in self.warnings),
        ]
        if self.is_trusted:
            lines.append("nothing in the stream contradicts the model")
        return "\n".join(lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def report(chain: Chain, model: LossModel, counts: Counts, found: Hidden) -> Report:
    """The report, from sums over a stream."""
    edges = Edges(chain, model)
    made = completed(edges, counts)
    warnings: list[str] = []
    components = []
    for position, name in enumerate(chain.names):
        happened, absent = made.happened.get(name, 0.0), made.absent.get(name, 0.0)
        lost, bound = made.lost.get(name, 0.0), counts.bound.get(position, 0.0)
        is_last = position == chain.positives[-1]
        if is_last:
            happened, absent = counts.attempts, counts.last_events - counts.attempts
        prior = None if chain.negated[position] else edges.prior(chain.positives.index(position))
        learnt_prior = happened / (happened + absent) if prior is not None and happened + absent else None
        learnt_loss = lost / (lost + bound) if not is_last and lost + bound else None
        distance, better = _gap_of(edges, counts, made.gaps.get(("gaps", name)), position)
        gap = model.gaps.get(name)
        one = ComponentReport(
            name,
            prior,
            learnt_prior,
            edges.loss(position),
            learnt_loss,
            None if gap is None else gap.family,
            distance,
            better,
        )
        components.append(one)
        warnings += _contradictions(one, happened + absent, lost + bound)
    calibration = []
    for own in found.bins.values():
        calibration += [(int(n), float(p / n), float(t / n)) for n, p, t in own.T if n >= _BIN_MIN]
    for position, own in found.bins.items():
        for count, predicted, true in own.T:
            if count < _BIN_MIN:
                continue
            mean, share = predicted / count, true / count
            noise = 3 * np.sqrt(max(mean * (1 - mean), 1e-6) / count)
            if abs(mean - share) > _CALIBRATION_MAX + noise:
                warnings.append(
                    f"do not trust probabilities in which '{chain.names[position]}' is missing: of events that were "
                    f"hidden with probability {mean:.2f}, {share:.2f} were"
                )
                break
    return Report(
        int(counts.last_events), float(counts.likelihood), tuple(components), tuple(calibration), tuple(warnings)
    )


def _gap_of(edges: Edges, counts: Counts, cells: Array | None, position: int) -> tuple[float | None, str | None]:
    """(distance, family): the distance of the model's gap from that of the stream, and a family that fits clearly
    better; None for either if not known.
    """
    chain = edges.chain
    name = chain.names[position]
    gap = edges.model.gaps.get(name)
    if gap is None or cells is None or cells.sum() < _BIN_MIN:
        return None, None
    families = (*AUTO, "histogram")
    best = best_gap(chain.lengths, cells, families)
    gain = schwarz(gap, chain.lengths, cells) - schwarz(best, chain.lengths, cells)
    better = best.family if best.family != gap.family and gain > 10 else None
    if chain.negated[position]:
        seen = counts.seen.get(position)
        return None, better if seen is not None else None
    place = chain.positives.index(position)
    observed = sum(
        (amount for key, amount in counts.edges.items() if key[:3] == (place - 1, place, ())),
        np.zeros(chain.cells + 1),
    )
    expected = edges.step(place - 1, place)
    if place == 0 or observed.sum() < _BIN_MIN or expected.sum() == 0:
        return None, better
    distance = np.abs(np.cumsum(observed) / observed.sum() - np.cumsum(expected) / expected.sum()).max()
    # Kolmogorov's bound for 1 in 100: what is within it may be chance.
    return max(float(distance) - 1.63 / np.sqrt(observed.sum()), 0.0), better


def _contradictions(one: ComponentReport, cases: float, lost_cases: float) -> list[str]:
    found = []
    pairs: Mapping[str, tuple[float | None, float | None, float]] = {
        "prior": (one.prior, one.prior_in_stream, cases),
        "loss rate": (one.loss, one.loss_in_stream, lost_cases),
    }
    for what, (given, learnt, count) in pairs.items():
        if given is None or learnt is None or count < _BIN_MIN:
            continue
        noise = 3 * np.sqrt(max(learnt * (1 - learnt), 1e-4) / count)
        if abs(given - learnt) > _CHANGE_MAX + noise:
            found.append(f"the {what} of '{one.name}' is {given:.3f}, and the stream suggests {learnt:.3f}; fit it")
    if one.distance is not None and one.distance > _DISTANCE_MAX:
        instead = f"; try {one.better_family}" if one.better_family else ""
        found.append(
            f"the gap before '{one.name}' is not {one.family} as the model has it: the distributions are "
            f"{one.distance:.2f} further apart than by chance{instead}"
        )
    return found


__all__ = ["ComponentReport", "Hidden", "Report", "hidden", "report"]
