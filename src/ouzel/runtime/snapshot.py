"""State as bytes: a small JSON header, plain arrays and Arrow tables, with a checksum."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ouzel.errors import StateError
from ouzel.sealing import SNAPSHOT, decoding, seal, unseal

# Arrays start at multiples of this, so that they can be read in place.
_ALIGNMENT = 64
_OTHER_FORM = (
    "this snapshot is not readable by this version of Ouzel; restore it with the version that "
    "made it, or start from the beginning"
)


def check_layout(head: dict[str, Any], number: int) -> None:
    """Raise an error if stored state of an operator has another layout number. The number rises with every change to
    the layout.
    """
    if head.get("layout") != number:
        raise StateError(_OTHER_FORM)


class Writer:
    """Collects the parts of a snapshot. Each `add_…` returns a number with which `Reader` gets the part."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []
        self._chunks: list[Any] = []
        self._size = 0

    def add_array(self, array: np.ndarray) -> int:
        contiguous = np.ascontiguousarray(array)
        # An empty array has no bytes that could be viewed.
        data = contiguous.data.cast("B") if contiguous.size else memoryview(b"")
        return self._add({"dtype": contiguous.dtype.str, "shape": list(contiguous.shape)}, data)

    def add_table(self, table: pa.Table) -> int:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        return self._add({"table": True}, memoryview(sink.getvalue()))

    def add_bytes(self, data: bytes) -> int:
        return self._add({"bytes": True}, memoryview(data))

    def _add(self, part: dict[str, Any], data: memoryview) -> int:
        padding = -self._size % _ALIGNMENT
        if padding:
            self._chunks.append(b"\0" * padding)
        self._size += padding
        self._parts.append({**part, "at": self._size, "size": data.nbytes})
        self._chunks.append(data)
        self._size += data.nbytes
        return len(self._parts) - 1

    def finish(self, head: dict[str, Any]) -> bytes:
        """The bytes of the snapshot."""
        text = json.dumps({"head": head, "parts": self._parts}, separators=(",", ":")).encode("utf-8")
        return seal(SNAPSHOT, len(text).to_bytes(8, "little"), text, *self._chunks)


class Reader:
    """Reads a snapshot. Raises StateError if it is damaged, cut off or from another version."""

    def __init__(self, blob: bytes | memoryview) -> None:
        body = unseal(SNAPSHOT, blob)
        with decoding(SNAPSHOT):
            length = int.from_bytes(body[:8], "little")
            content = json.loads(bytes(body[8 : 8 + length]))
            self.head: dict[str, Any] = dict(content["head"])
            self._parts = content["parts"]
            self._data = body[8 + length :]

    def array(self, number: int) -> np.ndarray:
        """A writable copy of an array."""
        part = self._parts[number]
        flat = np.frombuffer(self._slice(part), dtype=np.dtype(part["dtype"]))
        return flat.reshape(part["shape"]).copy()

    def table(self, number: int) -> pa.Table:
        """A table that refers to the bytes of the snapshot without a copy."""
        with pa.ipc.open_stream(pa.py_buffer(self._slice(self._parts[number]))) as stream:
            return stream.read_all()

    def bytes(self, number: int) -> bytes:
        return bytes(self._slice(self._parts[number]))

    def arrays(self, numbers: Sequence[int]) -> list[np.ndarray]:
        return [self.array(number) for number in numbers]

    def arrays_like(self, numbers: Sequence[int], fresh: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Stored arrays that replace those of a new state. They must have the same types and dimensions, because
        kernels do not check this.
        """
        stored = self.arrays(numbers)
        forms = [[(array.dtype, array.ndim) for array in arrays] for arrays in (stored, fresh)]
        if forms[0] != forms[1]:
            raise StateError(_OTHER_FORM)
        return stored

    def _slice(self, part: dict[str, Any]) -> memoryview:
        return self._data[part["at"] : part["at"] + part["size"]]


def dump_arrays(state: Any, writer: Writer) -> list[Any]:
    """Store the arrays of a named tuple, and of named tuples in it, in order."""
    return [dump_arrays(one, writer) if isinstance(one, tuple) else writer.add_array(one) for one in state]


def load_arrays(like: Any, stored: Sequence[Any], reader: Reader) -> Any:
    """The named tuple that `dump_arrays` stored. Its arrays must have the types and dimensions of those in `like`."""
    if len(stored) != len(like):
        raise StateError(_OTHER_FORM)
    loaded = [
        load_arrays(one, number, reader) if isinstance(one, tuple) else reader.arrays_like([number], [one])[0]
        for one, number in zip(like, stored, strict=True)
    ]
    return type(like)(*loaded)
