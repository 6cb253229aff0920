"""The figures of Cayuga's section 5 as SVG."""

from __future__ import annotations

from pathlib import Path

# Part: the column across, the columns upwards, and by which column lines are told apart.
_AXES = {
    "naive": ("queries", ("indexed, µs", "no merging, µs", "naive, µs"), "events"),
    "scale": ("queries", ("events/s",), "template"),
    "skewed": ("queries", ("events/s",), "template"),
    "zipf": ("zipf_1", ("events/s",), "template"),
    "selectivity": ("selectivity", ("events/s",), "template"),
    "double_top": ("smoothing, days", ("fold, M events/s", "resubscription, M events/s"), None),
}


def plot(name: str, title: str, headings: list[str], rows: list[list[str]], folder: Path) -> Path | None:
    """One figure; None for a part that is none."""
    if name not in _AXES:
        return None
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    across, upwards, kind = _AXES[name]
    drawn, axes = pyplot.subplots(figsize=(6, 3.6))
    kinds = dict.fromkeys(row[headings.index(kind)] if kind else "" for row in rows)
    for one in kinds:
        own = [row for row in rows if not kind or row[headings.index(kind)] == one]
        places = [_number(row[headings.index(across)]) for row in own]
        for column in upwards:
            heights = [_number(row[headings.index(column)]) for row in own]
            label = one if len(upwards) == 1 else f"{one} {column}".strip()
            axes.plot(places, heights, marker="o", label=label)
    axes.set_xlabel(across)
    axes.set_ylabel(upwards[0] if len(upwards) == 1 else upwards[0].partition(", ")[2] + " an event")
    if name == "double_top":
        axes.set_ylabel("M events/s")
        axes.set_ylim(bottom=0)
    else:
        axes.set_yscale("log")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    drawn.tight_layout()
    path = folder / f"many-queries-{name.replace('_', '-')}.svg"
    # No date and no random ids: the file changes only where the figures do.
    matplotlib.rcParams["svg.hashsalt"] = "ouzel"
    drawn.savefig(path, metadata={"Date": None})
    pyplot.close(drawn)
    return path


def _number(cell: str) -> float:
    return float(cell.replace(",", ""))
