"""The envelope of all stored or sent bytes: kind, format, length, and a checksum of all bytes.

The checksum is verified before anything is parsed, so all damage is found here. It does not detect forgery: anyone who
can write a state can also compute its checksum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from ouzel.errors import StateError

_MAGIC_BYTES, _CHECKSUM_BYTES = 8, 16
_FORMAT_AT, _LENGTH_AT, _CHECKSUM_AT = _MAGIC_BYTES, _MAGIC_BYTES + 4, _MAGIC_BYTES + 12
_HEAD_BYTES = _CHECKSUM_AT + _CHECKSUM_BYTES

_FROM_SNAPSHOT = "restore an earlier snapshot, or start from the beginning"
_FROM_CHECKPOINT = "restore the checkpoint from a copy, or start from a new checkpoint"


@dataclass(frozen=True, slots=True)
class Format:
    """One kind of stored bytes."""

    magic: bytes
    number: int  # of the format that this version writes and reads
    name: str  # as errors call it
    remedy: str  # what to do if the bytes cannot be read


SNAPSHOT = Format(b"OUZELSNP", 2, "snapshot", _FROM_SNAPSHOT)
PROGRAM = Format(b"OUZELPRG", 2, "program", _FROM_SNAPSHOT)
MANIFEST = Format(b"OUZELBKT", 2, "state of a stream", _FROM_CHECKPOINT)
LOG_RECORD = Format(b"OUZELSTP", 2, "log record of a stream", _FROM_CHECKPOINT)
SIGNATURE = Format(b"OUZELTRM", 2, "checkpoint", _FROM_CHECKPOINT)
TOTALS = Format(b"OUZELTOT", 2, "total of a stream", _FROM_CHECKPOINT)
TOTALS_CHUNK = Format(b"OUZELTOP", 2, "part of a total of a stream", _FROM_CHECKPOINT)
TABLES = Format(b"OUZELTAB", 1, "table of the parser", "run `python -m ouzel.lang.tables`")

_FORMATS = {
    one.magic: one for one in (SNAPSHOT, PROGRAM, MANIFEST, LOG_RECORD, SIGNATURE, TOTALS, TOTALS_CHUNK, TABLES)
}


def seal(form: Format, *chunks: Any) -> bytes:
    """Join the chunks of a body and add the envelope.

    >>> bytes(unseal(PROGRAM, seal(PROGRAM, b"a ", b"body")))
    b'a body'
    """
    length = sum(map(len, chunks))
    head = form.magic + form.number.to_bytes(4, "little") + length.to_bytes(8, "little")
    return b"".join([head, _checksum(head, *chunks), *chunks])


def unseal(form: Format, blob: Any) -> memoryview:
    """Verify the envelope and return the body. Raises StateError if the bytes are damaged or of another kind."""
    if not isinstance(blob, bytes | bytearray | memoryview):
        raise StateError(f"a {form.name} must be bytes, got a {type(blob).__name__}")
    view = memoryview(blob)
    if view.ndim != 1 or view.itemsize != 1 or not view.c_contiguous:
        view = memoryview(view.tobytes())
    body = view[_HEAD_BYTES:]
    if len(view) < _HEAD_BYTES or _checksum(view[:_CHECKSUM_AT], body) != view[_CHECKSUM_AT:_HEAD_BYTES]:
        raise StateError(f"{_damage(form, view)}; {form.remedy}")
    magic = bytes(view[:_MAGIC_BYTES])
    if magic != form.magic:
        found = _FORMATS.get(magic)
        what = "something else of a newer Ouzel" if found is None else f"a {found.name}"
        raise StateError(f"this is not a {form.name} but {what}")
    number = int.from_bytes(view[_FORMAT_AT:_LENGTH_AT], "little")
    if number != form.number:
        age, advice = ("a newer", "upgrade Ouzel here") if number > form.number else ("an older", form.remedy)
        raise StateError(
            f"this {form.name} was written by {age} Ouzel (format {number}, this one reads {form.number}); {advice}"
        )
    return body


def mark_of(sealed: bytes) -> str:
    """The checksum of sealed bytes, by which other stored bytes refer to them."""
    return sealed[_CHECKSUM_AT:_HEAD_BYTES].hex()


@contextmanager
def decoding(form: Format) -> Iterator[None]:
    """A context for decoding. A body that this version cannot read raises a StateError."""
    try:
        yield
    except StateError:
        raise
    except Exception as error:
        why = str(error) if isinstance(error, ValueError) and str(error) else f"{type(error).__name__} {error}".strip()
        raise StateError(f"this {form.name} cannot be read by this version of Ouzel: {why}; {form.remedy}") from error


def _checksum(*chunks: Any) -> bytes:
    # The fastest strong hash of the standard library on processors with SHA instructions, which servers have.
    running = sha256(usedforsecurity=False)
    for chunk in chunks:
        running.update(chunk)
    return running.digest()[:_CHECKSUM_BYTES]


def _damage(form: Format, view: memoryview) -> str:
    if not len(view):
        return f"this {form.name} is empty"
    if bytes(view[:_MAGIC_BYTES]) != form.magic[: len(view)]:
        return f"this is not a {form.name} of Ouzel, or its beginning is damaged"
    length = _HEAD_BYTES + int.from_bytes(view[_LENGTH_AT:_CHECKSUM_AT], "little")
    if len(view) < _HEAD_BYTES or len(view) < length:
        return f"this {form.name} is damaged: only its first {len(view):,} bytes are there"
    return f"this {form.name} is damaged: its checksum does not match its bytes"
