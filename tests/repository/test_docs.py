"""The documentation beside its examples: commands do what they show, pictures are current, no name is missing."""

from __future__ import annotations

import doctest
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ouzel
from benchmarks import pages
from docs.make_pictures import FIGURES, pictures
from docs.reference import DIRECTIVE, with_reference
from ouzel.cli.app import application
from tests.repository.sources import ROOT
from tests.repository.test_pages import PAGES, blocks, page_name

CONSOLE = [page for page in PAGES if any(block.words[:1] == ("console",) for block in blocks(page))]


def commands(page: Path) -> list[tuple[str, str]]:
    """(command, what it shows) of the blocks marked ```console, in order."""
    found: list[tuple[str, str]] = []
    for block in blocks(page):
        if block.words[:1] != ("console",):
            continue
        for line in block.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], ""))
            else:
                found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


@pytest.mark.parametrize("page", CONSOLE, ids=page_name)
def test_commands_show_what_a_page_shows(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    same = doctest.OutputChecker().check_output
    for command, shown in commands(page):
        program, *words = shlex.split(command)
        assert program == "ouzel"
        target = words[-1] if ">" in words else None
        result = CliRunner().invoke(application, words[: words.index(">")] if target else words)
        assert result.exit_code == 0, f"{command}\n{result.output}"
        if target:
            Path(target).write_text(result.stdout, encoding="utf-8")
        else:
            assert same(shown, result.output, doctest.ELLIPSIS), f"{command}\n{result.output}"


def test_pictures_are_current() -> None:
    """`make docs` draws them."""
    stale = [name for name, picture in pictures().items() if (FIGURES / name).read_text("utf-8") != picture + "\n"]
    assert stale == []


def test_the_reference_has_every_public_name() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    paths = {path.rpartition(".")[2] for path in DIRECTIVE.findall(text)}
    rooms = {"algebra", "datasets", "loss", "spark"}
    errors = {name for name in ouzel.__all__ if name.endswith(("Error", "Warning"))}
    assert set(ouzel.__all__) - rooms - errors - paths == set()
    assert {f"ouzel.{room}" in text for room in rooms} == {True}


def test_the_reference_is_made_of_docstrings() -> None:
    made = with_reference("::: ouzel.runtime.engine.match\n::: ouzel.errors\n")
    assert "### match" in made and ">>> match(events, theft).to_pylist()" in made and "### LimitError" in made
    assert "::: " not in made


def test_benchmarks_are_skipped_visibly_and_gathered(capsys: pytest.CaptureFixture[str]) -> None:
    assert pages.run(pages.Benchmark("sase", "…", ("no_such_peer",)), quick=True)
    assert "sase: SKIPPED, without no_such_peer" in capsys.readouterr().out
    made = pages.assembled()
    assert "`benchmarks/results/sase.md`" in made and "| Flink CEP " in made and "3,000,000 events" in made
    assert f"Python {sys.version_info.major}." in made
