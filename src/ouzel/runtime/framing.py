"""The frame around everything that is stored or sent: a magic word, a version, the length and a checksum."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from ouzel.errors import StateError


def seal(magic: bytes, version: int, body: bytes | Sequence[bytes]) -> bytes:
    """Frame a body with a magic word, a version, its length and a checksum."""
    chunks = [body] if isinstance(body, bytes) else list(body)
    checksum = 0
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    length = sum(map(len, chunks))
    head = magic + version.to_bytes(4, "little") + length.to_bytes(8, "little") + checksum.to_bytes(4, "little")
    return b"".join([head, *chunks])


def unseal(magic: bytes, version: int, blob: bytes | memoryview, what: str) -> memoryview:
    """Check the frame and give the body back."""
    view = memoryview(blob)
    head = len(magic) + 16
    if len(view) < head or bytes(view[: len(magic)]) != magic:
        raise StateError(f"this is not a {what} of Ouzel's")
    found = int.from_bytes(view[len(magic) : len(magic) + 4], "little")
    if found > version:
        raise StateError(
            f"this {what} was written by a newer Ouzel (format {found}, this one reads up to {version}); "
            "upgrade Ouzel where it is read"
        )
    length = int.from_bytes(view[len(magic) + 4 : len(magic) + 12], "little")
    checksum = int.from_bytes(view[len(magic) + 12 : head], "little")
    body = view[head:]
    if len(body) != length:
        raise StateError(f"this {what} is cut short or has text after its end: {len(body):,} of {length:,} bytes")
    if zlib.crc32(body) != checksum:
        raise StateError(f"this {what} is damaged: its checksum does not agree")
    return body
