"""The command line, as a user meets it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import ouzel
from ouzel import lang
from ouzel.cli.app import application

Run = Callable[..., Result]
Write = Callable[[str, str], Path]

THEFT = """PATTERN SEQ(Shelf a, !(Register b), Exit c)
WHERE [tag_id] AND a.price > 3
WITHIN 12 hours
"""
SCRIPT = """-- Taken out of the shop and never paid.
theft: pattern SEQ(Shelf a, !(Register b), Exit c) where [tag_id] within 12 hours;  -- a long day

/* Laid down
   on another shelf. */
moved: PATTERN SEQ(Shelf x, Shelf y) WHERE [tag_id] AND x.shelf_id != y.shelf_id WITHIN 1 hour;
-- The end.
"""
WRONG = "PATTERN SEQ(Shelf a, Exit c\nWITHIN 12 hours\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*arguments: object, text: str | None = None) -> Result:
        return CliRunner().invoke(application, [str(argument) for argument in arguments], input=text)

    return call


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def call(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8", newline="")
        return path

    return call


def test_version(run: Run) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"ouzel {ouzel.__version__}\n")


def test_check_says_ok_and_what_was_read(run: Run, write: Write) -> None:
    path = write("theft.query", THEFT)
    result = run("check", path)
    assert result.exit_code == 0, result.output
    assert result.stdout == f"ok  {path}\n    query  PATTERN SEQ(Shelf a, !(Register b), Exit c) WITHIN 12 h\n"


def test_expressions_of_the_algebra(run: Run, write: Write) -> None:
    path = write("rise.query", "-- rises\nstream Stock a next Stock b on b.price>a.price project b.price\n")
    result = run("check", path)
    assert result.exit_code == 0, result.output
    assert "    query  STREAM Stock a NEXT Stock b ON b.price > a.price PROJECT b.price\n" in result.stdout
    result = run("format", path)
    assert result.stdout == ("-- rises\nSTREAM  Stock a\nNEXT    Stock b ON b.price > a.price\nPROJECT b.price\n")
    assert "(A) → ((B))  forward Stock" in run("explain", path).stdout
    events = write("ticks.csv", "type,ts,price\nStock,1,3\nStock,2,5\n")
    result = run("run", path, "--input", events, "--format", "csv", "--quiet")
    assert result.stdout.splitlines() == ['"start","end","b.price"', "1,2,5"], result.output
    result = run("check", "-", text="STREAM Stock (price int) a WHERE a.prise > 3")
    assert result.exit_code == 1 and "did you mean 'a.price'?" in result.stderr


def test_check_names_the_queries_of_a_script(run: Run, write: Write) -> None:
    result = run("check", write("shop.script", SCRIPT))
    assert result.exit_code == 0, result.output
    assert "    theft  PATTERN SEQ(Shelf a, !(Register b), Exit c) WITHIN 12 h\n" in result.stdout
    assert "    moved  PATTERN SEQ(Shelf x, Shelf y) WITHIN 1 h\n" in result.stdout


def test_check_shows_the_place_of_a_mistake(run: Run, write: Write) -> None:
    path = write("wrong.query", WRONG)
    result = run("check", path)
    with pytest.raises(ouzel.QueryError) as refused:
        ouzel.query(WRONG)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == f"error  {path}\n{refused.value}\n"
    assert "^" in result.stderr and "line 2, column 1" in result.stderr


def test_check_finds_what_only_binding_can_know(run: Run) -> None:
    result = run("check", "-", text="PATTERN SEQ(Shelf a, Exit c) WHERE d.tag = a.tag WITHIN 1 hour")
    assert result.exit_code == 1
    assert result.stderr.startswith("error  standard input\n") and "'d'" in result.stderr


def test_check_goes_on_after_a_mistake(run: Run, write: Write) -> None:
    good, bad = write("good.query", THEFT), write("bad.query", WRONG)
    result = run("check", bad, good)
    assert result.exit_code == 1
    assert f"error  {bad}" in result.stderr and f"ok  {good}" in result.stdout


def test_check_reads_standard_input(run: Run) -> None:
    result = run("check", "-", text=THEFT)
    assert result.exit_code == 0 and result.stdout.startswith("ok  standard input\n")


def test_check_takes_parameters(run: Run) -> None:
    text = "PATTERN SEQ(Shelf a, Exit c) WHERE a.price > :limit AND a.name = :name WITHIN 1 hour"
    assert run("check", "-", text=text).exit_code == 1
    assert run("check", "-", "--param", "limit=3", "--param", "name=John", text=text).exit_code == 0
    result = run("check", "-", "--param", "limit", text=text)
    assert result.exit_code == 2 and "NAME=VALUE" in result.stderr


def test_files_that_cannot_be_read_are_named(run: Run, tmp_path: Path) -> None:
    missing, binary = tmp_path / "missing.query", tmp_path / "binary.query"
    binary.write_bytes(b"PATTERN \xff")
    result = run("check", missing, binary)
    assert result.exit_code == 1
    assert f"error  {missing}\nthe query '{missing}' cannot be read: No such file or directory\n" in result.stderr
    assert f"error  {binary}\nthe query '{binary}' is not UTF-8 text: byte 8 cannot be read\n" in result.stderr


def test_format_prints_the_standard_form(run: Run, write: Write) -> None:
    result = run("format", write("theft.query", THEFT.replace("\n", " ")))
    assert result.exit_code == 0, result.output
    assert lang.parse(result.stdout) == lang.parse(THEFT)
    assert result.stdout == lang.format_query(lang.parse(THEFT)).strip() + "\n"


def test_format_is_stable_and_means_the_same(run: Run) -> None:
    once = run("format", "-", text=SCRIPT).stdout
    assert lang.parse_script(once) == lang.parse_script(SCRIPT)
    assert run("format", "-", text=once).stdout == once


def test_format_keeps_comments_between_queries(run: Run) -> None:
    once = run("format", "-", text=SCRIPT).stdout
    assert once.startswith("-- Taken out of the shop and never paid.\ntheft:")
    assert ";  -- a long day\n\n/* Laid down\n   on another shelf. */\nmoved:" in once
    assert once.endswith(";\n\n-- The end.\n")


def test_format_refuses_to_lose_a_comment(run: Run, write: Write) -> None:
    text = "PATTERN SEQ(A a,\n  -- then\n  B b)\nWITHIN 5\n"
    path = write("commented.query", text)
    result = run("format", "--write", path)
    assert result.exit_code == 1 and "the comment in line 2" in result.stderr
    assert path.read_text(encoding="utf-8") == text


def test_what_looks_like_a_comment_in_a_string_is_none(run: Run) -> None:
    text = "PATTERN A a WHERE a.x = 'it''s -- no /* comment' WITHIN 5"
    result = run("format", "-", text=text)
    assert result.exit_code == 0 and lang.parse(result.stdout) == lang.parse(text)


def test_format_writes_only_what_changes(run: Run, write: Write) -> None:
    path = write("shop.script", SCRIPT)
    result = run("format", "--write", path)
    assert result.exit_code == 0 and result.stdout == f"formatted  {path}\n"
    written = path.read_bytes()
    assert b"\r" not in written and lang.parse_script(written.decode()) == lang.parse_script(SCRIPT)
    result = run("format", "--write", path)
    assert result.exit_code == 0 and result.stdout == "" and path.read_bytes() == written


def test_format_check_shows_the_changes_and_writes_nothing(run: Run, write: Write) -> None:
    path = write("shop.script", SCRIPT)
    result = run("format", "--check", path)
    assert result.exit_code == 1
    assert "-theft: pattern SEQ" in result.stdout and f"+++ {path}, formatted" in result.stdout
    assert path.read_text(encoding="utf-8") == SCRIPT
    run("format", "--write", path)
    assert run("format", "--check", path).exit_code == 0


def test_format_refuses_options_that_contradict(run: Run, write: Write) -> None:
    path = write("theft.query", THEFT)
    assert run("format", "--check", "--write", path).exit_code == 2
    assert run("format", "--write", "-", text=THEFT).exit_code == 2


def test_colours_only_where_somebody_looks(run: Run, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("theft.query", THEFT)
    assert "\x1b" not in run("check", path).output
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in run("check", path).output
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in run("check", path).output


def test_square_brackets_are_not_taken_for_markup(run: Run) -> None:
    result = run("check", "-", text="PATTERN SEQ(A+ a[], B b) WHERE [bold] WITHIN 5")
    assert result.exit_code == 0 and "SEQ(A+ a[], B b)" in result.stdout


def test_the_package_runs_as_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "ouzel", "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()[-1], done.stderr) == (0, ouzel.__version__, "")


def test_without_its_extra_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; from ouzel.cli import main; main()"
    source = Path(ouzel.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "the ouzel command needs typer: pip install 'ouzel[cli]'\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["WHERE a.id = :x WITHIN 5"], "give it as --param x=…"),
        (["WITHIN 5 s"], "hint: give --time-unit, for example --time-unit s, or a number of ticks"),
        (
            ["WITHIN 5", "--no-type"],
            "and --no-type says that the input has no type column; name the column with --",
        ),
        (["WITHIN 5", "--type", "kind"], "Name it with --type"),
        (["WITHIN 5 THRESHOLD 0.1"], "give --model with a file that LossModel.to_json wrote"),
        # The excerpt is the query as it was written.
        (["WHERE a.x = 'with time=' AND a.id = :x WITHIN 5"], "WHERE a.x = 'with time=' AND"),
    ],
)
def test_errors_name_options_as_the_command_line_does(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"ts": 1, "type": "A", "id": 1, "x": "y"}\n', encoding="utf-8")
    query, *options = arguments
    result = CliRunner().invoke(
        application, ["run", f"PATTERN SEQ(A a, B b) {query}", "-i", str(tmp_path / "a.jsonl"), *options]
    )
    assert result.exit_code == 1 and said in result.stderr, result.output
