"""The parts of the demo that need no Spark: its queries find what happened, and its screen is readable."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

import ouzel
from ouzel import demo


def test_queries_find_each_case_once() -> None:
    day = ouzel.datasets.shop_day(20_000, seed=7)
    for text, truth in ((demo.THEFT, day.thefts), (demo.MISPLACED, day.misplaced)):
        found = ouzel.match(day.events, ouzel.query(text, day.types))
        assert sorted(found["tag"].to_pylist()) == sorted(truth["tag_id"].to_pylist())


def test_screen_is_readable_at_80_columns() -> None:
    day = ouzel.datasets.shop_day(20_000, seed=7)
    screen = StringIO()
    console = Console(file=screen, width=80, highlight=False)
    for text in (demo.THEFT, demo.MISPLACED):
        demo.show_query(console, text)
        console.print(demo.first_rows(ouzel.match(day.events, ouzel.query(text, day.types))))
    shown = screen.getvalue()
    assert "…" not in shown
    assert all(line in shown.replace(" \n", "\n") for line in demo.THEFT.splitlines() + demo.MISPLACED.splitlines())


def test_output_of_others_goes_to_the_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with demo.logged(tmp_path / "log") as console:
        console.print("ours")
        subprocess.run(
            [sys.executable, "-c", "import sys; print('theirs'); print('more', file=sys.stderr)"], check=True
        )
        os.write(2, b"a warning\n")
    os.write(1, b"afterwards\n")
    assert capfd.readouterr().out.split() == ["ours", "afterwards"]
    assert (tmp_path / "log").read_text().split() == ["theirs", "more", "a", "warning"]


def test_next_steps_are_commands_that_exist(tmp_path: Path) -> None:
    (tmp_path / "theft.query").write_text(demo.THEFT, encoding="utf-8")
    steps = [command.split() for command, _ in demo.next_steps(tmp_path)]
    assert {words[1] for words in steps[:-1]} == {"run", "explain", "why"}
    assert all(str(tmp_path / "theft.query") in words for words in steps[:-1])


def test_next_steps_fit_80_columns() -> None:
    for command, purpose in demo.next_steps(Path("build/demo")):
        shown = demo.folded(command, 78)
        assert all(len(line) <= 78 for line in [*shown.splitlines(), f"# {purpose}"])
        assert shown.replace(" \\\n      ", " ") == command
