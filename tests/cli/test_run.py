"""`ouzel run`: every kind of input and output, the same answer as `ouzel.match`, and nothing half-written."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import ouzel
from ouzel.cli import sources
from ouzel.cli.app import application
from ouzel.cli.results import Results, json_line
from ouzel.loss import Exponential

THEFT = (
    "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100 RETURN Theft(a.tag AS tag, c.ts - a.ts AS took)"
)
EVENTS = [
    {"ts": 1, "type": "Shelf", "tag": "soap"},
    {"ts": 2, "type": "Shelf", "tag": "gin"},
    {"ts": 5, "type": "Register", "tag": "soap"},
    {"ts": 6, "type": "Exit", "tag": "soap"},
    {"ts": 7, "type": "Exit", "tag": "gin"},
]
FOUND = [{"start": 2, "end": 7, "tag": "gin", "took": 5}]
Run = Callable[..., Result]


@pytest.fixture
def run() -> Run:
    def call(*arguments: object, text: str = "") -> Result:
        return CliRunner().invoke(application, [str(part) for part in arguments], input=text)

    return call


def store(path: Path, rows: list[dict[str, object]]) -> Path:
    table = pa.Table.from_pylist(rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(table, path)
    elif path.suffix == ".csv":
        pa_csv.write_csv(table, path)
    elif path.suffix == ".arrow":
        feather.write_feather(table, path, compression="uncompressed")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# ── Inputs ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".jsonl", ".arrow"])
def test_every_format_is_read(run: Run, tmp_path: Path, ending: str) -> None:
    result = run("run", THEFT, "--input", store(tmp_path / f"readings{ending}", EVENTS))
    assert result.exit_code == 0, result.output
    assert lines(result.stdout) == FOUND
    assert "5 events, 1 match in" in result.stderr


def test_folders_globs_and_inputs_are_one_stream(run: Run, tmp_path: Path) -> None:
    later, earlier = EVENTS[3:], EVENTS[:3]
    store(tmp_path / "days" / "a.parquet", later)
    store(tmp_path / "days" / "b.parquet", earlier)
    (tmp_path / "days" / "_SUCCESS").write_text("")
    assert lines(run("run", THEFT, "-i", tmp_path / "days").stdout) == FOUND
    assert lines(run("run", THEFT, "-i", tmp_path / "days" / "*.parquet").stdout) == FOUND
    both = [tmp_path / "days" / "a.parquet", tmp_path / "days" / "b.parquet"]
    assert lines(run("run", THEFT, "-i", both[0], "-i", both[1]).stdout) == FOUND


def test_one_input_for_each_event_type(run: Run, tmp_path: Path) -> None:
    given: list[object] = []
    for name in ("Shelf", "Register", "Exit"):
        rows = [{"ts": e["ts"], "tag": e["tag"]} for e in EVENTS if e["type"] == name]
        given += ["--input", f"{name}={store(tmp_path / f'{name}.csv', rows)}"]
    assert lines(run("run", THEFT, *given).stdout) == FOUND


def test_columns_can_have_other_names_and_times_be_texts(run: Run, tmp_path: Path) -> None:
    rows = [
        {"at": f"2024-05-01T09:00:{e['ts']:02d}.5Z", "kind": e["type"], "tag": e["tag"]} for e in EVENTS
    ]  # fmt: skip
    query = THEFT.replace("WITHIN 100", "WITHIN :w").replace("c.ts - a.ts", "c.time - a.time")
    path = store(tmp_path / "readings.jsonl", rows)
    result = run("run", query, "-i", path, "--time", "at", "--type", "kind", "--param", "w=100000000")
    assert [row["tag"] for row in lines(result.stdout)] == ["gin"], result.output


def test_a_large_input_goes_in_pieces_and_answers_the_same(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 100)
    day = ouzel.datasets.shop_day(3_000, seed=5).events
    shuffled = day.take(pa.array([(row * 7919) % day.num_rows for row in range(day.num_rows)]))
    text = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag_id] WITHIN 12 hours RETURN T(a.tag_id AS tag)"
    want = sorted(map(json_line, ouzel.match(day, text).to_pylist()))
    assert want
    for name, table in (("sorted", day), ("shuffled", shuffled)):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path, row_group_size=250)
        result = run("run", text, "-i", path)
        assert sorted(result.stdout.splitlines()) == want, name


def test_queries_come_from_files_and_standard_input(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "readings.csv", EVENTS)
    file = tmp_path / "theft.query"
    file.write_text(THEFT, encoding="utf-8")
    assert lines(run("run", file, "-i", path).stdout) == FOUND
    assert lines(run("run", "-", "-i", path, text=THEFT).stdout) == FOUND


def test_rows_of_one_time_are_in_the_order_of_the_file(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 10)
    events = [{"ts": number // 4, "type": "AAB"[number % 3], "n": number} for number in range(50)]
    path = store(tmp_path / "log.parquet", events)
    query = "PATTERN SEQ(A a, B b) WITHIN 2 RETURN R(a.n AS a, b.n AS b)"
    wanted = ouzel.match(events, query, order="arrival").to_pylist()
    assert {row["start"] for row in wanted} & {row["end"] for row in wanted}
    for options in (["--by-arrival"], ["--order", "n"]):
        found = run("run", query, "--input", path, *options)
        assert sorted(lines(found.stdout), key=str) == sorted(wanted, key=str), options
    refused = run("run", query, "--input", path, "--by-arrival", "--order", "n")
    assert refused.exit_code != 0 and "give --order or --by-arrival, not both" in refused.output


# ── Outputs ────────────────────────────────────────────────────────────────────────────────────────


def test_every_format_is_written(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "readings.parquet", EVENTS)
    for ending in ("jsonl", "csv", "parquet", "arrow", "txt"):
        result = run("run", THEFT, "-i", path, "--output", tmp_path / "new" / f"out.{ending}")
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
    new = tmp_path / "new"
    assert lines((new / "out.jsonl").read_text()) == FOUND
    assert pq.read_table(new / "out.parquet").to_pylist() == FOUND
    assert feather.read_table(new / "out.arrow").to_pylist() == FOUND
    assert list(csv.DictReader((new / "out.csv").open())) == [{"start": "2", "end": "7", "tag": "gin", "took": "5"}]
    assert "gin" in (new / "out.txt").read_text()
    assert sorted(p.name for p in new.iterdir()) == sorted(
        f"out.{e}" for e in ("jsonl", "csv", "parquet", "arrow", "txt")
    )


def test_durations_are_written_as_text(run: Run, tmp_path: Path) -> None:
    began = datetime(2024, 5, 1, 9)
    rows = [{**event, "ts": began + timedelta(minutes=event["ts"])} for event in EVENTS]  # type: ignore[arg-type]
    path = store(tmp_path / "readings.parquet", rows)
    query = THEFT.replace("WITHIN 100", "WITHIN 100 min").replace("a.tag AS tag, ", "")
    assert lines(run("run", query, "-i", path, "--format", "jsonl").stdout)[0]["took"] == "0:05:00"
    assert run("run", query, "-i", path, "--format", "csv").stdout.splitlines()[1].endswith('"0:05:00"')


def test_structs_become_json_in_csv(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "readings.parquet", EVENTS)
    result = run("run", "PATTERN SEQ(Shelf a, Exit c) WHERE [tag] WITHIN 100", "-i", path, "-f", "csv")
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [json.loads(row["a"])["tag"] for row in rows] == ["soap", "gin"]


def test_a_script_has_one_file_for_each_query(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "readings.parquet", EVENTS)
    script = f"theft: {THEFT}; bought: PATTERN SEQ(Register a, Exit b) WHERE [tag] WITHIN 9 RETURN B(a.tag AS tag);"
    assert run("run", script, "-i", path, "-o", tmp_path / "found", "-f", "jsonl").exit_code == 0
    assert lines((tmp_path / "found" / "theft.jsonl").read_text()) == FOUND
    assert [row["tag"] for row in lines((tmp_path / "found" / "bought.jsonl").read_text())] == ["soap"]
    assert {row["query"] for row in lines(run("run", script, "-i", path).stdout)} == {"theft", "bought"}
    refused = run("run", script, "-i", path, "-o", tmp_path / "one.csv")
    assert refused.exit_code == 1 and "name a folder" in refused.stderr


def test_a_table_shows_the_first_rows_and_says_how_many_there_are(run: Run, tmp_path: Path) -> None:
    rows = [{"ts": n, "type": "A", "id": n} for n in range(30)]
    result = run(
        "run", "PATTERN A a WITHIN 5 RETURN R(a.id AS number)", "-i", store(tmp_path / "a.csv", rows), "-f", "table"
    )
    assert "… and 10 more" in result.stdout and "number" in result.stdout
    assert "no matches" in run("run", THEFT, "-i", store(tmp_path / "b.csv", EVENTS[:2]), "-f", "table").stdout


# ── What goes wrong ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([THEFT, "-i", "nowhere.csv"], "there is no file or folder 'nowhere.csv'"),
        ([THEFT, "-i", "*.nothing"], "no file fits '*.nothing'"),
        ([THEFT, "-i", "READINGS", "--time", "when"], "no time column 'when'"),
        ([THEFT, "-i", "READINGS", "--type", "kind"], "no type column 'kind'"),
        ([THEFT.replace("tag]", "tagg]"), "-i", "READINGS"], "tagg"),
        (["PATTERN SEQ(", "-i", "READINGS"], "line 1"),
        (["missing.query", "-i", "READINGS"], "the query 'missing.query' cannot be read: No such file"),
        ([THEFT, "-i", "READINGS", "-o", "out.xyz"], "is unknown; give --format"),
        ([THEFT, "-i", "READINGS", "-f", "parquet"], "name a file with --output"),
        ([THEFT, "-i", "READINGS", "-i", "Exit=READINGS"], "inputs must all be given as TYPE=PATH, or none"),
    ],
)
def test_mistakes_are_one_message_and_exit_code_1(run: Run, tmp_path: Path, arguments: list[str], said: str) -> None:
    path = str(store(tmp_path / "readings.csv", EVENTS))
    result = run("run", *[argument.replace("READINGS", path) for argument in arguments])
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("error  ") and said in result.stderr
    assert "Traceback" not in result.output


def test_a_file_that_is_not_what_its_ending_says(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "readings.parquet"
    path.write_text("not at all")
    result = run("run", THEFT, "-i", path)
    assert result.exit_code == 1 and "cannot be read as parquet" in result.stderr


def test_an_error_on_the_way_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "out.jsonl"
    place.write_text("old")
    schema = pa.schema({"a": pa.int64()})
    with pytest.raises(KeyboardInterrupt), Results({"q": schema}, place, None) as results:
        results.write({"q": pa.table({"a": [1]})})
        raise KeyboardInterrupt
    assert place.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["out.jsonl"]


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_leaves_nothing_half_written(tmp_path: Path, sent: signal.Signals, code: int) -> None:
    # A write that takes its time stands for a long run: it is certainly in the middle when the signal comes.
    program = (
        "import sys, time\nfrom ouzel.cli import main, results\n"
        "def write(self, answers):\n    print('writing', flush=True)\n    time.sleep(60)\n"
        "results.Results.write = write\nmain()\n"
    )
    path = store(tmp_path / "readings.csv", EVENTS)
    new = tmp_path / "new"
    arguments = [sys.executable, "-c", program, "run", THEFT, "-i", str(path), "-o", str(new / "out.csv")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        process.send_signal(sent)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == code, errors
    assert "Traceback" not in errors
    assert list(new.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="signals as on POSIX")
@pytest.mark.parametrize(("sent", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_ctrl_c_while_the_command_is_being_loaded_is_no_traceback(sent: str, code: int) -> None:
    # The signal comes when the first module of the application is looked for.
    program = (
        "import os, signal, sys\nfrom ouzel.cli import main\n"
        "class Impatient:\n    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'ouzel.cli.app':\n            os.kill(os.getpid(), signal.{sent})\n"
        "sys.meta_path.insert(0, Impatient())\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


def test_a_reader_that_goes_away_is_no_error_of_ours(tmp_path: Path) -> None:
    rows = [{"ts": n, "type": "A", "id": n} for n in range(20_000)]
    path = store(tmp_path / "a.parquet", rows)
    command = f"{sys.executable} -c 'from ouzel.cli import main; main()' run 'PATTERN A a WITHIN 5' -i {path}"
    text = f"{command} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)
    assert len(done.stdout.splitlines()) == 1 and "Traceback" not in done.stderr
    assert done.returncode == 141


def test_quiet_prints_nothing_but_rows(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "a.csv", EVENTS)
    assert "events/s" in run("run", THEFT, "-i", path).stderr
    assert run("run", THEFT, "-i", path, "--quiet").stderr == ""


# ── Other commands ─────────────────────────────────────────────────────────────────────────────────


def test_no_colours_where_nobody_looks(run: Run, tmp_path: Path) -> None:
    result = run("run", THEFT, "-i", store(tmp_path / "a.csv", EVENTS), "-f", "table")
    assert "\x1b[" not in result.output


def test_explain_prints_and_draws(run: Run, tmp_path: Path) -> None:
    assert run("explain", THEFT).stdout.startswith("query query\n")
    drawn = tmp_path / "plan.svg"
    assert run("explain", THEFT, "--svg", drawn).exit_code == 0
    assert drawn.read_text().startswith("<svg")
    assert json.loads(run("explain", THEFT, "--format", "json").stdout)
    refused = run("explain", f"a: {THEFT}; b: {THEFT};")
    assert refused.exit_code == 2 and "--query" in refused.stderr


def test_expand_lists_what_compressed_rows_hold(run: Run, tmp_path: Path) -> None:
    rows = [{"ts": n, "type": "A" if n < 3 else "B"} for n in range(1, 4)]
    query = "PATTERN SEQ(A+ a[], B b) WITHIN 9 OUTPUT COMPRESSED RETURN R(a.ts AS a)"
    stored = tmp_path / "rows.parquet"
    assert run("run", query, "-i", store(tmp_path / "a.csv", rows), "-o", stored).exit_code == 0
    assert [row["a"] for row in lines(run("expand", stored, query).stdout)] == [[1, 2], [1], [2]]
    assert len(lines(run("expand", stored, query, "--sample", 2, "--seed", 1).stdout)) == 2
    assert run("expand", tmp_path / "a.csv", query).exit_code == 1


def test_help_of_every_command_has_an_example(run: Run) -> None:
    for command in application.registered_commands:
        result = run(command.name, "--help")
        assert result.exit_code == 0 and f"  ouzel {command.name}" in result.stdout, command.name


def run_on_spark(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`ouzel run --engine spark` in a process of its own, since it stops its session when it is done."""
    command = [sys.executable, "-c", "from ouzel.cli import main; main()", "run", *map(str, arguments)]
    there = {**os.environ, **environment}
    return subprocess.run([*command, "--engine", "spark"], capture_output=True, text=True, check=False, env=there)


