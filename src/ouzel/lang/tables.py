"""The parser's tables, stored beside the grammar. Computing them takes longer than parsing and planning a small query.

`python -m ouzel.lang.tables` writes them. The parser computes the tables if the file is damaged or was written for
another grammar or version of Lark, so a stale file only costs time.
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
    """A lexer that does nothing: the caller feeds the tokens, because statements are parsed one by one."""

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
    """The content of the file: a line with the grammar and the version of Lark, then the tables; with a checksum."""
    body = io.BytesIO()
    build_parser().save(body)
    return seal(TABLES, _title(_grammar()), b"\n", zlib.compress(body.getvalue(), 9))


def _grammar() -> str:
    return resources.files("ouzel.lang").joinpath("grammar.lark").read_text(encoding="utf-8")


def _title(grammar: str) -> bytes:
    return f"lark {lark.__version__}, grammar {zlib.crc32(grammar.encode('utf-8')):08x}".encode("ascii")


if __name__ == "__main__":
    # Use the module's real name, where unpickling looks for the stored classes.
    from ouzel.lang import tables

    Path(__file__).with_name(STORED).write_bytes(tables.stored_form())
