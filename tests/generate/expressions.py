"""Random algebra expressions with random streams, small enough for the oracle and dense enough to give results."""

from __future__ import annotations

import random
from dataclasses import dataclass

from ouzel.algebra import Stream, step, stream
from tests.generate.cases import ALGEBRA_SCHEMA as SCHEMA
from tests.generate.cases import AlgebraCase
from tests.generate.events import COMPARISONS, random_events

KINDS = {"id": "int", "x": "int", "f": "float", "s": "text"}


@dataclass(frozen=True)
class _Typed:
    """A stream and the kinds of its attributes."""

    stream: Stream
    kinds: dict[str, str]


def random_expression(rng: random.Random, *, bounded: bool = False) -> AlgebraCase:
    """`bounded`: every next and fold has an upper bound on DUR, as streams need it."""
    made = _expression(rng, rng.choice([1, 1, 2, 2, 2, 3]), bounded)
    events = random_events(rng, rng.randint(6, 16), "AAAB", attributes=KINDS, others=0, steps=(0, 0, 1, 1, 2))
    rows = []
    for event in events:
        row = {**event.attributes, "begin": event.start - rng.choice([0, 0, 1, 2])}
        rows.append({name: row[name] for name in SCHEMA.names})
    return AlgebraCase(made.stream, rows)


def _base(rng: random.Random) -> _Typed:
    start = "begin" if rng.random() < 0.3 else None
    kinds = dict(KINDS) if start else {**KINDS, "begin": "int"}
    kind = rng.choice(["A", "A", "A", "A", "B", None, None])
    if kind is None:
        kinds["type"] = "text"
    return _Typed(stream(kind, start=start), kinds)


def _expression(rng: random.Random, depth: int, bounded: bool) -> _Typed:
    if depth == 0:
        return _unary(rng, _base(rng), rng.choice([0, 0, 0, 0, 1, 2]))
    left = _expression(rng, depth - 1, bounded)
    choice = rng.random()
    if choice < 0.15:
        return _unary(rng, _union(rng, left, bounded, depth), rng.choice([0, 1]))
    # Now and then the right operand is more than one event, which takes resubscription.
    kind = rng.random()
    if kind < 0.15:
        right = _union_of_right(rng, bounded)
    else:
        right = _expression(rng, depth - 1 if kind < 0.4 else 0, bounded)
    made = _next(rng, left, right, bounded) if choice < 0.6 else _fold(rng, left, right, bounded)
    return _unary(rng, made, rng.choice([0, 0, 0, 0, 1, 2]))


def _union(rng: random.Random, left: _Typed, bounded: bool, depth: int) -> _Typed:
    if rng.random() < 0.5:
        # Two selections of one stream, whose common events are one.
        return _Typed(
            left.stream.select(_condition(rng, left.kinds)).union(left.stream.select(_condition(rng, left.kinds))),
            left.kinds,
        )
    right = _expression(rng, depth - 1, bounded)
    shared = [name for name, kind in left.kinds.items() if right.kinds.get(name) == kind]
    if not shared:
        return left
    kinds = {name: left.kinds[name] for name in shared}
    return _Typed(left.stream.project(shared).union(right.stream.project(list(reversed(shared)))), kinds)


def _union_of_right(rng: random.Random, bounded: bool) -> _Typed:
    """Streams of the same rows, as points and lasting, as they are and changed, alone and in pairs: many of their
    events have the same sources."""
    kind = rng.choice(["A", "A", None])
    names = list(KINDS)
    sides = []
    for _ in range(rng.choice([2, 2, 3])):
        side = _Typed(stream(kind, start=rng.choice([None, "begin"])).project(names), dict(KINDS))
        choice = rng.random()
        if choice < 0.3:
            side = _unary(rng, side, 1)
        elif choice < 0.5:
            side = _next(rng, side, side, bounded)
        elif choice < 0.6:
            side = _fold(rng, side, side, bounded)
        sides.append(side)
    shared = [name for name in names if all(side.kinds.get(name) == KINDS[name] for side in sides)]
    if not shared:
        return sides[0]
    united = sides[0].stream.project(shared)
    for side in sides[1:]:
        united = united.union(side.stream.project(shared))
    return _unary(rng, _Typed(united, {name: KINDS[name] for name in shared}), rng.choice([0, 0, 1]))


def _unary(rng: random.Random, given: _Typed, count: int) -> _Typed:
    made, kinds = given.stream, dict(given.kinds)
    for _ in range(count):
        choice = rng.random()
        if choice < 0.45:
            made = made.select(_condition(rng, kinds))
        elif choice < 0.65:
            name = rng.choice(list(kinds))
            fresh = rng.choice([n for n in ("p", "q", "r", "w") if n not in kinds] or [name])
            made = made.rename({name: fresh})
            kinds = {fresh if n == name else n: k for n, k in kinds.items()}
        elif choice < 0.85:
            name = rng.choice(["n", "m", *kinds])
            text, kind = _value(rng, kinds, {})
            made = made.extend(**{name: text})
            kinds[name] = kind
        elif choice < 0.9:
            made = made.alias("t")
            kinds = {f"t.{name}": kind for name, kind in kinds.items()}
        elif len(kinds) > 3:
            kept = rng.sample(list(kinds), len(kinds) - 1)
            made = made.project(kept)
            kinds = {name: kinds[name] for name in kept}
    return _Typed(made, kinds)


