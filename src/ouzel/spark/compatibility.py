"""The signature of a checkpoint: the queries, columns, delay and buckets for which its state was written.

It is stored with the state. If a stream restarts with another signature, the error says exactly what has changed.
Limits may change, and columns that no query uses may be added or removed. Stored programs are read by this version
before they are compared, so an upgrade that writes programs in another form is no change.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import Any

import pyarrow as pa

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.model import BoundAlgebra
from ouzel.bind.model import BoundQuery, Catalog, TimeWindow, encode
from ouzel.bind.row_patterns import BoundRowPattern
from ouzel.runtime.program import Program, load
from ouzel.sealing import SIGNATURE, decoding, seal, unseal

# Among the settings of a set of queries: the digest of the queries that it starts with.
SET_QUERIES = "queries"
_OR_ANEW = "or start from a new checkpoint"


@dataclass(frozen=True, slots=True)
class CheckpointSignature:
    """What must stay the same as long as a checkpoint is used."""

    buckets: int
    # By how many milliseconds the watermark follows, for each input.
    delays_ms: tuple[int, ...]
    # The compiled queries of each group.
    programs: tuple[bytes, ...] = ()
    # The settings of a set of queries, by the names that errors use; None: these are not a set.
    query_set: Mapping[str, Any] | None = None

    def dump(self) -> bytes:
        """The signature as bytes."""
        header = {
            "buckets": self.buckets,
            "delays_ms": self.delays_ms,
            "programs": list(map(len, self.programs)),
            "query_set": None if self.query_set is None else dict(self.query_set),
        }
        text = json.dumps(header).encode("utf-8")
        body = b"".join([len(text).to_bytes(4, "little"), text, *self.programs])
        return seal(SIGNATURE, zlib.compress(body))

    @classmethod
    def load(cls, blob: bytes) -> CheckpointSignature:
        """The signature from the bytes of `dump`. Raises StateError if they are damaged or from another version."""
        packed = unseal(SIGNATURE, blob)
        with decoding(SIGNATURE):
            body = zlib.decompress(packed)
            at = 4 + int.from_bytes(body[:4], "little")
            header = json.loads(body[4:at])
            programs = []
            for length in header["programs"]:
                programs.append(body[at : at + length])
                at += length
            return cls(header["buckets"], tuple(header["delays_ms"]), tuple(programs), header["query_set"])


@lru_cache(maxsize=16)
def digest_of(signature: bytes) -> str:
    """A digest that names a signature."""
    return sha256(signature).hexdigest()[:32]


def incompatibility(stored: bytes, current: bytes) -> str | None:
    """What has changed since the stored signature, and what to do; None if the stream may continue."""
    old, new = CheckpointSignature.load(stored), CheckpointSignature.load(current)
    if old.buckets != new.buckets:
        return (
            f"this checkpoint was written with buckets={old.buckets}, and the stream now asks for {new.buckets}; "
            f"set buckets={old.buckets}, {_OR_ANEW}"
        )
    if old.delays_ms != new.delays_ms:
        pair = [_as_asked(old.delays_ms), _as_asked(new.delays_ms)]
        before, now = map(_spoken, pair if pair[0] != pair[1] else (old.delays_ms, new.delays_ms))
        return (
            f"this checkpoint was written with a watermark {before} behind, and the stream now asks for {now}; "
            f"set the old delay, {_OR_ANEW}"
        )
    if old.query_set is not None and new.query_set is not None:
        return _changed_setting(old.query_set, new.query_set)
    if old.query_set is not None or new.query_set is not None:
        writer = "match" if old.query_set is None else "match_set"
        return f"this checkpoint was written by ouzel.spark.{writer}; use that, {_OR_ANEW}"
    programs, programs_now = ([load(program) for program in signature.programs] for signature in (old, new))
    names_before, names_now = map(_names, (programs, programs_now))
    if sorted(names_before) != sorted(names_now):
        return (
            f"this checkpoint was written by the queries {', '.join(names_before)}, and the stream now has "
            f"{', '.join(names_now)}; run the same queries, {_OR_ANEW}"
        )
    for one, other in zip(programs, programs_now, strict=False):
        changed = _changed_column(one, other) or _changed_query(one, other)
        if changed:
            return f"{changed}, {_OR_ANEW}"
    if names_before != names_now:
        return f"the queries of this checkpoint are grouped by other keys now; restore what wrote it, {_OR_ANEW}"
    return None


def _changed_setting(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    changed = next((name for name in new if old.get(name) != new[name]), None)
    if changed is None:
        return None
    if changed == SET_QUERIES:
        return (
            "the queries that the set begins with are not those that wrote this checkpoint; restore them and change "
            f"the set through changes=, {_OR_ANEW}"
        )
    return (
        f"this checkpoint was written for another {changed}: {old.get(changed)} then, {new[changed]} now; restore "
        f"that, {_OR_ANEW}"
    )


def _spoken(delays_ms: Sequence[int]) -> str:
    return " and ".join(f"{delay:,} ms" if delay % 1_000 else f"{delay // 1_000:,} s" for delay in delays_ms)


def _as_asked(delays_ms: Sequence[int]) -> list[int]:
    """The delays as users gave them. A watermark's delay is one millisecond longer than `max_delay`."""
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
                "drop it, or list the columns in RETURN and start from a new checkpoint"
            )
    if (old.layout.time, old.layout.type, old.layout.order) != (new.layout.time, new.layout.type, new.layout.order):
        return "time=, type= or order= name other columns than when this checkpoint was written; name the old ones"
    return None


def _same_moments(one: pa.DataType, other: pa.DataType) -> bool:
    """Whether two types are timestamps that differ only in their time zone."""
    both = pa.types.is_timestamp(one) and pa.types.is_timestamp(other)
    return both and one.unit == other.unit and (one.tz is None) == (other.tz is None)


def _changed_query(old: Program, new: Program) -> str | None:
    for before, now in zip(old.members, new.members, strict=False):
        if before.name != now.name or _essence(before) != _essence(now):
            return f"query '{now.name}' is not the one that wrote this checkpoint; go back to that one"
    same_model = (old.model and old.model.to_json()) == (new.model and new.model.to_json())
    if not same_model or old.rules_off != new.rules_off:
        return "model= is not the one that wrote this checkpoint; go back to it"
    if old.statistics.key_strategy is not new.statistics.key_strategy:
        return "hints= asks for another way than when this checkpoint was written; go back to that one"
    return None


def _essence(query: BoundQuery | BoundAlgebra | BoundRowPattern) -> Any:
    """A query without its text, and without the columns that it does not use."""
    if isinstance(query, BoundAlgebra):
        return AlgebraQuery(query.name, query.expression, query.params).encoded()
    if isinstance(query, BoundRowPattern):
        return encode(replace(query, text="", catalog=Catalog()))
    window = replace(query.window, written="") if isinstance(query.window, TimeWindow) else query.window
    return encode(replace(query, text="", catalog=Catalog(), window=window))
