"""Shows results in notebooks: tables, pictures, and text in a font of fixed width."""

from __future__ import annotations

import sys
from html import escape
from time import perf_counter
from typing import Any

ROWS_SHOWN = 20
# Work that takes less time shows no progress.
_PATIENCE_SECONDS = 2.0
_SHOWN_SECONDS = 0.5


def preformatted(text: str) -> str:
    """Text as HTML in a font of fixed width.

    >>> preformatted("a < b")
    '<pre style="white-space: pre; line-height: 1.3">a &lt; b</pre>'
    """
    return f'<pre style="white-space: pre; line-height: 1.3">{escape(text, quote=False)}</pre>'


class Picture(str):
    """The text of an SVG picture. Write it to a file, or let a notebook show it."""

    __slots__ = ()

    def _repr_svg_(self) -> str:
        return str(self)

    def save(self, path: str) -> None:
        """Write the picture to a file, whose name ends in .svg."""
        if not str(path).lower().endswith(".svg"):
            raise ValueError(f"a picture is SVG, so its file must end in .svg, got {str(path)!r}; name it .svg")
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)


class Explanation(str):
    """A text that notebooks show in a font of fixed width."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return preformatted(self)


class Progress:
    """One line about long work, at a prompt or in a notebook: how many events have been read, and for how long.

    The line overwrites itself, and is cleared at the end. Scripts show no such line.
    """

    def __init__(self, read: list[int]) -> None:
        self._read = read
        self._began = perf_counter()
        self._due = self._began + _PATIENCE_SECONDS
        self._width = 0

    @staticmethod
    def is_wanted() -> bool:
        """Whether a person is waiting. Python and IPython set `sys.ps1` at a prompt, and IPython also in notebooks."""
        return hasattr(sys, "ps1")

    def show(self) -> None:
        """Write the line, at most twice a second."""
        now = perf_counter()
        if now < self._due:
            return
        self._due = now + _SHOWN_SECONDS
        line = f"ouzel: {sum(self._read):,} events read in {now - self._began:.0f} s"
        self._width = max(self._width, len(line))
        self._write(f"\r{line}")

    def clear(self) -> None:
        """Remove the line."""
        if self._width:
            self._write(f"\r{' ' * self._width}\r")

    @staticmethod
    def _write(text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def table_html(table: Any) -> str:
    """The first rows of an Arrow table as HTML.

    >>> import pyarrow as pa
    >>> table_html(pa.table({"tag": ["<gin>"]})).partition("<tbody>")[2]
    '<tr><td>&lt;gin&gt;</td></tr></tbody></table><p>1 row</p>'
    """
    head = "".join(f'<th title="{escape(str(one.type))}">{escape(one.name)}</th>' for one in table.schema)
    rows = table.slice(0, ROWS_SHOWN).to_pylist()
    cells = ("".join(f"<td>{escape(_cell(value), quote=False)}</td>" for value in row.values()) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    shown = f", the first {ROWS_SHOWN} shown" if table.num_rows > ROWS_SHOWN else ""
    count = f"{table.num_rows:,} row{'' if table.num_rows == 1 else 's'}{shown}"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table><p>{count}</p>"


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{name}={_cell(part)}" for name, part in value.items() if part is not None)
    if isinstance(value, list):
        return "[" + "; ".join(map(_cell, value)) + "]"
    return "" if value is None else str(value)


def show_tables() -> None:
    """In a notebook, show Arrow tables as HTML, because pyarrow shows them as text. Another way of showing them, if
    there is one, is kept.
    """
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None:
        return
    import pyarrow

    formatter = shell.display_formatter.formatters["text/html"]
    try:
        formatter.lookup_by_type(pyarrow.Table)
    except KeyError:
        formatter.for_type(pyarrow.Table, table_html)
