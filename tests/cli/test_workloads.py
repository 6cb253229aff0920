"""`ouzel generate`: every workload can be made, and its query finds something in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import ouzel
from ouzel.cli.app import application
from ouzel.cli.queries import WORKLOADS


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(part) for part in arguments])


def test_the_workloads_are_listed() -> None:
    listed = run("generate").stdout
    assert all(name in listed for name in WORKLOADS)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_workload_has_a_query_that_finds_something(name: str, tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    made = run("generate", name, "--output", path, "--events", 20_000, "--seed", 3)
    assert made.exit_code == 0, made.output
    events = pq.read_table(path)
    assert events.num_rows == 20_000
    query = run("generate", name, "--query").stdout
    assert ouzel.match(events, query).num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "shopp"], "there is no workload 'shopp'"),
        (["generate", "shop", "-n", "5"], "at least 1,000 events"),
    ],
)
def test_what_cannot_be_made_is_said(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1 and said in result.stderr
