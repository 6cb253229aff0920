"""What each sort of step of shared counters costs on this machine, fitted to many small mixes of queries.

    python -m benchmarks.aggregate_prices [--mixes 80]

Prints the prices for `ouzel.engines.aggregate.sharing_cost`, and how far the fit is from what was measured.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence

import numpy as np

from benchmarks.aggregate_sharing import Contest, Mix, random_mix
from benchmarks.measure import cpu_seconds
from ouzel.engines.aggregate.sharing import choose_segments
from ouzel.engines.aggregate.sharing_cost import PRICES, Work, work_of
from ouzel.engines.aggregate.tree_tables import Part

EVENTS = 100_000


def steps(patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]], mix: Mix, *, merge: bool) -> Work:
    """Steps for each event of a mix."""
    total = np.zeros(len(PRICES))
    deepest = max(map(len, mix.patterns))
    for together in [patterns] if merge else [[pattern] for pattern in patterns]:
        for symbol, work in work_of(together, segments, levels=None if merge else deepest):
            total += mix.rates[symbol] / sum(mix.rates) * np.array(work)
    return Work(*total)


def fitted(steps_of: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Prices, none below zero, by least squares of relative errors: the sort that would cost least is taken out."""
    left = list(range(steps_of.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(steps_of[:, left] / taken[:, None], np.ones(len(taken)), rcond=None)
        if (found >= 0).all():
            prices = np.zeros(steps_of.shape[1])
            prices[left] = found
            return prices
        left.pop(int(found.argmin()))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.aggregate_prices", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--mixes", type=int, default=80)
    given = parser.parse_args(arguments)
    rows, taken = [], []
    for number in range(given.mixes):
        mix = random_mix(number)
        # Segments are cut out wherever they can be, the best two first: prices are wanted of those that do not pay too.
        parts, segments = choose_segments(mix.patterns, mix.rates, worth=10.0, most=1 + number % 2)
        for patterns, cut, merge in ((parts, segments, True), (mix.patterns, (), True), (mix.patterns, (), False)):
            run = Contest.work(mix, patterns, cut, EVENTS, merge=merge)
            run()
            taken.append(statistics.median(cpu_seconds(run) for _ in range(3)) / EVENTS * 1e9)
            rows.append(steps(patterns, cut, mix, merge=merge))
    steps_of, seconds = np.array(rows), np.array(taken)
    prices = fitted(steps_of, seconds)
    error = steps_of @ prices / seconds
    print(Work(*(round(float(price), 2) for price in prices)))
    print(f"fitted to measured: {', '.join(f'{q:.2f}' for q in np.quantile(error, [0.05, 0.25, 0.5, 0.75, 0.95]))}")
    told = error.reshape(-1, 3)
    ratios = told[:, 0] / told[:, 2]
    print(f"of ratios: {', '.join(f'{q:.2f}' for q in np.quantile(ratios, [0.05, 0.25, 0.5, 0.75, 0.95]))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