def _theta(rng: random.Random, joint: dict[str, str], before: dict[str, str], bounded: bool) -> str | None:
    parts = []
    if rng.random() < 0.4:
        parts.append(_condition(rng, joint, before))
    same = [name for name in before if joint.get(name) == before[name]]
    if same and rng.random() < 0.4:
        name = rng.choice(same)
        parts.append(f"{name} = {name}.last")
    if bounded or rng.random() < 0.3:
        parts.append(f"DUR <= {rng.choice([0, 1, *range(2, 10), *range(2, 10)])}")
    return " AND ".join(f"({part})" for part in parts) or None


def _next(rng: random.Random, left: _Typed, right: _Typed, bounded: bool) -> _Typed:
    joint = {**left.kinds, **right.kinds}
    theta = _theta(rng, joint, left.kinds, bounded)
    return _Typed(left.stream.next(right.stream, theta), joint)


def _fold(rng: random.Random, left: _Typed, right: _Typed, bounded: bool) -> _Typed:
    before = dict(left.kinds)
    first = {}
    if rng.random() < 0.5:
        name = rng.choice(["n", "m", "k"])
        if name not in before:
            text, kind = _value(rng, left.kinds, {}, numbers=True)
            first[name], before[name] = text, kind
    # A name that changes its kind from round to round would be refused.
    for name, kind in right.kinds.items():
        if before.get(name, kind) != kind:
            return _next(rng, left, right, bounded)
    joint = {**before, **right.kinds}
    theta = _theta(rng, joint, before, bounded)
    each = step()
    # What `.last` may read in every round: what the instance has before the first.
    for _ in range(rng.choice([0, 1, 1, 2])):
        if rng.random() < 0.5:
            each = each.select(_condition(rng, joint, before))
        else:
            name = rng.choice([n for n in before if joint[n] in ("int", "float")] or [None])
            if name is not None:
                other = rng.choice([n for n in joint if joint[n] == joint[name]])
                operator = rng.choice("+-*")
                old = f"{other}.last" if other in before else other
                each = each.extend(**{name: f"{name}.last {operator} {rng.choice([other, '1', old])}"})
    return _Typed(left.stream.fold(right.stream, theta, each, first), joint)


# ── Texts ──────────────────────────────────────────────────────────────────────────────────────────


def _operand(rng: random.Random, kind: str, kinds: dict[str, str], before: dict[str, str]) -> str:
    names = [name for name, found in kinds.items() if found == kind]
    names += [f"{name}.last" for name, found in before.items() if found == kind]
    if names and rng.random() < 0.75:
        return rng.choice(names)
    return {
        "int": str(rng.randint(0, 3)),
        "float": rng.choice(["0.5", "1.0", "1.5"]),
        "text": rng.choice(["'u'", "'v'"]),
    }[kind]


def _value(
    rng: random.Random, kinds: dict[str, str], before: dict[str, str], *, numbers: bool = False
) -> tuple[str, str]:
    kind = rng.choice(["int", "int", "float"] if numbers else ["int", "int", "float", "text"])
    if kind == "text":
        return _operand(rng, kind, kinds, before), kind
    if rng.random() < 0.2:
        return "DUR", "int"
    left, right = _operand(rng, kind, kinds, before), _operand(rng, kind, kinds, before)
    choice = rng.random()
    if choice < 0.2:
        return f"CASE WHEN {left} > {right} THEN {left} ELSE {right} END", kind
    if choice < 0.3:
        return f"coalesce({left}, {right})", kind
    return f"{left} {rng.choice('+-*')} {right}", kind


def _condition(rng: random.Random, kinds: dict[str, str], before: dict[str, str] | None = None) -> str:
    choice = rng.random()
    if choice < 0.15:
        return f"{_condition(rng, kinds, before)} OR {_condition(rng, kinds, before)}"
    if choice < 0.25:
        return f"({_condition(rng, kinds, before)}) AND ({_condition(rng, kinds, before)})"
    if choice < 0.3:
        return f"NOT ({_condition(rng, kinds, before)})"
    if choice < 0.4:
        return f"DUR {rng.choice(['<=', '>=', '<', '>', '='])} {rng.randint(0, 6)}"
    if choice < 0.45:
        return f"{rng.choice(list(kinds))} IS {rng.choice(['NULL', 'NOT NULL'])}"
    if choice < 0.5:
        names = [name for name, kind in kinds.items() if kind == "int"]
        if names:
            return f"{rng.choice(names)} {rng.choice(['IN (1, 2)', 'BETWEEN 1 AND 2', 'NOT IN (0, 3)'])}"
    kind = rng.choice(["int", "int", "float", "text"])
    left = _operand(rng, kind, kinds, before or {})
    right = _operand(rng, kind, kinds, before or {})
    if kind == "text" and left.startswith("'") and right.startswith("'"):
        right = "'u'"
    return f"{left} {rng.choice(COMPARISONS)} {right}"
