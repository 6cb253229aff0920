"""The state of a bucket as it is stored: a snapshot of its session, and the steps that were taken since.

A step is the watermark and the payloads that came with it. A session that takes the same steps comes to the same state,
so only what came in has to be written with each micro-batch; a snapshot is written when the steps have grown as large
as the last one, which costs as much again on average. Each step is sealed together with the mark of the step before,
and the marks form a chain: by it a worker that has kept the session of an earlier step knows that it can go on from
there instead of from the snapshot, and a piece that is not the one that was written is refused.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import pyarrow as pa

from ouzel.errors import StateError
from ouzel.runtime.program import Program
from ouzel.runtime.session import Session
from ouzel.sealing import HEAD, STEP, decoding, mark_of, seal, unseal
from ouzel.spark.payloads import from_payload

Held = TypeVar("Held", bound="Stepped")

# Where steps together are smaller than this, a snapshot is not worth writing.
STEPS_BYTES_MIN = 1 << 20
# So many steps are taken again at most when a session is restored.
STEPS_MAX = 64
# Workers take turns; one that is so many steps behind can still catch up without reading the snapshot.
STEPS_KEPT = 8
# A value of Spark's must stay far below 2 GB.
PIECE_BYTES_MAX = 32 * 1024 * 1024


class Store(Protocol):
    """Where Spark keeps a bucket: values by name, and pieces by number."""

    def get(self, name: str) -> bytes | None:
        """The value of a name; None where there is none."""

    def put(self, name: str, value: bytes) -> None:
        """Set the value of a name."""

    def get_piece(self, number: int) -> bytes | None:
        """A piece; None where there is none."""

    def put_piece(self, number: int, value: bytes) -> None:
        """Set a piece."""

    def remove_piece(self, number: int) -> None:
        """Give a piece up."""


class Stepped(Protocol):
    """What a bucket holds: a session of queries, or one of a set of queries."""

    def advance(self, watermark: int) -> dict[Any, pa.Table]:
        """Time has moved on: give what that completes."""

    def push(self, table: pa.Table) -> None:
        """Take in what came."""

    def take_late(self) -> Any:
        """What was kept aside since the last call."""

    def snapshot(self, *, with_program: bool = True) -> bytes:
        """The whole state."""


@dataclass(frozen=True, slots=True)
class Movement:
    """What one step brought: how far time has moved, and new events."""

    watermark: int | None
    payloads: Sequence[bytes]

    @property
    def size(self) -> int:
        return sum(map(len, self.payloads))

    def apply(self, session: Stepped) -> dict[Any, pa.Table]:
        """Time runs first: what the watermark has passed is settled before the new events come, so that the session
        can judge which of them are late."""
        answer = {} if self.watermark is None else session.advance(self.watermark)
        for payload in self.payloads:
            with decoding(STEP):
                table = from_payload(payload)
            session.push(table)
        return answer

    def dump(self, before: str) -> bytes:
        """The step as bytes, whose mark continues the chain of `before`."""
        head = {"before": before, "watermark": self.watermark, "payloads": list(map(len, self.payloads))}
        text = json.dumps(head).encode("utf-8")
        return seal(STEP, len(text).to_bytes(4, "little"), text, *self.payloads)

    @classmethod
    def load(cls, blob: bytes) -> Movement:
        """What `dump` wrote; StateError where it is damaged or from another version."""
        body = unseal(STEP, blob)
        with decoding(STEP):
            at = 4 + int.from_bytes(body[:4], "little")
            head = json.loads(bytes(body[4:at]))
            payloads = []
            for length in head["payloads"]:
                payloads.append(bytes(body[at : at + length]))
                at += length
            return cls(head["watermark"], payloads)


@dataclass(slots=True)
class Head:
    """What is read first of a bucket, and written with every step."""

    terms: str  # the digest of the terms that the state was written for
    chain: list[str]  # marks of steps first … first + len(chain) - 1; the last is where the bucket stands
    first: int = 0
    snapshot_at: int = 0  # the step whose snapshot is stored; 0: none, the session was fresh
    snapshot_mark: str = ""
    snapshot_pieces: int = 0
    snapshot_bytes: int = 0
    steps_bytes: int = 0  # of the steps after the snapshot
    timer_ms: int | None = None
    matches: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)  # queries that have stopped here, which has been reported

    @property
    def step(self) -> int:
        """How many steps have been taken."""
        return self.first + len(self.chain) - 1

    @property
    def stored_bytes(self) -> int:
        """About how much is stored of what is open."""
        return self.snapshot_bytes + self.steps_bytes

    def dump(self) -> bytes:
        return seal(HEAD, json.dumps(asdict(self)).encode("utf-8"))

    @classmethod
    def load(cls, blob: bytes) -> Head:
        """What `dump` wrote; StateError where it is damaged or from another version."""
        body = unseal(HEAD, blob)
        with decoding(HEAD):
            return cls(**json.loads(bytes(body)))


# ── Restoring ──────────────────────────────────────────────────────────────────────────────────────


def restore(head: Head, store: Store, program: Program, *, keep_late: bool = False, isolates: bool = False) -> Session:
    """The session where the bucket stands, from its snapshot and the steps since."""
    blob = snapshot_of(head, store)
    session = Session(program, keep_late=keep_late) if blob is None else Session.restore(blob, program)
    session.isolates = isolates
    catch_up(session, head, store, head.snapshot_at)
    return session


def snapshot_of(head: Head, store: Store) -> bytes | None:
    """The stored snapshot; None where there is none yet."""
    if not head.snapshot_pieces:
        return None
    pieces = [_piece(store, -1 - number) for number in range(head.snapshot_pieces)]
    return _as_written(pieces[0] if len(pieces) == 1 else b"".join(pieces), head.snapshot_mark)


def catch_up(session: Stepped, head: Head, store: Store, step: int) -> None:
    """Take the steps after `step` again."""
    for number in range(step + 1, head.step + 1):
        Movement.load(_as_written(_piece(store, number), head.chain[number - head.first])).apply(session)
        session.take_late()


def _piece(store: Store, number: int) -> bytes:
    piece = store.get_piece(number)
    if piece is None:
        raise StateError(f"a part of the state of this stream is missing: its checkpoint is damaged; {HEAD.remedy}")
    return piece


def _as_written(sealed: bytes, mark: str) -> bytes:
    """Refuse a piece that another step or another bucket has written. Whether it is damaged its own seal says."""
    if mark_of(sealed) != mark:
        raise StateError(
            f"a part of the state of this stream is not the one that belongs to it: its checkpoint is damaged; "
            f"{HEAD.remedy}"
        )
    return sealed


# ── Saving ─────────────────────────────────────────────────────────────────────────────────────────


def save(
    head: Head,
    store: Store,
    movement: Movement,
    session: Stepped,
    *,
    steps_bytes_min: int = STEPS_BYTES_MIN,
    anew: bool = False,
) -> None:
    """Store a step that the session has just taken, or a snapshot where that is as cheap; `head` moves on.

    `anew`: the step must never be taken again, so a snapshot is stored and no step.
    """
    step = movement.dump(head.chain[-1])
    head.chain.append(mark_of(step))
    step_bytes = movement.size
    can_be_stored = step_bytes <= PIECE_BYTES_MAX and not anew
    few = head.step - head.snapshot_at < STEPS_MAX and can_be_stored
    if few and head.steps_bytes + step_bytes <= max(head.snapshot_bytes, steps_bytes_min):
        store.put_piece(head.step, step)
        head.steps_bytes += step_bytes
        return
    for number in range(head.first + 1, head.step):
        # All of them: a step that is itself not stored breaks the way of whoever is behind.
        if number <= head.step - STEPS_KEPT or not can_be_stored:
            store.remove_piece(number)
    if can_be_stored:
        store.put_piece(head.step, step)
        kept = max(head.first, head.step - STEPS_KEPT)
    else:
        kept = head.step
    head.chain, head.first = head.chain[kept - head.first :], kept
    snapshot = session.snapshot(with_program=False)
    pieces = list(_pieces(snapshot))
    for number in range(len(pieces), head.snapshot_pieces):
        store.remove_piece(-1 - number)
    for number, piece in enumerate(pieces):
        store.put_piece(-1 - number, piece)
    head.snapshot_at, head.snapshot_mark, head.snapshot_pieces = head.step, mark_of(snapshot), len(pieces)
    head.snapshot_bytes, head.steps_bytes = len(snapshot), 0


def _pieces(blob: bytes) -> Iterator[bytes]:
    for first in range(0, len(blob), PIECE_BYTES_MAX):
        yield blob[first : first + PIECE_BYTES_MAX]


# ── Sessions that a worker keeps ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class _Kept(Generic[Held]):
    mark: str
    session: Held
    bytes: int


class Keeper(Generic[Held]):
    """Sessions of a worker between its steps, the least recently used given up first.

    The mark of its last step alone decides whether one may be used, so it does not matter which worker gets which
    bucket, nor whether a step is tried twice.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[str, int], _Kept[Held]] = OrderedDict()

    def take(self, terms: str, name: int) -> tuple[str, Held] | None:
        """A session and the mark of its last step. It is not kept any longer: a step that fails may spoil it."""
        kept = self._kept.pop((terms, name), None)
        return None if kept is None else (kept.mark, kept.session)

    def keep(self, head: Head, name: int, session: Held) -> None:
        """Keep a session that stands where the head says."""
        self._kept[head.terms, name] = _Kept(head.chain[-1], session, head.stored_bytes)
        while sum(kept.bytes for kept in self._kept.values()) > self._bytes_max:
            self._kept.popitem(last=False)
