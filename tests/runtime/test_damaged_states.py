"""A damaged snapshot is a StateError before anything of it is read; a whole one restores exactly what was stored.

The number of damaged states comes from OUZEL_DAMAGED_STATES; `make test-long` asks for 50,000.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import ouzel
from ouzel import sealing
from ouzel.runtime import program, snapshot
from ouzel.runtime.session import Session
from ouzel.runtime.snapshot import Reader, Writer
from ouzel.sealing import PROGRAM, SNAPSHOT, Format, seal, unseal
from tests.runtime.damage import MAKERS, damaged, events, snapshot_of

pytestmark = pytest.mark.compiled

STATES = int(os.environ.get("OUZEL_DAMAGED_STATES", "4000"))


def restore(kind: str, blob: Any) -> Any:
    return (ouzel.QuerySet if kind == "query set" else ouzel.Engine).restore(blob)


@pytest.fixture(scope="module")
def stored() -> dict[tuple[str, int], bytes]:
    return {(kind, seed): snapshot_of(kind, seed) for kind in MAKERS for seed in (1, 2)}


# ── Whole states ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", MAKERS)
def test_a_restored_state_goes_on_as_the_one_that_was_stored(kind: str) -> None:
    rows = 0
    for seed in range(3):
        chance = random.Random(f"{kind} {seed}")
        running, again = MAKERS[kind](), None
        table, at = events(seed, 90), 0
        while at < table.num_rows:
            part = table.slice(at, chance.choice([1, 7, 20]))
            at += part.num_rows
            found = running.push(part)
            rows += sum(answer.num_rows for answer in found.values())
            if again is not None:
                assert listed(again.push(part)) == listed(found)
            if chance.random() < 0.4:
                again = restore(kind, running.snapshot())
        again = again or restore(kind, running.snapshot())
        found = running.finish()
        assert listed(again.finish()) == listed(found)
        assert again.late == running.late
        rows += sum(answer.num_rows for answer in found.values())
    assert rows


def listed(answers: dict[Any, pa.Table]) -> dict[Any, list[str]]:
    """The rows of one push, in any order: the algebra does not promise one."""
    return {name: sorted(map(repr, answer.to_pylist())) for name, answer in answers.items()}


# ── Damaged bytes ──────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def nothing_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    def decoding(form: Format) -> Iterator[None]:
        raise AssertionError(f"a damaged {form.name} was read")

    for module in (snapshot, program):
        monkeypatch.setattr(module, "decoding", decoding)


def test_damage_is_found_before_anything_is_read(
    stored: dict[tuple[str, int], bytes], nothing_is_decoded: None
) -> None:
    chance = random.Random(19)
    names = list(stored)
    for number in range(STATES):
        kind, seed = names[number % len(names)]
        changed = damaged(chance, stored[kind, seed], stored[chance.choice(names)])
        with pytest.raises(ouzel.StateError, match=r"damaged|empty"):
            restore(kind, changed)


def test_every_single_bit_is_sealed(nothing_is_decoded: None) -> None:
    blob = seal(SNAPSHOT, b"a body")
    for place in range(8 * len(blob)):
        changed = bytearray(blob)
        changed[place // 8] ^= 1 << place % 8
        with pytest.raises(ouzel.StateError, match="damaged"):
            unseal(SNAPSHOT, bytes(changed))


# ── States that are whole and something else ───────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", ["sequence", "query set"])
@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "must be bytes, got a NoneType"),
        ("text", "must be bytes, got a str"),
        (7, "must be bytes, got a int"),
        (b"", "is empty"),
        (b"OUZEL", "only its first 5 bytes"),
        (b"PAR1" * 20, "not a snapshot of Ouzel"),
        (seal(PROGRAM, b"{}"), "not a snapshot but a program"),
        (seal(Format(b"OUZELNEW", 1, "", ""), b"{}"), "something else of a newer Ouzel"),
        (seal(Format(SNAPSHOT.magic, 3, "", ""), b"{}"), r"newer Ouzel \(format 3, this one reads 2\); upgrade"),
        (seal(Format(SNAPSHOT.magic, 0, "", ""), b"{}"), "older Ouzel"),
        (seal(SNAPSHOT), "cannot be read"),
        (seal(SNAPSHOT, b"\xff" * 200), "cannot be read"),
        (seal(SNAPSHOT, (90_000).to_bytes(8, "little"), b"[" * 90_000), "cannot be read.*RecursionError"),
        (seal(SNAPSHOT, (8).to_bytes(8, "little"), b'{"\xff\xfe"}'), "cannot be read"),
        (Writer().finish({}), "this snapshot is not "),
        (Writer().finish({"operators": [], "kind": "query set"}), "cannot be read|not of an Engine"),
    ],
)
def test_what_is_not_a_snapshot_of_this_kind_is_one_clear_error(kind: str, state: Any, said: str) -> None:
    with pytest.raises(ouzel.StateError, match=said):
        restore(kind, state)


def test_buffers_of_any_shape_are_taken(stored: dict[tuple[str, int], bytes]) -> None:
    blob = stored["sequence", 1]
    for state in (bytearray(blob), memoryview(blob), memoryview(blob * 2)[: len(blob)]):
        restore("sequence", state)
    every_second = bytes(byte for pair in zip(blob, blob, strict=True) for byte in pair)
    restore("sequence", memoryview(every_second)[::2])


def test_a_snapshot_of_another_query_is_refused(stored: dict[tuple[str, int], bytes]) -> None:
    """As on Spark, where the program is stored apart from the state."""
    session = Session
    for kind in MAKERS:
        if kind in ("query set", "sequence", "composition", "several", "shared"):
            continue
        program_of_another = session.restore(stored["several", 1]).program
        with pytest.raises(ouzel.StateError):
            session.restore(stored[kind, 1], program_of_another)


def test_heads_of_other_types_are_refused_or_harmless(stored: dict[tuple[str, int], bytes]) -> None:
    """Sealed again after a value of the head was replaced by one of another type: nothing raw may come out."""
    chance = random.Random(20)
    refused = 0
    names = list(stored)
    for number in range(STATES // 10):
        kind, seed = names[number % len(names)]
        body = unseal(SNAPSHOT, stored[kind, seed])
        length = int.from_bytes(body[:8], "little")
        content = json.loads(bytes(body[8 : 8 + length]))
        replace_somewhere(chance, content)
        text = json.dumps(content).encode()
        try:
            restore(kind, seal(SNAPSHOT, len(text).to_bytes(8, "little"), text, body[8 + length :]))
        except ouzel.StateError:
            refused += 1
    assert refused > STATES // 20


def replace_somewhere(chance: random.Random, content: Any) -> None:
    """Replace a value in nested data by one of another type; numbers stay, since kernels trust those."""
    while True:
        place = chance.choice(list(content) if isinstance(content, dict) else range(len(content)))
        inner = content[place]
        if isinstance(inner, dict | list) and inner and chance.random() < 0.8:
            content = inner
            continue
        content[place] = chance.choice([value for value in (None, "x", [], {}, [[]]) if type(value) is not type(inner)])
        return


def test_the_parts_of_a_snapshot_are_checked_where_they_are_decoded() -> None:
    writer = Writer()
    number = writer.add_bytes(b"no table")
    reader = Reader(writer.finish({}))
    with pytest.raises(ouzel.StateError, match="cannot be read"), sealing.decoding(SNAPSHOT):
        reader.table(number)
