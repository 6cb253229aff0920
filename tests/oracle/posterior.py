"""docs/semantics.md, "Probabilities": every explanation of a last event, one by one, with its weight under the model.

An explanation says of each positive component but the last that it was observed as an event, was lost, did not happen
or happened before the window. Its weight is the product of the table's factors, integrated over the times of the lost
events. Nothing is shared between explanations but integrals that were done already.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import special

LOST, ABSENT, BEFORE, ANYTHING = "lost", "did not happen", "happened before the window", "before that"
DEFAULT_WINDOWS = 1_000
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
# Densities may be steep at both ends of an integral.
_CUTS = np.array([0.0, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0])


@dataclass(frozen=True)
class Part:
    """A function of one length of time, by a name; `kinks` are where it jumps or bends."""

    name: tuple[Any, ...]
    function: Callable[[np.ndarray], np.ndarray] = field(compare=False)
    kinks: tuple[float, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Distribution:
    """Density, distribution function and what is left of 1."""

    pdf: Callable[[Any], Any]
    cdf: Callable[[Any], Any]
    sf: Callable[[Any], Any]
    kinks: tuple[float, ...] = ()


def distribution(stored: Mapping[str, Any], ticks: Callable[[Any], float]) -> Distribution:
    """A gap in a model's JSON. Its functions are of lengths from 0 on."""
    match stored["family"]:
        case "exponential":
            mean = ticks(stored["mean"])
            return Distribution(
                lambda t: np.exp(-t / mean) / mean, lambda t: -np.expm1(-t / mean), lambda t: np.exp(-t / mean)
            )
        case "gamma":
            shape, scale = stored["shape"], ticks(stored["scale"])
            return Distribution(
                lambda t: np.exp(special.xlogy(shape - 1, t / scale) - t / scale - special.gammaln(shape)) / scale,
                lambda t: special.gammainc(shape, t / scale),
                lambda t: special.gammaincc(shape, t / scale),
            )
        case "lognormal":
            sigma, middle = stored["sigma"], math.log(ticks(stored["median"]))

            def normal(t: Any) -> Any:
                return (np.log(np.maximum(t, 1e-300)) - middle) / sigma

            return Distribution(
                lambda t: (
                    np.exp(-(normal(t) ** 2) / 2 - np.log(np.maximum(t, 1e-300))) / (sigma * math.sqrt(2 * math.pi))
                ),
                lambda t: special.ndtr(normal(t)),
                lambda t: special.ndtr(-normal(t)),
            )
        case family:
            uniform = family == "uniform"
            edges = [ticks(edge) for edge in ((stored["low"], stored["high"]) if uniform else stored["edges"])]
            shares = np.array([1.0] if uniform else stored["counts"], float)
            shares /= shares.sum()
            summed = np.concatenate([[0.0], np.cumsum(shares)])
            # Intervals are closed below and open above.
            heights = np.concatenate([[0.0], shares / np.diff(edges), [0.0]])
            return Distribution(
                lambda t: heights[np.searchsorted(edges, t, side="right")],
                lambda t: np.interp(t, edges, summed),
                lambda t: 1 - np.interp(t, edges, summed),
                tuple(edges),
            )


def convolved(parts: Sequence[Part], at: np.ndarray) -> np.ndarray:
    """The integral over all lengths that sum to a time of the product of the functions of each."""
    first, *rest = parts
    if not rest:
        return first.function(at)
    others = {0.0}
    for part in rest:
        others |= {total + kink for total in others for kink in part.kinks}
    ends = at[..., None]
    cuts = np.concatenate(
        [ends * _CUTS]
        + [np.broadcast_to(np.clip(kink, 0.0, ends), ends.shape) for kink in first.kinks]
        + [np.clip(ends - kink, 0.0, ends) for kink in sorted(others)],
        axis=-1,
    )
    cuts = np.sort(cuts, axis=-1)
    half = np.diff(cuts, axis=-1)[..., None] / 2
    t = cuts[..., :-1, None] + half * (1 + _NODES)
    values = first.function(t) * convolved(rest, np.maximum(at[..., None, None] - t, 0.0))
    return (values * half * _WEIGHTS).sum(axis=(-1, -2))


