"""The terms of a checkpoint: the queries, columns, delay and buckets that its state was written for.

They are stored with the state, so that a stream that comes back with others is refused with what exactly has changed.
Limits may be raised or lowered, and columns that no query uses may come and go. What was stored is read as this version
reads it before it is compared, so that an upgrade that writes programs in another way is no change.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ouzel.algebra.model import BoundAlgebra
from ouzel.algebra.query import AlgebraQuery
from ouzel.bind.codec import encode
from ouzel.bind.model import BoundQuery, Catalog, TimeWindow
from ouzel.runtime.program import Program, load
from ouzel.sealing import TERMS, decoding, seal, unseal


@dataclass(frozen=True, slots=True)
class Terms:
    """What must stay the same over the life of a checkpoint."""

    buckets: int
    # By how many milliseconds the watermark stays behind, for each input.
    delays_ms: tuple[int, ...]
    # The compiled queries of each share.
    programs: tuple[bytes, ...]

    def dump(self) -> bytes:
        """The terms as bytes."""
        head = {"buckets": self.buckets, "delays_ms": self.delays_ms, "programs": list(map(len, self.programs))}
        text = json.dumps(head).encode("utf-8")
        body = b"".join([len(text).to_bytes(4, "little"), text, *self.programs])
        return seal(TERMS, zlib.compress(body))

    @classmethod
    def load(cls, blob: bytes) -> Terms:
        """What `dump` wrote; StateError where it is damaged or from another version."""
        packed = unseal(TERMS, blob)
        with decoding(TERMS):
            body = zlib.decompress(packed)
            at = 4 + int.from_bytes(body[:4], "little")
            head = json.loads(body[4:at])
            programs = []
            for length in head["programs"]:
                programs.append(body[at : at + length])
                at += length
            return cls(head["buckets"], tuple(head["delays_ms"]), tuple(programs))


def disagreement(stored: bytes, current: bytes) -> str | None:
    """What of the stored terms is not so any more and what to do; None where the stream may go on."""
    old, new = Terms.load(stored), Terms.load(current)
    or_anew = "or start from a new checkpoint"
    if old.buckets != new.buckets:
        return (
            f"this checkpoint was written with buckets={old.buckets}, and the stream now asks for {new.buckets}; "
            f"go on with buckets={old.buckets}, {or_anew}"
        )
    if old.delays_ms != new.delays_ms:
        pair = [_as_asked(old.delays_ms), _as_asked(new.delays_ms)]
        before, now = map(_spoken, pair if pair[0] != pair[1] else (old.delays_ms, new.delays_ms))
        return (
            f"this checkpoint was written with a watermark {before} behind, and the stream now asks for {now}; "
            f"go on with the old delay, {or_anew}"
        )
    programs, programs_now = ([load(program) for program in terms.programs] for terms in (old, new))
    names_before, names_now = map(_names, (programs, programs_now))
    if sorted(names_before) != sorted(names_now):
        return (
            f"this checkpoint was written by the queries {', '.join(names_before)}, and the stream now has "
            f"{', '.join(names_now)}; go on with the same queries, {or_anew}"
        )
    for one, other in zip(programs, programs_now, strict=False):
        changed = _changed_column(one, other) or _changed_query(one, other)
        if changed:
            return f"{changed}, {or_anew}"
    if names_before != names_now:
        return f"the queries of this checkpoint are grouped by other keys now; go back to what wrote it, {or_anew}"
    return None


def _spoken(delays_ms: Sequence[int]) -> str:
    return " and ".join(f"{delay:,} ms" if delay % 1_000 else f"{delay // 1_000:,} s" for delay in delays_ms)


def _as_asked(delays_ms: Sequence[int]) -> list[int]:
    """The delays as users have given them: a watermark follows `max_delay` by one millisecond more."""
    return [delay - 1 if delay % 1_000 == 1 else delay for delay in delays_ms]


def _names(programs: Sequence[Program]) -> list[str]:
    return [query.name for program in programs for query in program.members]


def _changed_column(old: Program, new: Program) -> str | None:
    before, now = old.layout.schema, new.layout.schema
    for field in before:
        if field.name not in now.names:
            return f"the column '{field.name}', which the queries of this checkpoint use, is gone; bring it back"
        other = now.field(field.name).type
        if other != field.type and not _same_moments(field.type, other):
            return (
                f"the column '{field.name}' was of type {field.type} when this checkpoint was written, and is {other} "
                "now; cast it back"
            )
    for field in now:
        if field.name not in before.names:
            return (
                f"the column '{field.name}' is new, and a query of this checkpoint shows all columns; "
                "drop it, or name what is to be shown in RETURN and start afresh"
            )
    if (old.layout.time, old.layout.type, old.layout.order) != (new.layout.time, new.layout.type, new.layout.order):
        return "time=, type= or order= name other columns than when this checkpoint was written; name the old ones"
    return None


def _same_moments(one: pa.DataType, other: pa.DataType) -> bool:
    """Timestamps that differ only in the zone they are shown in."""
    both = pa.types.is_timestamp(one) and pa.types.is_timestamp(other)
    return both and one.unit == other.unit and (one.tz is None) == (other.tz is None)


def _changed_query(old: Program, new: Program) -> str | None:
    for before, now in zip(old.members, new.members, strict=False):
        if before.name != now.name or _essence(before) != _essence(now):
            return f"query '{now.name}' is not the one that wrote this checkpoint; go back to that one"
    same_model = (old.model and old.model.to_json()) == (new.model and new.model.to_json())
    if not same_model or old.rules_off != new.rules_off:
        return "model= or rules_off= are not those that wrote this checkpoint; go back to them"
    return None


def _essence(query: BoundQuery | BoundAlgebra) -> Any:
    """A query without how it was written and without the columns that it does not use."""
    if isinstance(query, BoundAlgebra):
        return AlgebraQuery(query.name, query.expression, query.params).encoded()
    window = replace(query.window, written="") if isinstance(query.window, TimeWindow) else query.window
    return encode(replace(query, text="", catalog=Catalog(), window=window))
