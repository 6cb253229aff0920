"""The algebra of event streams (CESAR): streams as Python expressions, composed by operators."""

from __future__ import annotations

from ouzel.algebra.streams import Stream, from_text, step, stream, to_text

__all__ = ["Stream", "from_text", "step", "stream", "to_text"]