@pytest.mark.spark
def test_spark_answers_the_same(run: Run, tmp_path: Path) -> None:
    """Times without a zone stay so wherever the machine is, matches come in their order, and empty answers are told."""
    readings = [{**row, "ts": f"2024-05-01T09:00:0{row['ts']}"} for row in EVENTS]
    path = str(
        store(tmp_path / "readings.jsonl", [*readings, {"ts": "2024-05-01T09:00:08", "type": None, "tag": "tea"}])
    )
    pairs = "PATTERN SEQ(Shelf a, ANY(Register, Exit) b) WHERE [tag] WITHIN 9 s RETURN Pair(a.tag AS tag)"
    script = f"pairs: {pairs}; none: {pairs.replace('Shelf', 'Shlef')};"
    done = run_on_spark(script, "-i", path, TZ="America/New_York")
    assert done.returncode == 0, done.stderr
    here = run("run", script, "-i", path)
    assert lines(done.stdout) == lines(here.stdout) and len(lines(here.stdout)) == 3
    told = (
        "query 'none' found nothing: no event has the type 'Shlef' in its column 'type' (1 event has no type at all);"
    )
    for stderr in (done.stderr, here.stderr):
        assert told in stderr and "6 events (1 without a type), 3 matches (pairs 3, none 0) in" in stderr


