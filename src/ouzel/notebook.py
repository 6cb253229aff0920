"""How results show themselves in notebooks: pictures as pictures, text in a fixed width."""

from __future__ import annotations

from html import escape


def preformatted(text: str) -> str:
    """Text as HTML, in a fixed width.

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
        """Write the picture to a file."""
        with open(path, "w", encoding="utf-8") as file:
            file.write(self)


class Explanation(str):
    """A text that notebooks show in a fixed width."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return preformatted(self)
