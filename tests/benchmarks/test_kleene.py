"""Every part of the benchmark runs on a small stream and finds its answers right; its figures mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import kleene, kleene_figures

pytestmark = pytest.mark.compiled


PARTS = [*(pytest.param(part, marks=pytest.mark.long) for part in ("matching", "merging")), "compressed", "memory"]
FIRST, *OTHERS = kleene_figures.FIGURES
FIGURES = [FIRST, *(pytest.param(figure, marks=pytest.mark.long) for figure in OTHERS)]


@pytest.mark.parametrize("part", [*PARTS, "enumeration"])
def test_bars_are_measured(part: str, tmp_path: Path) -> None:
    written = tmp_path / "bars.json"
    kleene.main(["--events", "6000", "--runs", "1", "--only", part, "--json", str(written)])
    content = json.loads(written.read_text(encoding="utf-8"))
    assert content["bars"] and all(bar["measured"] > 0 for bar in content["bars"])
    if part == "memory":
        # Counted, not timed: this holds on any machine.
        assert all(bar["passed"] for bar in content["bars"])


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title.split(":")[0])
def test_figures_are_measured_and_drawn(figure: kleene_figures.Figure, tmp_path: Path) -> None:
    table = figure.measure(2_000, 1)
    assert table[1]
    drawn = kleene_figures.plot(figure.title, table, tmp_path)
    assert drawn is not None and drawn.stat().st_size > 0
