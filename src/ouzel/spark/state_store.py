"""The stored state of a bucket: a snapshot of its session, and a log of later input.

A log record has the watermark and the payloads of one call. Applying the same records again gives the same state, so
each micro-batch writes only its own record. When the log is as large as the last snapshot, a new snapshot replaces it.
On average this doubles the bytes written. The checksum of a record covers the checksum of the record before it, so
checksums form a chain. By this chain, a worker that has cached the session of an earlier record can continue from
there, and a chunk that belongs elsewhere is refused.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from ouzel.errors import StateError
from ouzel.sealing import LOG_RECORD, MANIFEST, decoding, mark_of, seal, unseal
from ouzel.spark.payloads import from_payload

Held = TypeVar("Held", bound="BucketSession")

# Below this size of the log a snapshot is not worth writing.
LOG_BYTES_MIN = 1 << 20
# A restore replays at most this many records.
LOG_RECORDS_MAX = 64
# Workers take turns; one that is this many records behind can still catch up without reading the snapshot.
LOG_RECORDS_KEPT = 8
# Sessions that a worker keeps between its calls.
SESSION_CACHE_BYTES = 256 << 20
# A value in Spark's state store must stay far below 2 GB.
CHUNK_BYTES_MAX = 32 * 1024 * 1024


class Store(Protocol):
    """The place where Spark stores a bucket: values by name, and chunks by number."""

    def get(self, name: str) -> bytes | None:
        """The value of a name; None if there is none."""

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""

    def get_chunk(self, number: int) -> bytes | None:
        """A chunk; None if there is none."""

    def put_chunk(self, number: int, value: bytes) -> None:
        """Set a chunk."""

    def remove_chunk(self, number: int) -> None:
        """Remove a chunk."""


class BucketSession(Protocol):
    """The session of a bucket: of queries, or of a set of queries."""

    @property
    def next_deadline(self) -> int | None:
        """The first tick at which rows are due without a further event; None if there is none."""

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        """Move time to the watermark and return the rows that this completes."""

    def push(self, table: pa.Table) -> None:
        """Add the events of a payload."""

    def take_late(self) -> Any:
        """The late events since the last call."""

    def snapshot(self, *, with_program: bool = True) -> bytes:
        """The whole state."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The input of one call of a bucket: the watermark, and new events."""

    watermark: int | None
    payloads: Sequence[bytes]

    @property
    def size(self) -> int:
        """The bytes of the payloads."""
        return sum(map(len, self.payloads))

    def apply(self, session: BucketSession) -> dict[Any, pa.Table]:
        """Let a session process the record. Time is moved first, because it decides which of the new events are
        late.
        """
        answer = {} if self.watermark is None else session.advance(self.watermark)
        for payload in self.payloads:
            with decoding(LOG_RECORD):
                table = from_payload(payload)
            session.push(table)
        return answer

    def dump(self, before: str) -> bytes:
        """The record as bytes. `before` is the checksum of the record before it."""
        header = {"before": before, "watermark": self.watermark, "payloads": list(map(len, self.payloads))}
        text = json.dumps(header).encode("utf-8")
        return seal(LOG_RECORD, len(text).to_bytes(4, "little"), text, *self.payloads)

    @classmethod
    def load(cls, blob: bytes) -> LogRecord:
        """The record from the bytes of `dump`. Raises StateError if they are damaged or from another version."""
        body = unseal(LOG_RECORD, blob)
        with decoding(LOG_RECORD):
            at = 4 + int.from_bytes(body[:4], "little")
            header = json.loads(bytes(body[4:at]))
            payloads = []
            for length in header["payloads"]:
                payloads.append(bytes(body[at : at + length]))
                at += length
            return cls(header["watermark"], payloads)


@dataclass(slots=True)
class Manifest:
    """What is stored of a bucket, and where. It is read first, and written with every record."""

    signature: str  # the digest of the signature that the state was written for
    chain: list[str]  # checksums of records first_record … last_record
    first_record: int = 0
    snapshot_at: int = 0  # the record after which the snapshot was taken; 0: none, the session was new
    snapshot_mark: str = ""
    snapshot_chunks: int = 0
    snapshot_bytes: int = 0
    log_bytes: int = 0  # of the records after the snapshot
    timer_ms: int | None = None
    matches: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # queries that have stopped here and were reported

    @property
    def last_record(self) -> int:
        """The number of the last record, which is also the number of records so far."""
        return self.first_record + len(self.chain) - 1

    @property
    def stored_bytes(self) -> int:
        """The approximate number of stored bytes."""
        return self.snapshot_bytes + self.log_bytes

    def dump(self) -> bytes:
        """The manifest as bytes."""
        return seal(MANIFEST, json.dumps(asdict(self)).encode("utf-8"))

    @classmethod
    def load(cls, blob: bytes) -> Manifest:
        """The manifest from the bytes of `dump`. Raises StateError if they are damaged or from another version."""
        body = unseal(MANIFEST, blob)
        with decoding(MANIFEST):
            return cls(**json.loads(bytes(body)))


# ── Restoring ──────────────────────────────────────────────────────────────────────────────────────


