"""Every part of the benchmark runs on a small stream and finds its answers right; its figures mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import sase, sase_figures

pytestmark = pytest.mark.compiled


FIRST, *OTHERS = sase_figures.FIGURES
FIGURES = [FIRST, *(pytest.param(figure, marks=pytest.mark.long) for figure in OTHERS)]


@pytest.mark.parametrize("part", ["kernel", pytest.param("peers", marks=pytest.mark.long), "growth", "snapshots"])
def test_bars_are_measured(part: str, tmp_path: Path) -> None:
    written = tmp_path / "bars.json"
    sase.main(["--events", "20000", "--runs", "1", "--only", part, "--json", str(written)])
    content = json.loads(written.read_text(encoding="utf-8"))
    assert content["bars"] and all(bar["measured"] > 0 for bar in content["bars"])


def test_a_fresh_process_answers(tmp_path: Path) -> None:
    written = tmp_path / "bars.json"
    sase.main(["--runs", "1", "--only", "start", "--json", str(written)])
    assert len(json.loads(written.read_text(encoding="utf-8"))["bars"]) == 2


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title.split(":")[0])
def test_figures_are_measured_and_drawn(figure: sase_figures.Figure, tmp_path: Path) -> None:
    table = figure.measure(6_000, 1)
    assert table[1]
    drawn = sase_figures.plot(figure.title, table, tmp_path)
    assert drawn is None or drawn.stat().st_size > 0
