"""The parser's stored tables belong to the grammar that lies beside them."""

from __future__ import annotations

from importlib import resources

import pytest

from ouzel.lang import parser, tables
from tests.lang.papers import QUERIES


def test_stored_tables_are_those_of_the_grammar() -> None:
    stored = resources.files("ouzel.lang").joinpath(tables.STORED).read_bytes()
    title = tables.stored_form().partition(b"\n")[0]
    assert stored.partition(b"\n")[0] == title, "run `python -m ouzel.lang.tables` after changing the grammar"


@pytest.mark.parametrize("text", [query.text for query in QUERIES])
def test_stored_and_computed_tables_read_alike(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    by_stored = parser.parse_script(text)
    computed = tables.build_parser()
    monkeypatch.setattr(parser, "_grammar", lambda: computed)
    assert parser.parse_script(text) == by_stored
