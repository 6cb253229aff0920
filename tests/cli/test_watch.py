"""`ouzel watch`: matches are told as they complete, whatever feeds it; no test waits for a clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import ouzel
from ouzel.cli import watch
from ouzel.cli.app import application
from ouzel.cli.watch import Line, Printer, columns_of, follow, open_source

PAIR = "PATTERN SEQ(A a, B b) WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)"


def run(*arguments: object, text: str | bytes = "") -> Result:
    return CliRunner().invoke(application, [str(part) for part in arguments], input=text)


def rows(text: str) -> list[tuple[int, int]]:
    return [(row["a"], row["b"]) for row in map(json.loads, text.splitlines())]


class Script:
    """Time that moves when somebody sleeps, and what happens then."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self._steps = iter(steps)
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += 1.0
        next(self._steps, lambda: None)()


def test_standard_input_line_by_line() -> None:
    text = '{"type": "A", "ts": 1}\n{"type": "B", "ts": 3}\n\n{"type": "B", "ts": 4}'
    result = run("watch", PAIR, text=text)
    assert result.exit_code == 0, result.output
    assert rows(result.stdout) == [(1, 3), (1, 4)]
    assert "3 events, 2 matches" in result.stderr
    assert "3 events, 2 rows" in run("watch", "PATTERN SEQ(A a, B b) WITHIN 9 AGG COUNT", text=text).stderr


def test_csv_lines() -> None:
    result = run("watch", PAIR, "--input-format", "csv", text="type,ts\nA,1\nB,3\n")
    assert rows(result.stdout) == [(1, 3)]


def test_a_line_for_people() -> None:
    result = run("watch", PAIR, "--format", "line", text='{"type": "A", "ts": 1}\n{"type": "B", "ts": 3}\n')
    assert result.stdout == "1 – 3  query  a=1  b=3\n"


def test_a_growing_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"type": "A", "ts": 1}\n')

    def add(text: str) -> Callable[[], object]:
        def write() -> None:
            with path.open("a") as opened:
                opened.write(text)

        return write

    told: list[str] = []
    script = Script(
        add('{"type": "B", "ts"'),  # half a line is no event yet
        add(': 2}\n{"type": "C", "ts": 3}\n'),
        lambda: told.append(capsys.readouterr().out),
        add('{"type": "B", "ts": 5, "more": 1}\n'),
    )
    follow(
        open_source(str(path), None, None), ouzel.Engine(PAIR), Printer(Line.JSONL),
        idle_timeout=50, stop_after=9, clock=script.clock, sleep=script.sleep,
    )  # fmt: skip
    assert rows(told[0]) == [(1, 2)], "the first match is told before the second begins"
    assert rows(capsys.readouterr().out) == [(1, 5)]


def test_matches_at_the_newest_timestamp_are_printed_after_the_idle_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"type": "A", "ts": 1}\n{"type": "B", "ts": 2}\n')
    told: list[str] = []
    script = Script(*[lambda: told.append(capsys.readouterr().out)] * 3)
    follow(
        open_source(str(path), None, None), ouzel.Engine(PAIR), Printer(Line.JSONL),
        idle_timeout=1, stop_after=5, clock=script.clock, sleep=script.sleep,
    )  # fmt: skip
    assert [rows(text) for text in told] == [[], [(1, 2)], []]


def test_a_folder_that_gets_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def put(name: str, kind: str, tick: int) -> None:
        pq.write_table(pa.table({"type": [kind], "ts": [tick]}), tmp_path / name)

    put("1.parquet", "A", 1)
    put("_unfinished.parquet", "A", 1)
    script = Script(lambda: put("2.parquet", "B", 4))
    follow(
        open_source(str(tmp_path), None, None), ouzel.Engine(PAIR), Printer(Line.JSONL),
        idle_timeout=50, stop_after=5, clock=script.clock, sleep=script.sleep,
    )  # fmt: skip
    assert rows(capsys.readouterr().out) == [(1, 4)]


def test_columns_that_come_later_can_be_declared() -> None:
    query = "PATTERN SEQ(A a, B b) WHERE b.x > 1 WITHIN 10 RETURN Pair(a.ts AS a, b.ts AS b)"
    text = '{"type": "A", "ts": 1}\n{"type": "B", "ts": 3, "x": 2.5}\n'
    declared = run("watch", query, "--columns", "type:string,ts:int64,x:double", text=text)
    assert rows(declared.stdout) == [(1, 3)]
    assert columns_of(None) is None


def test_late_events_are_counted() -> None:
    def chunks() -> Iterator[pa.Table]:
        yield pa.table({"type": ["A"], "ts": [10]})
        yield pa.table({"type": ["A"], "ts": [1]})
        self_.ended = True

    class Feed:
        ended = False

        def take(self) -> Iterator[pa.Table]:
            return chunks()

    self_ = Feed()
    engine = ouzel.Engine(PAIR)
    follow(self_, engine, Printer(Line.JSONL), idle_timeout=1, stop_after=None, clock=lambda: 0.0, sleep=lambda _: None)
    assert engine.late == 1


@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        ([], "{}}", "line 1 is not JSON"),
        ([], "[1]", "each line must be one JSON object"),
        (["--input-format", "csv"], "ts,type\n1,A\n2\n", "line 3: 1 value where the header names 2 columns: 2;"),
        ([], "", "no events came"),
        (["--input", "nowhere.jsonl"], "", "to watch"),
        (["--columns", "x"], "", "NAME:TYPE"),
        (["--max-delay", "2 sx"], "", "--max-delay '2 sx' is not a duration: there is no unit of time 'sx'; write it"),
        ([], '{"type": "A", "ts": 1}\n{"type": "B", "ts": "x"}', "ts"),
    ],
)
def test_mistakes_are_one_message(arguments: list[str], text: str, said: str) -> None:
    result = run("watch", PAIR, *arguments, text=text)
    assert result.exit_code == 1, result.output
    assert said in result.stderr and "Traceback" not in result.output


def test_a_query_without_a_window_is_refused() -> None:
    result = run("watch", "PATTERN SEQ(A a, B b)", text="{}")
    assert result.exit_code == 1 and "WITHIN" in result.stderr


@pytest.mark.parametrize(
    ("given", "seconds"), [("1 s", 1.0), ("250 ms", 0.25), ("2", 2.0), ("0.5", 0.5), ("5 min", 300.0)]
)
def test_idle_times_have_units(given: str, seconds: float) -> None:
    assert watch._seconds(given, "idle_timeout") == seconds


def test_idle_times_without_a_known_unit_are_refused() -> None:
    with pytest.raises(ouzel.InputError, match="idle_timeout='5 hors' is not a duration"):
        watch._seconds("5 hors", "idle_timeout")
