"""Incomplete streams: recall, precision and calibration against the truth, and what probabilities cost.

    python -m benchmarks.probabilistic [--quick] [--runs N] [--json FILE] [--page]

Fixed seeds, one warm-up, medians of alternating runs, ratios of CPU time within one run. Every part checks its answers.
Prints readable tables, then JSON; `--page` writes the tables and the calibration plot into benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import ouzel
from benchmarks import lossy_parcels
from benchmarks.lossy_shop import PATTERN, RETURN, WITHOUT_GATE, LossyShop, lossy_shop, model_of
from benchmarks.measure import Bar, alternate, machine, markdown
from benchmarks.report import BAR_HEADINGS
from ouzel import LossModel, ModelWarning
from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal, Uniform
from ouzel.runtime.engine import match_without

RESULTS = Path(__file__).parent / "results"
LOSSES = (0.01, 0.05, 0.1)
BIN_WIDTH, BIN_MIN = 0.1, 1_000

Part = tuple[str, str, list[Bar]]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer events, three runs")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--page", action="store_true", help="write benchmarks/results/probabilistic.md and its plot")
    asked = parser.parse_args(arguments)
    runs = asked.runs or (3 if asked.quick else 5)
    items, events = (100_000, 200_000) if asked.quick else (400_000, 1_000_000)
    pa.set_cpu_count(1)
    shops = {loss: lossy_shop(items, loss, seed=1) for loss in LOSSES}
    bins = {loss: calibration(shop, loss, PATTERN) for loss, shop in shops.items()}
    parts = [
        quality(shops),
        calibration_table(bins, calibration(shops[0.05], 0.05, WITHOUT_GATE)),
        foreign(items // 20),
        lossless(events, runs),
        by_length(events, runs),
        by_window(1_000_000, runs),
        by_window_of_same_keys(events, runs),
        by_family(events, runs),
        bounds(events // 10, runs),
    ]
    bars = [bar for _, _, found in parts for bar in found]
    verdict = markdown(BAR_HEADINGS, [bar.cells() for bar in bars])
    for title, table, _ in parts:
        print(f"\n## {title}\n\n{table}")
    print(f"\n{verdict}\n")
    content = {"benchmark": "probabilistic", "items": items, "events": events, "runs": runs, "machine": machine()}
    print(json.dumps({**content, "bars": [bar.as_json() for bar in bars]}))
    if asked.json:
        asked.json.write_text(json.dumps({**content, "bars": [bar.as_json() for bar in bars]}, indent=2) + "\n")
    if asked.page:
        write_page(parts, verdict, bins)


# ── Quality ────────────────────────────────────────────────────────────────────────────────────────


def quality(shops: dict[float, LossyShop]) -> Part:
    rows, bars = [], []
    for loss, shop in shops.items():
        exact_tags = ouzel.match(shop.events, f"{PATTERN} {RETURN}")["tag"].to_numpy()
        exact = shop.recall_and_precision(exact_tags)
        rows.append([f"{loss:.0%}", "exact engine", *(f"{share:.3f}" for share in exact)])
        for threshold in (
            f"{loss / 20:g}",
            f"{loss / 4:g}",
            f"{loss / 2:g}",
            *(f"{p} ON probability" for p in (0.1, 0.3)),
        ):
            found = ouzel.match(shop.events, f"{PATTERN} THRESHOLD {threshold} {RETURN}", model=model_of(loss))
            ours = shop.recall_and_precision(found["tag"].to_numpy())
            rows.append([f"{loss:.0%}", f"THRESHOLD {threshold}", *(f"{share:.3f}" for share in ours)])
            assert set(exact_tags.tolist()) <= set(found["tag"].to_pylist()) or "ON" in threshold
            if loss == 0.05 and threshold == "0.0125":
                way = (ours[0] - exact[0]) / (1 - exact[0])
                name = f"recall at 5 % loss, share of the way from the exact engine's to 1, precision {ours[1]:.2f}"
                bars.append(Bar(name, way, 0.5, at_least=True))
    return "Recall and precision", markdown(["loss", "query", "recall", "precision"], rows), bars


Bin = tuple[int, float, float]  # how many, their mean probability, the share that is true


def calibration(shop: LossyShop, loss: float, pattern: str) -> list[Bin]:
    found = ouzel.match(shop.events, f"{pattern} THRESHOLD 0 {RETURN}", model=model_of(loss))
    return binned(found["probability"].to_numpy(), shop.is_true(found, 4 if pattern == PATTERN else 3))


def binned(probability: np.ndarray, true: np.ndarray) -> list[Bin]:
    place = np.minimum((probability / BIN_WIDTH).astype(int), round(1 / BIN_WIDTH) - 1)
    groups = (place == number for number in range(round(1 / BIN_WIDTH)))
    return [(int(g.sum()), float(probability[g].mean()), float(true[g].mean())) for g in groups if g.any()]


def calibration_table(bins: dict[float, list[Bin]], beside: list[Bin]) -> Part:
    rows = [
        [title, f"{count:,}", f"{mean:.3f}", f"{share:.3f}"]
        for title, found in (
            *((f"{loss:.0%}", found) for loss, found in bins.items()),
            ("5%, no gate in the query", beside),
        )
        for count, mean, share in found
        if count >= BIN_MIN
    ]
    worst = max(abs(mean - share) for found in bins.values() for count, mean, share in found if count >= BIN_MIN)
    bar = Bar("calibration, largest distance in a bin of 1,000", worst, 0.05, at_least=False)
    return "Calibration", markdown(["loss", "matches", "mean probability", "share that is true"], rows), [bar]


FOREIGN_BIN_MIN = 300


def worst_of(bins: list[Bin]) -> float:
    """The largest distance of a bin that is not too small for it."""
    return max(abs(mean - share) for count, mean, share in bins if count >= FOREIGN_BIN_MIN)


def foreign(parcels: int) -> Part:
    """Streams that do not follow the model: learnt from one, judged on another. A model has also four times the losses,
    or a quarter of them, with priors by which as many events are observed."""
    rows, worst, missed = [], 0.0, 0
    for name, (gaps, losses, skips) in lossy_parcels.STREAMS.items():
        first, second = (lossy_parcels.stream(gaps, losses, skips, seed, parcels) for seed in (1, 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ModelWarning)
            learnt = LossModel.fit(first.events, lossy_parcels.PATTERN)
        models = {"learnt": learnt}
        for factor in (0.25, 4.0):
            rates = {part: min(learnt.loss_of(part, None) * factor, 0.9) for part in "abc"}
            kept = {part: learnt.priors[part] * (1 - learnt.loss_of(part, None)) for part in "abc"}
            priors = {part: min(kept[part] / (1 - rates[part]), 1.0) for part in "abc"}
            models[f"losses times {factor:g}"] = replace(
                learnt, component_loss={**learnt.component_loss, **rates}, priors={**learnt.priors, **priors}
            )
        for which, model in models.items():
            distance = worst_of(binned(*second.judged(model)))
            is_trusted = model.report(first.events, lossy_parcels.PATTERN).is_trusted
            rows.append([name, which, f"{distance:.3f}", "yes" if is_trusted else "no"])
            missed += distance > 0.05 and is_trusted
            if which == "learnt":
                worst = max(worst, distance)
    bars = [
        Bar("calibration after learning, streams that do not follow the model", worst, 0.05, at_least=False),
        Bar("models with a worse bin that their report trusts", missed, 0, at_least=False),
    ]
    headings = ["stream", "model", f"worst bin of {FOREIGN_BIN_MIN}", "its report trusts it"]
    return "Streams that do not follow the model", markdown(headings, rows), bars


# ── Cost ───────────────────────────────────────────────────────────────────────────────────────────


def typed_events(count: int, types: int, keys: int, seed: int = 2) -> pa.Table:
    rng = np.random.default_rng(seed)
    names = np.array([f"E{number}" for number in range(types)])
    return pa.table(
        {
            "ts": np.arange(count),
            "type": pa.array(names[rng.integers(0, types, count)]),
            "id": rng.integers(0, keys, count),
        }
    )


def sequence(length: int, window: int) -> str:
    components = ", ".join(f"E{number} e{number}" for number in range(length))
    return f"PATTERN SEQ({components}) WHERE [id] WITHIN {window}"


def gaps(length: int, mean: float) -> dict[str, Any]:
    return {f"e{number}": Exponential(mean) for number in range(1, length)}


def lossless(events: int, runs: int) -> Part:
    table = typed_events(events, 20, 1_000)
    text = sequence(3, 10_000)
    model = ouzel.LossModel()
    exact = ouzel.match(table, text)
    ours = ouzel.match(table, f"{text} THRESHOLD 0.01", model=model)
    assert exact.num_rows == ours.num_rows > 0
    names = exact.column_names
    order = [(name, "ascending") for name in ("end", "start", "middle")]

    def sorted_rows(found: pa.Table) -> pa.Table:
        kept = found.select(names).append_column("middle", pa.array([row["ts"] for row in found["e1"].to_pylist()]))
        return kept.sort_by(order)

    assert sorted_rows(exact).equals(sorted_rows(ours)), "without loss the answers must be those of the exact engine"
    seconds = alternate(
        {
            "exact": lambda: ouzel.match(table, text),
            "ours": lambda: ouzel.match(table, f"{text} THRESHOLD 0.01", model=model),
        },
        runs,
    )
    ratio = seconds["ours"] / seconds["exact"]
    rows = [[name, f"{taken:.3f}", f"{exact.num_rows:,}"] for name, taken in seconds.items()]
    bar = Bar("loss rate 0 against the exact engine", ratio, 3, at_least=False)
    return "Nothing is lost", markdown(["engine", "CPU seconds", "matches"], rows), [bar]


def stories(count: int, length: int, loss: float, seed: int = 4) -> pa.Table:
    """Every key is a story of all components in their order, some of whose events are lost; stories interleave."""
    rng = np.random.default_rng(seed)
    keys = count // length
    began = rng.integers(0, 4 * count, keys)
    ts = began[:, None] + np.cumsum(rng.integers(1, 200, (keys, length)), axis=1)
    seen = rng.random((keys, length)) >= loss
    order = np.argsort(ts[seen], kind="stable")
    types = np.broadcast_to(np.array([f"E{number}" for number in range(length)]), ts.shape)
    ids = np.broadcast_to(np.arange(keys)[:, None], ts.shape)
    return pa.table({"ts": ts[seen][order], "type": pa.array(types[seen][order]), "id": ids[seen][order]})


def by_length(events: int, runs: int) -> Part:
    """Whole stories, so that an event of a longer pattern leads to about as many matches as one of a shorter."""
    lengths = (2, 4, 6, 8)
    tables = {length: stories(events, length, 0.05) for length in lengths}

    def found(length: int) -> pa.Table:
        text = f"{sequence(length, 4_000)} THRESHOLD 0.01"
        return ouzel.match(tables[length], text, model=ouzel.LossModel(0.05, gaps=gaps(length, 100)))

    seconds = alternate({str(length): lambda length=length: found(length) for length in lengths}, runs)
    costs = {length: seconds[str(length)] / tables[length].num_rows for length in lengths}
    worst = max(costs[length] / (costs[2] * length / 2) for length in lengths)
    rows = [[str(n), f"{costs[n] * 1e9:.0f}", f"{found(n).num_rows / tables[n].num_rows:.2f}"] for n in lengths]
    bar = Bar("cost of an event by pattern length, against linear", worst, 1.3, at_least=False)
    return "Pattern length", markdown(["components", "ns an event", "matches an event"], rows), [bar]


def by_window(events: int, runs: int) -> Part:
    """A hundred times the window with a hundred times the keys: as many relevant events of a key in it."""
    cases = {1_000: 5, 100_000: 500}
    tables = {window: typed_events(events, 40, keys) for window, keys in cases.items()}

    def found(window: int) -> pa.Table:
        text = f"{sequence(3, window)} THRESHOLD 0.01"
        return ouzel.match(tables[window], text, model=ouzel.LossModel(0.05, gaps=gaps(3, window / 5)))

    seconds = alternate({str(window): lambda window=window: found(window) for window in cases}, runs)
    rows = [[f"{n:,}", f"{seconds[str(n)] / events * 1e9:.0f}", f"{found(n).num_rows / events:.2f}"] for n in cases]
    bar = Bar("window of 100,000 against one of 1,000", seconds["100000"] / seconds["1000"], 1.2, at_least=False)
    return "Window", markdown(["window", "ns an event", "matches an event"], rows), [bar]


def by_window_of_same_keys(events: int, runs: int) -> Part:
    """The same stream and keys in a hundred times the window, which then holds nothing more of a key: every key is a
    story of four components."""
    table = stories(events, 4, 0.05)
    windows = (4_000, 400_000)

    def found(window: int) -> pa.Table:
        text = f"{sequence(4, window)} THRESHOLD 0.01"
        return ouzel.match(table, text, model=ouzel.LossModel(0.05, gaps=gaps(4, 100)))

    seconds = alternate({str(window): lambda window=window: found(window) for window in windows}, runs)
    count = table.num_rows
    rows = [[f"{n:,}", f"{seconds[str(n)] / count * 1e9:.0f}", f"{found(n).num_rows / count:.2f}"] for n in windows]
    ratio = seconds["400000"] / seconds["4000"]
    bar = Bar("window of 400,000 against one of 4,000, same keys", ratio, 1.2, at_least=False)
    return "Window, same keys", markdown(["window", "ns an event", "matches an event"], rows), [bar]


def by_family(events: int, runs: int) -> Part:
    """Four components whose gaps have about the same mean in each family, with priors, so that there are probabilities.
    The first match with a model also makes its tables."""
    rng = np.random.default_rng(5)

    def histogram(bins: int) -> Gap:
        counts, edges = np.histogram(rng.gamma(3, 33, 100_000), bins)
        return Histogram(tuple(edges.tolist()), tuple(counts.tolist()))

    families: dict[str, Gap] = {
        "exponential": Exponential(100),
        "gamma": Gamma(3, 33),
        "lognormal": LogNormal(90, 0.5),
        "uniform": Uniform(5, 195),
        "histogram, 8 bins": histogram(8),
        "histogram, 30 bins": histogram(30),
        "histogram, 100 bins": histogram(100),
    }
    table = stories(events, 4, 0.05)
    text = f"{sequence(4, 4_000)} THRESHOLD 0.001"

    def found(family: str) -> pa.Table:
        own = dict.fromkeys(("e1", "e2", "e3"), families[family])
        priors = dict.fromkeys(("e0", "e1", "e2"), 0.9)
        return ouzel.match(table, text, model=ouzel.LossModel(0.05, gaps=own, priors=priors))

    first = {}
    for family in families:
        began = time.process_time()
        found(family)
        first[family] = time.process_time() - began
    seconds = alternate({family: lambda family=family: found(family) for family in families}, runs)
    rows = [[name, f"{taken:.2f}", f"{max(first[name] - taken, 0.0):.2f}"] for name, taken in seconds.items()]
    others = max(taken for name, taken in seconds.items() if "histogram" not in name)
    ratio = max(taken for name, taken in seconds.items() if "histogram" in name) / others
    bar = Bar("gaps as histograms, against the dearest other family", ratio, 2, at_least=False)
    headings = ["family", "CPU seconds of the stream", "of the tables, once"]
    return "Families of gaps", markdown(headings, rows), [bar]


def bounds(events: int, runs: int) -> Part:
    """Six components of which two hardly ever happen: almost every path misses two, and no such path can reach a
    threshold above the square of the loss rate. Bounds see that at once."""
    rng = np.random.default_rng(3)
    shares = np.array([0.25, 0.0002, 0.25, 0.0002, 0.25, 0.2496])
    table = typed_events(events, 6, 100)
    names = np.array([f"E{number}" for number in range(6)])
    table = table.set_column(1, "type", pa.array(names[rng.choice(6, events, p=shares)]))
    text = f"{sequence(6, 6_000)} THRESHOLD 0.01"
    model = ouzel.LossModel(0.05, gaps=gaps(6, 500))
    pruned = ouzel.match(table, text, model=model)
    whole = match_without(["upper_bounds"], table, text, model=model)
    assert pruned.num_rows == whole.num_rows > 0
    assert np.allclose(np.sort(pruned["score"].to_numpy()), np.sort(whole["score"].to_numpy()), rtol=1e-9)
    seconds = alternate(
        {
            "on": lambda: ouzel.match(table, text, model=model),
            "off": lambda: match_without(["upper_bounds"], table, text, model=model),
        },
        runs,
    )
    rows = [[name, f"{taken:.3f}", f"{pruned.num_rows:,}"] for name, taken in seconds.items()]
    bar = Bar("upper bounds off against on", seconds["off"] / seconds["on"], 5, at_least=True)
    return "Upper bounds", markdown(["bounds", "CPU seconds", "matches"], rows), [bar]


# ── Page ───────────────────────────────────────────────────────────────────────────────────────────


def write_page(parts: list[Part], verdict: str, bins: dict[float, list[Bin]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1)
    for loss, found in bins.items():
        kept = [(mean, share) for count, mean, share in found if count >= BIN_MIN]
        axes.plot(*zip(*kept, strict=True), marker="o", linewidth=1, label=f"loss {loss:.0%}")
    axes.set_xlabel("probability, mean of the bin")
    axes.set_ylabel("share of matches that are true")
    axes.legend()
    RESULTS.mkdir(exist_ok=True)
    figure.savefig(RESULTS / "figures" / "calibration.svg")
    sections = "\n\n".join(f"## {title}\n\n{table}" for title, table, _ in parts)
    page = (
        "# Incomplete streams, measured\n\n"
        "Written by `python -m benchmarks.probabilistic --page`. The shop, its readers and their losses are\n"
        "seeded, so the true matches are known. Ratios are of CPU time within one run.\n\n"
        f"{verdict}\n\n{sections}\n\n![calibration](figures/calibration.svg)\n\n"
        "If the query has no gate, the model is wrong: the gap before the exit lacks the way to the gate, and the\n"
        "counter is due after the aisle.\n"
    )
    (RESULTS / "probabilistic.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