def test_a_misspelt_type_is_told_unless_quiet(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "events.jsonl", EVENTS)
    misspelt = THEFT.replace("Shelf", "Shlef")
    result = run("run", misspelt, "-i", path)
    assert result.exit_code == 0, result.output
    assert "no event has the type 'Shlef' in its column 'type'; did you mean 'Shelf'?" in result.stderr.replace(
        "\n", " "
    )
    assert "Shelf" not in run("run", misspelt, "-i", path, "--quiet").stderr


def test_a_misspelt_forbidden_type_is_reported(run: Run, tmp_path: Path) -> None:
    path = store(tmp_path / "events.jsonl", EVENTS)
    result = run("run", THEFT.replace("Register", "Registr"), "-i", path)
    assert "names the type 'Registr', which no event has; did you mean 'Register'?" in " ".join(result.stderr.split())


def test_the_summary_counts_what_there_is(run: Run, tmp_path: Path) -> None:
    events = store(tmp_path / "a.jsonl", [*EVENTS, {"ts": 8, "type": None, "tag": "tea"}])
    assert run("run", THEFT, "-i", events).stderr.startswith("6 events (1 without a type), 1 match in ")
    pairs = "PATTERN SEQ(Shelf a, Exit c) WITHIN 100"
    assert run("run", pairs + " AGG COUNT", "-i", events).stderr.startswith("6 events (1 without a type), 2 rows in ")
    assert ", 2 rows in " in run("run", pairs + " OUTPUT COMPRESSED", "-i", events).stderr


