"""What to do about operands that do not go together: quotes that are missing or too many, columns read as text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ouzel.bind.mistakes import quoted
from ouzel.bind.model import NUMBERS, Bound, Constant, Kind, Type

_NUMBER = re.compile(r"-?\d+(\.\d+)?")


def hint_for(target: Type, found: Type, operands: Sequence[Bound], doing: str) -> str | None:
    """The hint for operands of two types of which none becomes the other; `doing` is "compare" or "combine"."""
    kinds = {target.kind, found.kind}
    if kinds == {Kind.TIMESTAMP}:
        return "write the zone into the literal, as in TIMESTAMP '2024-05-31 12:00:00Z', or convert the column"
    if kinds == {Kind.DATE, Kind.TIMESTAMP}:
        return "a date has no zone: compare with TIMESTAMP '2024-05-31 00:00:00Z'"
    if Kind.STRING in kinds and kinds & {Kind.DATE, Kind.TIMESTAMP}:
        return "write DATE '2024-05-31' or TIMESTAMP '2024-05-31 12:00:00'"
    if doing == "compare" and Kind.BOOL in kinds:
        return "write TRUE or FALSE" if any(isinstance(operand, Constant) for operand in operands) else None
    if Kind.STRING in kinds and kinds & NUMBERS:
        return _between_text_and_numbers(operands, doing)
    return None


def _between_text_and_numbers(operands: Sequence[Bound], doing: str) -> str | None:
    text = next((str(o.value) for o in operands if isinstance(o, Constant) and isinstance(o.value, str)), None)
    number = next((o for o in operands if isinstance(o, Constant) and o.type.kind in NUMBERS), None)
    columns = {o.type.kind for o in operands if not isinstance(o, Constant)}
    if text is not None and columns & NUMBERS:
        if _NUMBER.fullmatch(text):
            return f"write {text} without quotes"
        return f"{quoted(text)} is text, and the other side is a number; was another column meant?"
    if number is not None and Kind.STRING in columns:
        quotes = f"write '{number.value!s}' in quotes"
        if doing != "compare":
            return quotes
        # Quotes alone would be bad advice for amounts of which one is not a number: '9' > '10'.
        return f"{quotes}; if numbers are meant, convert the column first: one value that is no number makes it text"
    if len(columns) > 1 and doing == "compare":
        return "convert one of the columns first"
    return None
