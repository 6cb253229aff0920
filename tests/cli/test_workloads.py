"""`ouzel generate`: the workload can be made, and its query finds something in it."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import ouzel
from ouzel.cli.app import application


def run(*arguments: object) -> Result:
    return CliRunner().invoke(application, [str(part) for part in arguments])


def test_the_shop_has_a_query_that_finds_something(tmp_path: Path) -> None:
    path = tmp_path / "events.parquet"
    made = run("generate", "shop", "--output", path, "--events", 20_000, "--seed", 3)
    assert made.exit_code == 0, made.output
    events = pq.read_table(path)
    assert events.num_rows == 20_000
    query = run("generate", "shop", "--query").stdout
    assert ouzel.match(events, query).num_rows > 0


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["generate", "shopp"], 2, "Invalid value for 'WORKLOAD'"),
        (["generate", "shop", "-n", "5"], 1, "at least 1,000 events"),
    ],
)
def test_what_cannot_be_made_is_said(arguments: list[str], code: int, said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code and said in result.stderr