@dataclass(frozen=True)
class Chain:
    """The components of a query under a model, in ticks: gaps and rates by the names of components."""

    names: tuple[str, ...]
    negated: Mapping[str, bool]
    losses: Mapping[str, float]
    model: Mapping[str, Any]
    ticks: Callable[[Any], float]
    window: int
    known: dict[Any, float] = field(default_factory=dict, compare=False)
    gaps: dict[tuple[str, str], Distribution] = field(default_factory=dict, compare=False)

    @property
    def positives(self) -> list[str]:
        return [name for name in self.names if not self.negated[name]]

    def lacks(self) -> bool:
        """ "Null if the model has no prior of a component that may be lost, or no gap of a positive but the first"."""
        can_be_lost = [name for name in self.positives[:-1] if self.losses[name] > 0]
        return any(name not in self.model["priors"] for name in can_be_lost) or any(
            name not in self.model["gaps"] for name in self.positives[1:]
        )

    def prior(self, name: str) -> float:
        return float(self.model["priors"].get(name, 1.0))

    def background(self, name: str) -> float:
        stored = self.model.get("background", {})
        return self.ticks(stored[name]) if name in stored else DEFAULT_WINDOWS * self.window

    def distribution(self, kind: str, name: str) -> Distribution:
        """Of `gaps` or `skip_gaps`."""
        if (kind, name) not in self.gaps:
            self.gaps[kind, name] = distribution(self.model[kind][name], self.ticks)
        return self.gaps[kind, name]

    def gap(self, source: int, target: int) -> tuple[tuple[Any, ...], Distribution]:
        """From one positive that happened to the next that did."""
        skipped, name = self.positives[target - 1], self.positives[target]
        if target > source + 1 and skipped in self.model["skip_gaps"]:
            return ("skip", skipped), self.distribution("skip_gaps", skipped)
        return ("gap", name), self.distribution("gaps", name)

    def negatives_between(self, source: int, target: int) -> list[str]:
        """By places among the positives; source -1: before the first."""
        low = self.names.index(self.positives[source]) if source >= 0 else -1
        high = self.names.index(self.positives[target])
        return [name for name in self.names[low + 1 : high] if self.negated[name]]


Choice = tuple[Any, ...]  # of each positive but the last: the place of its event, or one of the words above


def choices(chain: Chain, bindings: Iterable[Mapping[int, int]]) -> Iterator[Choice]:
    """All explanations; `bindings` are the allowed ways to bind events, each as the places of events by positive."""
    length = len(chain.positives) - 1
    for bound in bindings:
        for before in (None, *range(length)):
            if before is not None and any(place <= before for place in bound):
                continue
            first = 0 if before is None else before + 1
            free = [place for place in range(first, length) if place not in bound]
            for fates in itertools.product((LOST, ABSENT), repeat=len(free)):
                made: dict[int, Any] = dict(zip(free, fates, strict=True))
                for place in range(first):
                    made[place] = BEFORE if place == before else ANYTHING
                made |= bound
                yield tuple(made[place] for place in range(length))


def weight(
    chain: Chain,
    choice: Choice,
    times: Callable[[int, Any], tuple[int, int]],
    window_start: int,
    observed: Callable[[str, int, int], Sequence[int]],
    *,
    negatives_happen: bool,
) -> float:
    """The weight of an explanation. `times` gives start and end of a bound event, `observed` the times of the observed
    events of a negative between two times. Without `negatives_happen` no negative may have happened."""
    total = 1.0
    for place, fate in enumerate(choice):
        name = chain.positives[place]
        prior, loss = chain.prior(name), chain.losses[name]
        if fate == LOST:
            total *= prior * loss
        elif fate == ABSENT:
            total *= 1 - prior
        elif fate == BEFORE:
            total *= prior
        elif fate != ANYTHING:
            total *= prior * (1 - loss) * chain.background(name)
    if total == 0:
        return 0.0
    # From one thing that is fixed in time to the next: the start of the window, and bound events.
    parts: list[Part] = []
    without: list[dict[str, Part]] = []  # for each part and each of its negatives: the part without this negative
    anchor = window_start
    outside = (ABSENT, BEFORE, ANYTHING)
    before = next((place for place, fate in enumerate(choice) if fate == BEFORE), None)
    for place, fate in [*enumerate(choice), (len(choice), "last")]:
        if fate in outside:
            continue
        inside = [p for p in range(place) if choice[p] not in outside]
        if inside:
            gap, own = chain.gap(inside[-1], place), chain.negatives_between(inside[-1], place)
        elif before is not None:
            gap, own = chain.gap(before, place), []
        else:
            gap, own = None, chain.negatives_between(-1, 0)
        seen: dict[str, list[float]] = {}
        if negatives_happen and not parts and fate != LOST:
            begin = times(place, fate)[0]
            seen = {name: [moment - anchor for moment in observed(name, anchor, begin)] for name in own}
        survives = not inside
        parts.append(part(chain, gap, own, seen, is_survival=survives, negatives_happen=negatives_happen))
        without.append(
            {
                n: part(chain, gap, [m for m in own if m != n], {}, is_survival=survives, negatives_happen=True)
                for n in own
                if n in chain.model["gaps"]
            }
        )
        if fate != LOST:
            begin, end = times(place, fate)
            key = (tuple(p.name for p in parts), begin - anchor)
            if key not in chain.known:
                chain.known[key] = float(convolved(parts, np.array(float(begin - anchor))))
            factor = chain.known[key]
            if negatives_happen and len(parts) > 1:
                for place, choices_without in enumerate(without):
                    for name, other in choices_without.items():
                        due = chain.distribution("gaps", name)
                        scale = (1 - chain.losses[name]) * chain.background(name)
                        for moment in observed(name, anchor, begin):
                            split = (parts[:place], other, parts[place + 1 :])
                            key = (tuple(p.name for p in parts), place, name, moment - anchor, begin - anchor)
                            if key not in chain.known:
                                chain.known[key] = scale * beside(*split, due, moment - anchor, begin - anchor)
                            factor += chain.known[key]
            total *= factor
            parts, without, anchor = [], [], end
    return total


