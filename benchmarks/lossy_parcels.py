"""Seeded streams of parcels that do not follow the model of docs/semantics.md, "Probabilities", and what really
happened.

A parcel is read at the depot, perhaps at a hub, at the van and at the door, where no reading is lost. Gaps of one
parcel are correlated or have two modes, readers fail for hours, and some parcels are read twice. Times are seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import ouzel
from ouzel import LossModel

PATTERN = "PATTERN SEQ(Depot a, Hub b, Van c, Door d) WHERE [parcel] WITHIN 250000"
TYPES = ("Depot", "Hub", "Van", "Door")


@dataclass(frozen=True)
class Stream:
    """`truth` has for each parcel the events of the complex event that happened, or nothing."""

    events: pa.Table
    truth: list[tuple[int | None, ...] | None]

    def judged(self, model: LossModel) -> tuple[np.ndarray, np.ndarray]:
        """The probabilities of all paths, and whether each is true."""
        times = ", ".join(f"{name}.ts AS {name}" for name in "abcd")
        text = f"{PATTERN} THRESHOLD 0 RETURN Path(d.parcel AS parcel, {times})"
        found = ouzel.match(self.events, text, model=model)
        paths = zip(*(found[name].to_pylist() for name in "abcd"), strict=True)
        right = [self.truth[parcel] == path for parcel, path in zip(found["parcel"].to_pylist(), paths, strict=True)]
        return found["probability"].to_numpy(), np.array(right)


def stream(
    gaps: Callable[[np.random.Generator, int], np.ndarray],
    losses: Callable[[np.random.Generator, np.ndarray], np.ndarray],
    skips: float,
    seed: int,
    count: int = 5_000,
) -> Stream:
    """`gaps` makes three lengths for each parcel, `losses` says which of three readings of each parcel are lost by the
    time of reading; a hub is skipped so often."""
    rng = np.random.default_rng(seed)
    start = rng.integers(0, 20_000_000, count)
    between = gaps(rng, count)
    skipped = rng.random(count) < skips
    between[skipped, 0] = 0
    times = start[:, None] + np.concatenate([np.zeros((count, 1)), np.cumsum(between, axis=1)], axis=1)
    times = np.rint(times).astype(np.int64)
    seen = np.concatenate([~losses(rng, times[:, :3]), np.ones((count, 1), bool)], axis=1)
    seen[skipped, 1] = False
    rows = [(int(times[n, place]), TYPES[place], n) for n in range(count) for place in range(4) if seen[n, place]]
    # A few parcels are read twice at the hub, much later than the first time.
    rows += [(int(times[n, 1] + rng.integers(1, 5_000)), "Hub", n) for n in range(0, count, 50) if seen[n, 1]]
    rows.sort()
    truth = [
        None if skipped[n] else tuple(int(t) if s else None for t, s in zip(times[n], seen[n], strict=True))
        for n in range(count)
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
