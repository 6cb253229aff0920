"""`ouzel why` and `ouzel plot` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ouzel.cli.app import application

THEFT = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100"
EVENTS = [("Shelf", "soap"), ("Shelf", "gin"), ("Register", "soap"), ("Exit", "soap"), ("Exit", "gin")]


@pytest.fixture
def readings(tmp_path: Path) -> Path:
    path = tmp_path / "readings.jsonl"
    rows = [{"ts": ts, "type": kind, "tag": tag} for ts, (kind, tag) in enumerate(EVENTS, start=1)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(part) for part in arguments])


def test_why_tells_what_stopped_a_match(readings: Path) -> None:
    by_value = run("why", THEFT, "--input", readings, "--start", "tag=soap")
    assert by_value.exit_code == 0, by_value.output
    assert "Register at 3 (tag='soap') is between 1 and 4" in by_value.stdout
    assert by_value.stdout.endswith("no match: a negative component forbids it\n")
    assert run("why", THEFT, "--input", readings, "--start", "0").stdout == by_value.stdout
    assert run("why", THEFT, "--input", readings, "--start", "1").stdout.endswith("a match\n")
    assert "which got furthest of 2" in run("why", THEFT, "--input", readings).stdout


def test_why_says_what_is_wrong_with_a_start(readings: Path) -> None:
    for start, said in (("99", "there is no row 99"), ("tag=tea", "no event with tag=tea"), ("x=1", "no column 'x'")):
        result = run("why", THEFT, "--input", readings, "--start", start)
        assert result.exit_code == 1 and said in result.stderr


def test_plot_draws_a_file(readings: Path, tmp_path: Path) -> None:
    result = run("plot", THEFT, "--input", readings, "--output", tmp_path / "thefts.svg", "--label", "tag")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "thefts.svg").read_text(encoding="utf-8").startswith("<svg")
    refused = run("plot", THEFT, "--input", readings, "--output", tmp_path / "nowhere" / "x.svg")
    assert refused.exit_code == 1 and "cannot be written" in refused.stderr
    other = run("plot", THEFT, "--input", readings, "--output", tmp_path / "x.png")
    assert other.exit_code == 1 and "the picture must be SVG" in other.stderr and "x.svg'" in other.stderr
    empty = run("plot", THEFT.replace("Exit", "Exti"), "--input", readings, "--output", tmp_path / "none.svg")
    assert empty.stderr == (
        "query 'query' found nothing: no event has the type 'Exti' in its column 'type'; did you mean 'Exit'?\n"
    )
