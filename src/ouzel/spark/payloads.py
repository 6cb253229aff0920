"""Tables as binary values, so that Spark moves a few large rows instead of many small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

PACKED_NUMBER = "query"
PACKED_PAYLOAD = "payload"
PACKED = f"{PACKED_NUMBER} INT, {PACKED_PAYLOAD} BINARY"

# A value in Spark must stay far below 2 GB, and two or three copies of a payload exist while it is passed on.
PAYLOAD_BYTES_MAX = 32 * 1024 * 1024


def to_payload(table: pa.Table) -> bytes:
    """The table as Arrow IPC bytes.

    >>> from_payload(to_payload(pa.table({"x": [1, 2]}))).to_pydict()
    {'x': [1, 2]}
    """
    sink = pa.BufferOutputStream()
    _write(table, sink)
    return bytes(sink.getvalue())


def _write(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())


def from_payload(payload: bytes | memoryview) -> pa.Table:
    """The table that `to_payload` packed; its columns are views of the payload."""
    return pa.ipc.open_stream(pa.py_buffer(payload)).read_all()


def payloads_of(table: pa.Table, bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[bytes]:
    """The table as one payload, or as several of about `bytes_max` if it is larger."""
    pieces = max(1, -(-table.nbytes // bytes_max))
    rows_max = max(1, -(-table.num_rows // pieces))
    for first_row in range(0, table.num_rows, rows_max):
        yield to_payload(table.slice(first_row, rows_max))


def packed_batch(numbers: Iterable[int], payloads: Sequence[bytes]) -> pa.RecordBatch:
    """Rows of (number, payload)."""
    return pa.record_batch(
        [pa.array(numbers, pa.int32()), pa.array(payloads, pa.binary())], names=[PACKED_NUMBER, PACKED_PAYLOAD]
    )


def packets(numbers: Sequence[int], tables: Iterable[pa.Table]) -> pa.RecordBatch:
    """Tables as payloads with a number each, without a copy of their bytes.

    >>> packets([7], [pa.table({"x": [1, 2]})]).column("query").to_pylist()
    [7]
    """
    sink = pa.BufferOutputStream()
    offsets = [0]
    for table in tables:
        _write(table, sink)
        offsets.append(sink.tell())
    buffers = [None, pa.py_buffer(np.array(offsets, np.int32)), sink.getvalue()]
    payloads = pa.Array.from_buffers(pa.binary(), len(numbers), buffers)
    return pa.record_batch([pa.array(numbers, pa.int32()), payloads], names=[PACKED_NUMBER, PACKED_PAYLOAD])


def gather(batches: Iterable[pa.RecordBatch], bytes_max: int = PAYLOAD_BYTES_MAX) -> Iterator[pa.Table]:
    """Tables of about `bytes_max` from the many small batches that Spark passes."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= bytes_max:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def split_by(table: pa.Table, bucket_column: str) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket in their order, without the bucket column.

    >>> table = pa.table({"bucket": pa.array([1, 0, 1], pa.int32()), "x": [1, 2, 3]})
    >>> [(bucket, rows["x"].to_pylist()) for bucket, rows in split_by(table, "bucket")]
    [(0, [2]), (1, [1, 3])]
    """
    buckets = table[bucket_column].to_numpy()
    rows = table.drop_columns([bucket_column])
    bucket_min, bucket_max = (buckets.min(), buckets.max()) if len(buckets) else (0, 0)
    if bucket_min == bucket_max:
        if len(buckets):
            yield int(bucket_min), rows
        return
    # numpy sorts 16-bit integers by radix, several times faster than wider ones.
    order = np.argsort(buckets.astype(np.uint16) if bucket_max < 1 << 16 else buckets, kind="stable")
    ordered = buckets[order]
    firsts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    ends = np.concatenate((firsts[1:], [len(order)]))
    for first, end in zip(firsts.tolist(), ends.tolist(), strict=True):
        yield int(ordered[first]), pc.take(rows, pa.array(order[first:end]))
