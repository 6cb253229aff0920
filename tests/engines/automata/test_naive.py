"""The naive extension that the indexes are measured against gives the same answers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel.engines.automata import advance as cayuga
from ouzel.engines.automata import naive as cayuga_naive
from tests.generate.cases import counted
from tests.query_set.test_agreement import TEMPLATE, random_parameters, random_quotes


def answers(parameters: list[dict[str, Any]], quotes: pa.Table) -> list[dict[str, Any]]:
    held = ouzel.QuerySet(merge=False)
    held.add_template("moves", TEMPLATE, parameters)
    parts = [*held.push(quotes).values(), *held.finish().values()]
    return [row for part in parts for row in part.to_pylist()]


def test_the_naive_extension_answers_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random("naive")
    parameters, quotes = random_parameters(rng, 60), pa.Table.from_pylist(random_quotes(rng, 80))
    indexed = answers(parameters, quotes)
    monkeypatch.setattr(cayuga, "advance", cayuga_naive.NaiveKernel())
    assert len(indexed) > 50
    assert counted(answers(parameters, quotes)) == counted(indexed)