def test_a_loss_model_comes_from_a_file(run: Run, tmp_path: Path) -> None:
    events = store(tmp_path / "a.csv", EVENTS)
    model = ouzel.LossModel(0.1, gaps={"b": Exponential(5), "c": Exponential(5)}, priors={"a": 0.9})
    (tmp_path / "model.json").write_text(model.to_json(), encoding="utf-8")
    lossy = "PATTERN SEQ(Shelf a, Register b, Exit c) WHERE [tag] WITHIN 100 THRESHOLD 0.01 OUTPUT BEST"
    found = run("run", lossy, "-i", events, "--model", tmp_path / "model.json")
    assert [json.loads(line)["missing"] for line in found.stdout.splitlines()] == [[], ["b"]]
    without = run("run", lossy, "-i", events)
    assert without.exit_code == 1 and "must know what the stream loses" in without.stderr
    (tmp_path / "model.json").write_text("{", encoding="utf-8")
    broken = run("run", lossy, "-i", events, "--model", tmp_path / "model.json")
    assert broken.exit_code == 1 and "not a loss model in JSON" in broken.stderr


def test_limit_stops_after_so_many_matches(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text("".join(f'{{"ts": {n}, "type": "{"AB"[n % 2]}"}}\n' for n in range(100)), encoding="utf-8")
    query = "PATTERN SEQ(A a, B b) WITHIN 2"
    result = run("run", query, "-i", str(path), "--limit", "3", "-f", "jsonl")
    assert result.exit_code == 0 and len(result.stdout.splitlines()) == 3
    assert run("run", query, "-i", str(path), "--limit", "300", "-q", "-f", "jsonl").stdout.count("\n") == 50


# ── Statements of SQL ──────────────────────────────────────────────────────────────────────────────

TICKS = [{"sym": "a", "ts": ts, "price": price} for ts, price in enumerate([5, 3, 4, 2, 6])]
DIPS = (
    "SELECT label, n\nFROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n, LAST(ts) AS at "
    "PATTERN (DOWN UP) DEFINE DOWN AS price < PREV(price), UP AS price > PREV(price) + :rise) JOIN names USING (sym)"
)


def dips_in_files(folder: Path) -> list[object]:
    """The statement in a file of its own, and the inputs that it reads, as arguments."""
    store(folder / "ticks.csv", TICKS)
    store(folder / "lookup.csv", [{"sym": "a", "label": "first"}])
    (folder / "dips.sql").write_text(DIPS, encoding="utf-8")
    inputs = ["-i", folder / "ticks.csv", "-i", f"names={folder}/look*.csv"]
    return [folder / "dips.sql", *inputs, "--param", "rise=1", "-f", "jsonl"]


def test_statements_read_each_file_as_a_table(run: Run, tmp_path: Path) -> None:
    file, *given = dips_in_files(tmp_path)
    for query in (file, DIPS):
        found = run("run", query, *given)
        assert found.exit_code == 0, found.output
        assert json.loads(found.stdout) == {"label": "first", "n": 2}
    assert "6 events, 1 row in" in found.stderr


@pytest.mark.spark
def test_statements_on_spark_answer_the_same(tmp_path: Path) -> None:
    found = run_on_spark(*dips_in_files(tmp_path))
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == {"label": "first", "n": 2}
    assert "6 events, 1 row in" in found.stderr


def test_mistakes_in_statements_name_their_place(run: Run, tmp_path: Path) -> None:
    store(tmp_path / "ticks.csv", TICKS)
    found = run("run", DIPS, "-i", tmp_path / "ticks.csv")
    assert found.exit_code == 1 and "line 2, column 179" in found.output and "--param rise=" in found.output
    found = run("run", DIPS.replace("PATTERN (", "PATTERN (("), "-i", tmp_path / "ticks.csv", "--param", "rise=1")
    assert found.exit_code == 1 and "line 2" in found.output
    found = run("run", DIPS, "-i", f"{tmp_path}/*.csv")
    assert found.exit_code == 1 and "needs a name: write --input NAME=" in found.output


def test_why_and_explain_of_statements(run: Run, tmp_path: Path) -> None:
    store(tmp_path / "ticks.csv", TICKS)
    statement = tmp_path / "dips.sql"
    statement.write_text(DIPS, encoding="utf-8")
    found = run("why", statement, "-i", tmp_path / "ticks.csv", "--param", "rise=1", "--start", "1")
    assert found.exit_code == 0 and "UP: row 2" in found.output and "no match: row 2" in found.output
    found = run("explain", statement, "--param", "rise=1")
    assert found.exit_code == 0 and "UP if price > (PREV(price) + 1)" in found.output
    found = run("explain", statement, "--param", "rise=1", "--svg", tmp_path / "plan.svg")
    assert found.exit_code == 0 and (tmp_path / "plan.svg").read_text(encoding="utf-8").startswith("<svg")
