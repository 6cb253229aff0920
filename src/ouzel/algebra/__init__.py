"""The algebra of event streams (CESAR): streams as Python expressions, composed by operators."""

from __future__ import annotations

from ouzel.algebra.normal_form import normal_form
from ouzel.algebra.streams import Stream, step, stream
from ouzel.algebra.text import from_text, to_text

__all__ = ["Stream", "from_text", "normal_form", "step", "stream", "to_text"]
