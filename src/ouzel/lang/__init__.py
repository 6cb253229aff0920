"""The query language: text to syntax tree and back. Knows no event types, no plans and no data."""

from __future__ import annotations

from ouzel.lang.formatter import format_expression, format_query, format_script
from ouzel.lang.parser import parse, parse_expression, parse_script

__all__ = ["format_expression", "format_query", "format_script", "parse", "parse_expression", "parse_script"]
