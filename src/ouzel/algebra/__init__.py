"""The algebra of event streams (CESAR): streams as Python expressions, composed by operators."""

from __future__ import annotations

from ouzel.algebra.streams import Stream, step, stream

__all__ = ["Stream", "step", "stream"]
