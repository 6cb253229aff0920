"""The parser's tables, stored next to the grammar. Computing them takes longer than parsing and planning a small
query.

`python -m ouzel.lang.tables` writes them. If the file is damaged, or was written for another grammar or version of
Lark, the parser computes the tables. So an old file only costs time.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import lark
from lark.lexer import Lexer

from ouzel.errors import StateError
from ouzel.lang.builder import Builder
from ouzel.lang.row_builder import RowBuilder
from ouzel.lang.stream_builder import StreamBuilder
from ouzel.sealing import TABLES, seal, unseal


class Language(NamedTuple):
    """A grammar, with its tables stored next to it; the symbols with which a text may start; and the class that builds
    the tree.
    """

    name: str
    starts: tuple[str, ...]
    builder: type[Builder]

    @property
    def stored(self) -> str:
        return f"{self.name}.tables"

    @property
    def grammar(self) -> str:
        """The text of the grammar, including the grammar of expressions."""
        folder = resources.files("ouzel.lang")
        return "".join(folder.joinpath(f"{name}.lark").read_text("utf-8") for name in (self.name, "expressions"))


QUERIES = Language("grammar", ("query", "expression"), Builder)
ROW_PATTERNS = Language("row_patterns", ("row_pattern",), RowBuilder)
STREAMS = Language("streams", ("stream",), StreamBuilder)
LANGUAGES = (QUERIES, ROW_PATTERNS, STREAMS)


class NoLexer(Lexer):
    """A lexer that does nothing, because the caller feeds the tokens: statements are parsed one by one."""

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: object) -> Iterator[Any]:
        return iter(())


def load_parser(language: Language) -> lark.Lark:
    """The parser of a language, from its stored tables if these fit."""
    stored = resources.files("ouzel.lang").joinpath(language.stored)
    if stored.is_file():
        try:
            title, _, body = bytes(unseal(TABLES, stored.read_bytes())).partition(b"\n")
        except StateError:
            return build_parser(language)
        if title == _title(language):
            return lark.Lark.load(io.BytesIO(zlib.decompress(body)))
    return build_parser(language)


def build_parser(language: Language) -> lark.Lark:
    """The parser of a language, from its grammar."""
    return lark.Lark(
        language.grammar,
        parser="lalr",
        lexer=NoLexer,
        start=list(language.starts),
        transformer=language.builder(),
        keep_all_tokens=True,
        maybe_placeholders=False,
    )


def stored_form(language: Language) -> bytes:
    """The content of the file: a line with the grammar and the version of Lark, then the tables, with a checksum."""
    body = io.BytesIO()
    build_parser(language).save(body)
    return seal(TABLES, _title(language), b"\n", zlib.compress(body.getvalue(), 9))


def _title(language: Language) -> bytes:
    return f"lark {lark.__version__}, grammar {zlib.crc32(language.grammar.encode('utf-8')):08x}".encode("ascii")


if __name__ == "__main__":
    # Use the module's real name, where unpickling looks for the stored classes.
    from ouzel.lang import tables

    for language in tables.LANGUAGES:
        Path(__file__).with_name(language.stored).write_bytes(tables.stored_form(language))