def restore(manifest: Manifest, store: Store, open_session: Callable[[bytes | None], Held]) -> Held:
    """The session after the last record. `open_session` makes a session from a snapshot; from None it makes a new
    one.
    """
    session = open_session(_snapshot(manifest, store))
    catch_up(session, manifest, store, manifest.snapshot_at)
    return session


def _snapshot(manifest: Manifest, store: Store) -> bytes | None:
    if not manifest.snapshot_chunks:
        return None
    chunks = [_chunk(store, -1 - number) for number in range(manifest.snapshot_chunks)]
    return _as_written(chunks[0] if len(chunks) == 1 else b"".join(chunks), manifest.snapshot_mark)


def catch_up(session: BucketSession, manifest: Manifest, store: Store, record: int) -> None:
    """Replay the records after `record`. Their rows and late events have been emitted before, so they are dropped."""
    for number in range(record + 1, manifest.last_record + 1):
        LogRecord.load(_as_written(_chunk(store, number), manifest.chain[number - manifest.first_record])).apply(
            session
        )
        session.take_late()


def _chunk(store: Store, number: int) -> bytes:
    chunk = store.get_chunk(number)
    if chunk is None:
        raise StateError(f"a part of the state of this stream is missing: its checkpoint is damaged; {MANIFEST.remedy}")
    return chunk


def _as_written(sealed: bytes, mark: str) -> bytes:
    """The contents of a chunk. Raises an error if it belongs to another record or bucket; its own checksum shows
    whether it is damaged.
    """
    if mark_of(sealed) != mark:
        raise StateError(
            f"a part of the state of this stream is not the one that belongs to it: its checkpoint is damaged; "
            f"{MANIFEST.remedy}"
        )
    return sealed


# ── Saving ─────────────────────────────────────────────────────────────────────────────────────────


def save(
    manifest: Manifest,
    store: Store,
    record: LogRecord,
    session: BucketSession,
    *,
    log_bytes_min: int = LOG_BYTES_MIN,
    never_replay: bool = False,
) -> None:
    """Store a record that the session has applied, or a snapshot if that is as cheap; and update the manifest.

    With `never_replay`, always a snapshot.
    """
    sealed = record.dump(manifest.chain[-1])
    manifest.chain.append(mark_of(sealed))
    can_be_stored = record.size <= CHUNK_BYTES_MAX and not never_replay
    few = manifest.last_record - manifest.snapshot_at < LOG_RECORDS_MAX and can_be_stored
    if few and manifest.log_bytes + record.size <= max(manifest.snapshot_bytes, log_bytes_min):
        store.put_chunk(manifest.last_record, sealed)
        manifest.log_bytes += record.size
        return
    for number in range(manifest.first_record + 1, manifest.last_record):
        # Remove all if this record is not stored: a worker that is behind could not replay past the gap.
        if number <= manifest.last_record - LOG_RECORDS_KEPT or not can_be_stored:
            store.remove_chunk(number)
    if can_be_stored:
        store.put_chunk(manifest.last_record, sealed)
        kept = max(manifest.first_record, manifest.last_record - LOG_RECORDS_KEPT)
    else:
        kept = manifest.last_record
    manifest.chain, manifest.first_record = manifest.chain[kept - manifest.first_record :], kept
    snapshot = session.snapshot(with_program=False)
    chunks = list(_chunks(snapshot))
    for number in range(len(chunks), manifest.snapshot_chunks):
        store.remove_chunk(-1 - number)
    for number, chunk in enumerate(chunks):
        store.put_chunk(-1 - number, chunk)
    manifest.snapshot_at, manifest.snapshot_mark = manifest.last_record, mark_of(snapshot)
    manifest.snapshot_chunks, manifest.snapshot_bytes, manifest.log_bytes = len(chunks), len(snapshot), 0


def _chunks(blob: bytes) -> Iterator[bytes]:
    for first in range(0, len(blob), CHUNK_BYTES_MAX):
        yield blob[first : first + CHUNK_BYTES_MAX]


# ── Sessions that a worker keeps ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Cached(Generic[Held]):
    mark: str
    session: Held
    bytes: int


class SessionCache(Generic[Held]):
    """Caches sessions in a worker between its calls. The least recently used session is evicted first.

    The checksum of its last record decides whether a session may be used. So a bucket may move to another worker, and a
    call may be tried twice.
    """

    def __init__(self) -> None:
        self._cached: OrderedDict[tuple[str, int], _Cached[Held]] = OrderedDict()

    def take(self, signature: str, name: int) -> tuple[str, Held] | None:
        """(checksum of its last record, session): removed from the cache, because a call that fails may damage it."""
        cached = self._cached.pop((signature, name), None)
        return None if cached is None else (cached.mark, cached.session)

    def put(self, manifest: Manifest, name: int, session: Held, bytes_max: int) -> None:
        """Add a session that has applied the last record of the manifest."""
        self._cached[manifest.signature, name] = _Cached(manifest.chain[-1], session, manifest.stored_bytes)
        while sum(cached.bytes for cached in self._cached.values()) > bytes_max:
            self._cached.popitem(last=False)
