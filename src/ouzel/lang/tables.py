"""The parser's tables, stored beside the grammar: computing them takes longer than everything else that a small query
does.

`python -m ouzel.lang.tables` writes them anew. Where they are damaged, or do not fit the grammar or the installed Lark,
they are computed, so a stale file costs time and nothing else.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import lark
from lark.lexer import Lexer

from ouzel.errors import StateError
from ouzel.lang.builder import Builder
from ouzel.sealing import TABLES, seal, unseal

STORED = "grammar.tables"


class NoLexer(Lexer):
    """Tokens are fed by hand, since statements are parsed one by one."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Any]:
        return iter(())


def load_parser() -> lark.Lark:
    """The parser of the language, from its stored tables if they fit."""
    grammar = _grammar()
    stored = resources.files("ouzel.lang").joinpath(STORED)
    if stored.is_file():
        try:
            title, _, body = bytes(unseal(TABLES, stored.read_bytes())).partition(b"\n")
        except StateError:
            return build_parser()
        if title == _title(grammar):
            return lark.Lark.load(io.BytesIO(zlib.decompress(body)))
    return build_parser()


def build_parser() -> lark.Lark:
    """The parser of the language, from its grammar."""
    return lark.Lark(
        _grammar(),
        parser="lalr",
        lexer=NoLexer,
        start=["query", "expression"],
        transformer=Builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


def stored_form() -> bytes:
    """What the file should hold: a line that says for which grammar and which Lark, then the tables; sealed."""
    body = io.BytesIO()
    build_parser().save(body)
    return seal(TABLES, _title(_grammar()), b"\n", zlib.compress(body.getvalue(), 9))


def _grammar() -> str:
    return resources.files("ouzel.lang").joinpath("grammar.lark").read_text(encoding="utf-8")


def _title(grammar: str) -> bytes:
    return f"lark {lark.__version__}, grammar {zlib.crc32(grammar.encode('utf-8')):08x}".encode("ascii")


if __name__ == "__main__":
    # By the module's real name, since that is where the stored classes are looked for.
    from ouzel.lang import tables

    Path(__file__).with_name(STORED).write_bytes(tables.stored_form())