def beside(
    before: Sequence[Part], slot: Part, after: Sequence[Part], due: Distribution, moment: float, total: float
) -> float:
    """The integral over all lengths that sum to `total`, if a negative that is due in the slot was observed at a
    moment of it."""
    times, weights = np.array([0.0]), np.array([1.0])
    if before:
        kinks = {moment - kink for kink in due.kinks} | {kink for p in before for kink in p.kinks}
        kinks |= {total - kink for kink in slot.kinks}
        times, weights = nodes(0.0, moment, kinks)
        weights = weights * convolved(before, times)
    found = 0.0
    for t, w in zip(times, weights * due.pdf(moment - times), strict=True):
        if w == 0:
            continue
        if not after:
            found += w * float(slot.function(np.array([total - t]))[0])
            continue
        kinks = {t + kink for kink in slot.kinks} | {total - kink for p in after for kink in p.kinks}
        ends, own = nodes(moment, total, kinks)
        found += w * float((slot.function(ends - t) * convolved(after, total - ends) * own).sum())
    return found


def nodes(low: float, high: float, kinks: Iterable[float]) -> tuple[np.ndarray, np.ndarray]:
    """The places and weights of an integral."""
    cuts = np.array(sorted({*(low + (high - low) * _CUTS), *(kink for kink in kinks if low < kink < high)}))
    half = np.diff(cuts)[:, None] / 2
    return (cuts[:-1, None] + half * (1 + _NODES)).ravel(), (half * _WEIGHTS).ravel()


def part(
    chain: Chain,
    entered: tuple[tuple[Any, ...], Distribution] | None,
    negatives: Sequence[str],
    seen: Mapping[str, Sequence[float]],
    *,
    is_survival: bool,
    negatives_happen: bool,
) -> Part:
    """The factors of one length of time: its gap, and the negatives in it."""
    name = entered[0] if entered is not None else ()
    kinks = set(entered[1].kinks) if entered is not None else set()
    gaps = {n: chain.distribution("gaps", n) for n in negatives if n in chain.model["gaps"]}
    for gap in gaps.values():
        kinks |= set(gap.kinks)

    def function(t: np.ndarray) -> np.ndarray:
        found = np.ones(t.shape)
        if entered is not None:
            found = entered[1].sf(t) if is_survival else entered[1].pdf(t)
        for negative, gap in gaps.items():
            factor = gap.sf(t)
            if negatives_happen:
                factor = factor + chain.losses[negative] * gap.cdf(t)
                for moment in seen.get(negative, ()):
                    factor = factor + (1 - chain.losses[negative]) * chain.background(negative) * gap.pdf(moment)
            found = found * factor
        return found

    observed = tuple((n, tuple(moments)) for n, moments in seen.items())
    rates = tuple(chain.losses[n] for n in negatives)
    return Part(
        (name, is_survival, tuple(negatives), rates, observed, negatives_happen), function, tuple(sorted(kinks))
    )


def probability(
    chain: Chain,
    path: Choice,
    explanations: Sequence[Choice],
    times: Callable[[int, Any], tuple[int, int]],
    window_start: int,
    observed: Callable[[Choice, str, int, int], Sequence[int]],
    left: float | None = None,
) -> float:
    """The weight of a path among all explanations of its last event. A query with a negated end has so much time `left`
    from the last event to the end of the window."""
    prior = chain.prior(chain.positives[-1])

    def weighed(choice: Choice, happen: bool) -> float:
        return weight(
            chain,
            choice,
            times,
            window_start,
            lambda name, low, high: observed(choice, name, low, high),
            negatives_happen=happen,
        )

    every = math.fsum(weighed(choice, True) for choice in explanations)
    own = weighed(path, False)
    for name in chain.names[chain.names.index(chain.positives[-1]) + 1 :] if left is not None else ():
        if name in chain.model["gaps"]:
            gap = chain.distribution("gaps", name)
            own *= float(gap.sf(left))
            every *= float(gap.sf(left) + chain.losses[name] * gap.cdf(left))
    whole = prior * every + 1 - prior
    return min(prior * own / whole, 1.0) if whole > 0 else 0.0
