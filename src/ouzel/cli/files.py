"""Query files: reading and writing them, and what one says in a line."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ouzel import lang
from ouzel.errors import OuzelError
from ouzel.lang import syntax

STANDARD_INPUT = "-"


class FileError(OuzelError):
    """A file cannot be read, or not be rewritten without loss."""


@dataclass(frozen=True)
class QueryFile:
    """The text of a file, or of the standard input, under the name that messages use for it."""

    name: str
    text: str

    @classmethod
    def read(cls, path: str) -> QueryFile:
        """The file of that name, the standard input for -, or the text itself where it cannot be a name."""
        if path == STANDARD_INPUT:
            return cls("standard input", sys.stdin.read())
        if is_text(path):
            return cls("query", path)
        try:
            return cls(path, Path(path).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise FileError(f"the query '{path}' cannot be read: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            raise FileError(f"the query '{path}' is not UTF-8 text: byte {error.start} cannot be read") from None

    def write(self, text: str) -> None:
        write_text(Path(self.name), text)


def write_text(path: Path, text: str) -> None:
    """Put a text into a file, whole or not at all."""
    hidden = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        # Line ends stay as they are written here on every system, so that a formatted file is the same everywhere.
        hidden.write_text(text, encoding="utf-8", newline="\n")
        os.replace(hidden, path)
    except OSError as error:
        raise FileError(f"'{path}' cannot be written: {error.strerror or error}") from None
    finally:
        hidden.unlink(missing_ok=True)


def write_picture(path: Path, picture: str) -> None:
    """Put an SVG picture into a file; a name that promises another format is refused."""
    if path.suffix.lower() in (".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp"):
        raise FileError(f"the picture is SVG, and '{path}' would not be one; call it '{path.with_suffix('.svg')}'")
    write_text(path, picture + "\n")


def is_text(given: str) -> bool:
    """Whether this is a query rather than the name of a file: it has blanks and no file is called so.

    >>> is_text("PATTERN SEQ(A a, B b)"), is_text("theft.query")
    (True, False)
    """
    try:
        return len(given.split()) > 1 and not Path(given).exists()
    except (OSError, ValueError):
        return True  # Too long for a name, or with characters that no name has.


def format_file(text: str) -> str:
    """The text in its standard form. Comments between queries stay; one inside a query is refused, not lost."""
    script = lang.parse_script(text)
    named = script.queries[0].name is not None
    blocks: list[str] = []
    done = 0
    for query in script.queries:
        if inside := comments_in(text, query.span.start, query.span.end):
            line = text.count("\n", 0, inside[0][0]) + 1
            raise FileError(
                f"the comment in line {line} stands inside a query and would be lost: move it before the query"
            )
        behind, before = _comments_between(text, done, query.span.start)
        if blocks:
            blocks[-1] += behind
        else:
            before = [behind.strip(), *before] if behind else before
        body = lang.format_script(syntax.Script((query,))) if named else lang.format_query(query)
        blocks.append("\n".join([*before, body.strip()]))
        done = query.span.end
    behind, after = _comments_between(text, done, len(text))
    blocks[-1] += behind
    return "\n\n".join([*blocks, "\n".join(after)]).rstrip() + "\n"


def summary(query: syntax.Query) -> str:
    """A query in one line: its pattern and window.

    >>> summary(lang.parse("PATTERN SEQ(Shelf a, Exit b) WHERE a.id = b.id WITHIN 12 hours"))
    'PATTERN SEQ(Shelf a, Exit b) WITHIN 12 h'
    """
    short = syntax.Query(pattern=query.pattern, within=query.within)
    return " ".join(lang.format_query(short).split())


def comments_in(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Where comments stand in text[start:end], as offsets; nothing inside a string or a quoted name is one.

    >>> comments_in("a -- b\\n'--' /* c */", 0, 19)
    [(2, 6), (12, 19)]
    """
    found, at = [], start
    while at < end:
        if text[at] in "'\"`":
            close = text.find(text[at], at + 1)
            at = end if close < 0 else close + 1
        elif text.startswith("--", at):
            line_end = text.find("\n", at)
            line_end = end if line_end < 0 else min(line_end, end)
            found.append((at, line_end))
            at = line_end
        elif text.startswith("/*", at):
            close = text.find("*/", at + 2)
            close = end if close < 0 else close + 2
            found.append((at, close))
            at = close
        else:
            at += 1
    return found


def _comments_between(text: str, start: int, end: int) -> tuple[str, list[str]]:
    """What is said behind the query before, on its last line, and then the comments of the query after it."""
    behind, before = "", []
    for first, last in comments_in(text, start, end):
        comment = text[first:last].rstrip()
        if "\n" in text[start:first]:
            before.append(comment)
        else:
            behind += "  " + comment
    return behind, before
