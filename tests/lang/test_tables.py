"""The parser's stored tables belong to the grammar that lies beside them."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import pytest

from ouzel.lang import parser, tables
from ouzel.sealing import TABLES, unseal
from tests.lang.papers import QUERIES

computed_parser = cache(lambda start: tables.build_parser(tables.QUERIES))


@pytest.mark.parametrize("language", tables.LANGUAGES, ids=lambda language: language.name)
def test_stored_tables_are_those_of_the_grammar(language: tables.Language) -> None:
    stored = resources.files("ouzel.lang").joinpath(language.stored).read_bytes()
    titles = [bytes(unseal(TABLES, form)).partition(b"\n")[0] for form in (stored, tables.stored_form(language))]
    assert titles[0] == titles[1], "run `python -m ouzel.lang.tables` after changing the grammar"


@pytest.mark.parametrize("place", [0, 10, 30, 60, 5_000])
def test_damaged_tables_are_computed_again(place: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = bytearray(resources.files("ouzel.lang").joinpath(tables.QUERIES.stored).read_bytes())
    content[place] ^= 1
    (tmp_path / tables.QUERIES.stored).write_bytes(content)
    for name in ("grammar", "expressions"):
        text = resources.files("ouzel.lang").joinpath(f"{name}.lark").read_bytes()
        (tmp_path / f"{name}.lark").write_bytes(text)
    monkeypatch.setattr(tables.resources, "files", lambda package: tmp_path)
    computed = []
    monkeypatch.setattr(tables, "build_parser", computed.append)
    tables.load_parser(tables.QUERIES)
    assert computed == [tables.QUERIES]


@pytest.mark.parametrize("text", [query.text for query in QUERIES])
def test_stored_and_computed_tables_read_alike(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_stored = parser.parse_script(text)
    monkeypatch.setattr(parser, "_grammar", computed_parser)
    assert parser.parse_script(text) == by_stored
