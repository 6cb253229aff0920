"""The query language: from text to syntax tree and back. This package knows no event types, no plans and no data."""

from __future__ import annotations

from ouzel.lang.formatter import format_expression, format_query, format_script, format_stream
from ouzel.lang.parser import parse, parse_expression, parse_script, parse_stream

__all__ = [
    "format_expression",
    "format_query",
    "format_script",
    "format_stream",
    "parse",
    "parse_expression",
    "parse_script",
    "parse_stream",
]
