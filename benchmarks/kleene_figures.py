"""Figures 8(a) to 8(f) and Table 2 of SASE+ as tables and plots; 8(g) and Table 3 are among the bars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.kleene_twins import all_runs, backtrack, template_of, ticks_of
from benchmarks.kleene_worlds import NAMES, answer, matching, stock_events, template
from benchmarks.measure import alternate

Table = tuple[list[str], list[list[str]]]
ALL_NAMES = ("p1s2", *NAMES)
# Backtracking reads a window again for each run, so the Python twins get short streams.
TWIN_EVENTS = 20_000


@dataclass(frozen=True, slots=True)
class Figure:
    title: str
    note: str
    measure: Callable[[int, int], Table]


def by_query(events: int, runs: int) -> Table:
    """Figures 8(a) and 8(f), and Table 2: throughput with construction, and where the time goes, at W = 500."""
    rows = []
    table = stock_events(events)
    for name in ALL_NAMES:
        text = template(name, 500)
        on, off = (matching(text, table, merge=merge) for merge in (True, False))
        matches, length = off.written_out()
        assert on.written_out() == (matches, length)
        seconds = alternate({"on": on.written_out, "off": off.written_out, "matching": off.run}, runs)
        tally = all_runs(ticks_of(table.slice(0, min(events, TWIN_EVENTS))), template_of(name, 500))
        matching_share = min(1.0, seconds["matching"] / seconds["off"])
        rows.append(
            [
                name,
                f"{matches:,}",
                _rate(events, seconds["off"]),
                _rate(events, seconds["on"]),
                f"{seconds['off'] / seconds['on']:.2f}",
                f"{length / max(matches, 1):.1f}",
                f"{2 * tally.run_steps / min(events, TWIN_EVENTS):.2f}",
                f"{100 * matching_share:.0f}",
                f"{100 * (1 - matching_share):.0f}",
            ]
        )
    headings = ["query", "matches", "basic, M events/s", "merging, M events/s", "gain", "match length"]
    return [*headings, "runs/time step", "matching cost, %", "construction cost, %"], rows


def by_window(events: int, runs: int) -> Table:
    """Figures 8(b) and 8(c): the cost per event and per event of a match, everything written out."""
    rows = []
    table = stock_events(events)
    for name in NAMES:
        for window in (500, 1_000, 1_500, 2_000):
            one = matching(template(name, window), table)
            matches, length = one.written_out()
            seconds = alternate({"all": one.written_out}, runs)["all"]
            rows.append(
                [
                    name,
                    f"{window:,}",
                    f"{matches:,}",
                    f"{length / events:.1f}",
                    _rate(events, seconds),
                    f"{seconds / max(length, 1) * 1e9:.2f}",
                ]
            )
    return ["query", "W", "matches", "output complexity / event", "M events/s", "ns / event of a match"], rows


def against_backtrack(events: int, runs: int) -> Table:
    """Figure 8(d): all results, both algorithms in plain Python."""
    rows = []
    table = stock_events(min(events, TWIN_EVENTS))
    ticks = ticks_of(table)
    for name in NAMES:
        query = template_of(name, 500)
        basic, singly = all_runs(ticks, query), backtrack(ticks, query)
        assert basic.matches == singly.matches == answer(template(name, 500), table).num_rows
        contestants: dict[str, Callable[[], Any]] = {
            "basic": lambda q=query: all_runs(ticks, q),
            "backtrack": lambda q=query: backtrack(ticks, q),
        }
        seconds = alternate(contestants, min(runs, 3))
        rows.append(
            [
                name,
                f"{basic.matches:,}",
                _thousands(len(ticks), seconds["basic"]),
                _thousands(len(ticks), seconds["backtrack"]),
                f"{seconds['backtrack'] / seconds['basic']:.2f}",
                f"{singly.reread / len(ticks):.2f}",
            ]
        )
    headings = ["query", "matches", "basic, K events/s", "backtrack, K events/s", "basic over backtrack"]
    return [*headings, "read again / event"], rows


def without_overlaps(events: int, runs: int) -> Table:
    """Figure 8(e): non-overlapping results, with a selective third component too."""
    rows = []
    table = stock_events(min(events, TWIN_EVENTS))
    ticks = ticks_of(table)
    for name in ("p3s2", "p3s3", "p3*s2", "p3*s3"):
        query = template_of(name, 500)
        text = template(name, 500, output="NON_OVERLAPPING")
        basic = all_runs(ticks, query, non_overlapping=True)
        singly = backtrack(ticks, query, non_overlapping=True)
        engine = answer(text, table).num_rows
        assert basic.matches == engine
        # With a third component a later start may end first, which a search from the oldest start cannot know.
        assert singly.matches == engine or "*" in name
        contestants: dict[str, Callable[[], Any]] = {
            "engine": lambda t=text: answer(t, table),
            "basic": lambda q=query: all_runs(ticks, q, non_overlapping=True),
            "backtrack": lambda q=query: backtrack(ticks, q, non_overlapping=True),
        }
        seconds = alternate(contestants, min(runs, 3))
        rows.append(
            [name, f"{engine:,}", f"{singly.matches:,}"]
            + [_thousands(len(ticks), seconds[who]) for who in contestants]
            + [f"{seconds['backtrack'] / seconds['basic']:.2f}"]
        )
    headings = ["query", "matches", "of backtrack", "engine, K events/s", "basic, K events/s", "backtrack, K events/s"]
    return [*headings, "basic over backtrack"], rows


FIGURES = (
    Figure(
        "Figures 8(a) and 8(f), Table 2: by query",
        "W = 500, p = 0.7, the kernel, with matches written as arrays. Runs per time step are those of both "
        "symbols. Lengths and runs are equal to the paper's. Matching has a smaller share than the paper's 60 "
        "to 100 %, because a step of a run costs less here than writing the 250 events of a match.",
        by_query,
    ),
    Figure(
        "Figures 8(b) and 8(c): by window",
        "p = 0.7, the kernel with merging, with matches written as arrays. Output complexity is the total "
        "length of all matches. Where it dominates, the cost per event of a match is the same for every window,"
        " so the cost is linear in it.",
        by_window,
    ),
    Figure(
        "Figure 8(d): basic and backtrack, all results",
        "W = 500, p = 0.7, 20,000 events, both in plain Python. Events are read again about as often as in the "
        "paper (0.6 for s3), but here a step costs the same in both, so the paper's factor of 200 to 300 does "
        "not appear.",
        against_backtrack,
    ),
    Figure(
        "Figure 8(e): basic and backtrack, non-overlapping results",
        "W = 500, p = 0.7, 20,000 events: twins in plain Python, and the engine end to end.",
        without_overlaps,
    ),
)


def plot(title: str, table: Table, folder: Path) -> Path | None:
    """A figure's rates, as SVG; None for what is no figure of the paper."""
    if not title.startswith("Figure"):
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    headings, rows = table
    drawn, axes = pyplot.subplots(figsize=(6, 3.6))
    if headings[1] == "W":
        for name in dict.fromkeys(row[0] for row in rows):
            own = [row for row in rows if row[0] == name]
            across = [float(row[1].replace(",", "")) for row in own]
            axes.plot(across, [float(row[4]) for row in own], marker="o", label=name)
        axes.set_xlabel("W, events of a symbol")
        axes.set_ylabel(headings[4])
    else:
        columns = [c for c, heading in enumerate(headings) if "events/s" in heading]
        width = 0.8 / len(columns)
        for number, column in enumerate(columns):
            places = [place + number * width for place in range(len(rows))]
            axes.bar(places, [float(row[column]) for row in rows], width, label=headings[column])
        axes.set_xticks([place + 0.4 - width / 2 for place in range(len(rows))], [row[0] for row in rows])
    axes.set_yscale("log")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    drawn.tight_layout()
    path = folder / ("kleene-" + title.split(":")[0].split(" and")[0].lower().replace(" ", "-") + ".svg")
    path = path.with_name(path.name.replace("(", "").replace(")", "").replace(",", ""))
    # No date and no random ids: the file changes only where the figures do.
    matplotlib.rcParams["svg.hashsalt"] = "ouzel"
    drawn.savefig(path, metadata={"Date": None})
    pyplot.close(drawn)
    return path


def _rate(events: int, seconds: float) -> str:
    return f"{events / seconds / 1e6:.2f}"


def _thousands(events: int, seconds: float) -> str:
    return f"{events / seconds / 1e3:.0f}"
