"""Random queries with THRESHOLD, random models and random events, small enough to enumerate every path."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from ouzel.loss import Exponential, Gamma, Gap, Histogram, LogNormal, LossModel, Uniform
from tests.generate.cases import IncompleteCase
from tests.generate.events import COMPARISONS, random_events
from tests.oracle.events import Event

READERS = ("shelf", "counter", "exit")


def random_incomplete(rng: random.Random) -> IncompleteCase:
    """The same generator state gives the same case.

    >>> random_incomplete(random.Random(1)) == random_incomplete(random.Random(1))
    True
    """
    while True:
        kinds = [rng.random() < 0.3 for _ in range(rng.choice((1, 2, 2, 3, 3, 4)))] + [False]
        kinds += [True] * rng.choice((0, 0, 0, 0, 0, 0, 1, 2))
        if kinds.count(False) <= 4:
            break
    names = "abcdefg"[: len(kinds)]
    untyped = rng.random() < 0.5
    text = _query(rng, names, kinds, untyped)
    return IncompleteCase(text, _events(rng), _model(rng, names, kinds))


def _query(rng: random.Random, names: str, kinds: list[bool], untyped: bool) -> str:
    positives = [name for name, negated in zip(names, kinds, strict=True) if not negated]
    last = positives[-1]
    conditions = []
    parts = []
    for name, negated in zip(names, kinds, strict=True):
        # Early readers are likelier, so that a stream of few of them still matches.
        reader = rng.choice(("shelf", "shelf", "counter", "exit"))
        if untyped:
            parts.append(f"!{name}" if negated else name)
            other = rng.choice(READERS)
            conditions.append(
                rng.choice(
                    (
                        f"{name}.reader = '{reader}'",
                        f"{name}.reader = '{reader}'",
                        f"{name}.reader IN ('{reader}', '{other}')",
                        f"({name}.reader = '{reader}' OR {name}.reader = '{other}')",
                    )
                )
            )
        else:
            parts.append(f"!({reader} {name})" if negated else f"{reader} {name}")
    roll = rng.random()
    if roll < 0.35:
        conditions.append("[id]")
    elif roll < 0.6:
        conditions += [f"{name}.id[{last}.id] = {last}.id" for name in positives[:-1]]
        conditions += [
            f"{name}.id = {rng.choice(positives)}.id"
            for name, negated in zip(names, kinds, strict=True)
            if negated and rng.random() < 0.7
        ]
    conditions += [_condition(rng, names, kinds, positives) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    conditions = [_defaulted(rng, condition, positives) for condition in conditions]
    body = f"SEQUENCE ({', '.join(parts)})" if untyped else f"PATTERN SEQ({', '.join(parts)})"
    clauses = [body]
    if conditions:
        clauses.append("WHERE " + " AND ".join(conditions))
    clauses.append(f"WITHIN {rng.randint(3, 16)}")
    on = rng.choice(("", "", " ON probability"))
    clauses.append(f"THRESHOLD {rng.choice((0, 0.001, 0.003, 0.01, 0.05, 0.2, 0.6))}{on}")
    if rng.random() < 0.25:
        clauses.append("OUTPUT BEST")
    if rng.random() < 0.25:
        columns = [f"{name}.n AS {name}_n" for name in positives] + [f"{positives[0]}.x + 1 AS more"]
        clauses.append(f"RETURN R({', '.join(columns)})")
    return "\n".join(clauses)


def _condition(rng: random.Random, names: str, kinds: list[bool], positives: list[str]) -> str:
    """A conjunct over one or two positives and perhaps a negative; `{a.x}` marks where a default may be needed."""
    negatives = [name for name, negated in zip(names, kinds, strict=True) if negated]
    chosen = rng.sample(positives, min(len(positives), 2))
    if negatives and rng.random() < 0.5:
        chosen[0] = rng.choice(negatives)

    def comparison() -> str:
        left, right = rng.choice(chosen), rng.choice(chosen)
        roll = rng.random()
        if roll < 0.2:
            return f"{left}.x {rng.choice(COMPARISONS)} {rng.choice((0, 1, 2))}"
        if roll < 0.4:
            return f"{left}.s {rng.choice(('=', '!=', '<'))} {right}.s"
        if roll < 0.5:
            return f"{right}.time - {left}.time < {rng.randint(1, 8)}"
        return f"{left}.x {rng.choice(COMPARISONS)} {right}.x" + rng.choice(("", " + 1"))

    return comparison() if rng.random() < 0.7 else f"({comparison()} OR {comparison()})"


def _defaulted(rng: random.Random, condition: str, positives: list[str]) -> str:
    """Every reference to a component that may be missing gets a default, the same one wherever it stands."""

    def default(name: str, attribute: str) -> str:
        later = positives[positives.index(name) + 1]
        if attribute == "id":
            return f"{positives[-1]}.id"
        if attribute != "time" and ord(name) % 2:
            return "1" if attribute == "x" else "'u'"
        # A chain of defaults: the next component's value, which may need one too.
        return f"{later}.{attribute}" + ("" if later == positives[-1] else f"[{default(later, attribute)}]")

    def filled(found: re.Match[str]) -> str:
        name, attribute = found.groups()
        return f"{name}.{attribute}[{default(name, attribute)}]" if name in positives[:-1] else found.group()

    return re.sub(r"\b([a-g])\.(id|x|s|time)\b(?!\[)(?![^\[]*\])", filled, condition)


def _model(rng: random.Random, names: str, kinds: list[bool]) -> LossModel:
    few = kinds.count(False) <= 3
    gaps = {name: _gap(rng, few) for number, name in enumerate(names) if number > 0 or kinds[0] or rng.random() < 0.4}
    if kinds[0]:
        first = kinds.index(False)
        if rng.random() < 0.5:
            gaps.pop(names[first], None)
    has_priors = rng.random() < 0.9
    return LossModel(
        rng.choice((0.0, 0.05, 0.1, 0.3)),
        gaps=gaps,
        priors={name: rng.choice((0.5, 0.9, 1.0)) for name in names} if has_priors else {},
        skip_gaps={name: _gap(rng, few) for name in names if rng.random() < 0.3},
        background={name: rng.choice((3, 40, 500)) for name in names if rng.random() < 0.4},
        component_loss={name: rng.choice((0.0, 0.2)) for name in names if rng.random() < 0.15},
        reader_loss={reader: rng.choice((0.02, 0.1, 0.25)) for reader in READERS} if rng.random() < 0.4 else {},
        reader=rng.choice(("reader", "type")),
    )


def _gap(rng: random.Random, stepwise: bool) -> Gap:
    """Three gaps that are added up are integrated twice by the oracle, which takes long where densities jump."""
    kind = rng.randrange(5 if stepwise else 3)
    if kind == 0:
        return Exponential(rng.choice((2, 5, 12)))
    if kind == 1:
        return Gamma(rng.choice((1.5, 2, 4)), rng.choice((1, 2.5)))
    if kind == 2:
        return LogNormal(rng.choice((2, 5)), rng.choice((0.4, 1.0)))
    if kind == 3:
        return Uniform(rng.choice((0, 1.5, 3)), rng.choice((5, 9.5)))
    return Histogram((0, 2, 5, 9), (rng.randint(0, 3), rng.randint(1, 4), rng.randint(0, 2)))


def _events(rng: random.Random) -> list[Event]:
    """Readings, with the reader also as an attribute for components without an event type."""
    made = random_events(rng, rng.randint(4, 10), READERS, attributes=("id", "x", "s"), others=0)
    return [replace(event, attributes={**event.attributes, "reader": event.type}) for event in made]
