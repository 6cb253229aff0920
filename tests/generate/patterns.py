"""Random queries with random events, small enough for the oracle and dense enough to match often.

The profile "sase" has sequences under the default strategy: ANY, negations anywhere, equivalence tests, comparisons
between events, OR and NOT, nulls, absent attributes, simultaneous events, window edges. The profile "kleene" has
Kleene components, the four strategies, windows in events and the forms of OUTPUT. Every query is valid.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.oracle.events import Event

TYPES = ("A", "B", "C", "D")
VALUES: Mapping[str, tuple[Any, ...]] = {
    "id": (1, 1, 1, 2, 2, None),
    "x": (0, 1, 1, 2, 3, None),
    "y": (-1, 0, 1, 1, 2, None),
    "f": (0.0, -0.0, 1.0, 1.5, float("nan"), None),
    "s": ("u", "u", "v", "uv", "é", None),
}
NUMBERS = ("x", "y", "f")
FORMS = ("NON_OVERLAPPING", "FIRST", "SKIP TO FIRST", "SKIP TO LAST", "COMPRESSED")
STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match")
COMPARISONS = ("=", "!=", "<", "<=", ">", ">=")


class RandomCase(NamedTuple):
    """`types` are the declared attributes of each event type, or None. The column `n` numbers the events."""

    text: str
    events: list[Event]
    types: dict[str, list[str]] | None


@dataclass(frozen=True)
class _Component:
    name: str
    types: tuple[str, ...]
    attributes: tuple[str, ...]  # those that at least one of its types has
    shared: frozenset[str]  # those that all of its types have
    kleene: bool
    negated: bool

    def text(self) -> str:
        types = self.types[0] if len(self.types) == 1 else f"ANY({', '.join(self.types)})"
        written = f"{types}+ {self.name}[]" if self.kleene else f"{types} {self.name}"
        return f"!({written})" if self.negated else written


def random_case(rng: random.Random, profile: str, *, depth: int = 0) -> RandomCase:
    """A case of the profile "sase" or "kleene"; the same generator state gives the same case. With a `depth`, every
    condition has AND, OR and NOT nested up to it.

    >>> random_case(random.Random(1), "sase") == random_case(random.Random(1), "sase")
    True
    """
    types = _random_types(rng) if rng.random() < 0.4 else None
    if profile == "sase":
        text = _sase_query(rng, types, depth)
        count = rng.randint(5, 16)
    else:
        assert profile == "kleene", f"there is no profile {profile!r}"
        text = _kleene_query(rng, types, depth)
        # Under any-match a Kleene component chooses any subset.
        count = rng.randint(4, 9) if "skip_till_any_match" in text else rng.randint(5, 16)
    named = [name for name in TYPES if re.search(rf"\b{name}\b", text)]
    return RandomCase(text, _random_events(rng, count, named, types), types)


# ── Events ─────────────────────────────────────────────────────────────────────────────────────────


def _random_types(rng: random.Random) -> dict[str, list[str]]:
    return {name: ["n", *(a for a in VALUES if rng.random() < 0.8)] for name in TYPES}


def _random_events(rng: random.Random, count: int, named: list[str], types: dict[str, list[str]] | None) -> list[Event]:
    """Mostly events of the types that the query names."""
    events, time = [], rng.randint(0, 5)
    nulls = rng.random() < 0.4
    for number in range(count):
        time += rng.choice((0, 1, 1, 1, 2, 3))
        name = rng.choice(named if rng.random() < 0.85 else TYPES)
        row: dict[str, Any] = {"type": name, "time": time, "n": number}
        for attribute, values in VALUES.items():
            choices = values if nulls else values[:-1]
            row[attribute] = rng.choice(choices) if types is None or attribute in types[name] else None
        events.append(Event(name, time, time, row))
    if rng.random() < 0.5:
        # "Arrival is never used."
        rng.shuffle(events)
    return events


# ── Queries ────────────────────────────────────────────────────────────────────────────────────────


def _sase_query(rng: random.Random, types: dict[str, list[str]] | None, depth: int) -> str:
    while True:
        kinds = [rng.random() < 0.3 for _ in range(rng.randint(1, 4))]
        if not all(kinds):
            break
    components = [_component(rng, types, "abcd"[n], False, negated) for n, negated in enumerate(kinds)]
    clauses = [f"PATTERN SEQ({', '.join(c.text() for c in components)})"]
    conjuncts = [_equivalence(rng, components)] if rng.random() < 0.5 else []
    conjuncts += [_condition(rng, components, depth) for _ in range(rng.choice((0, 0, 1, 1, 2)) or bool(depth))]
    conjuncts = [conjunct for conjunct in conjuncts if conjunct]
    if conjuncts:
        clauses.append("WHERE " + " AND ".join(conjuncts))
    if kinds[0] or kinds[-1] or rng.random() < 0.7:
        clauses.append(f"WITHIN {rng.randint(2, 14)}")
    if rng.random() < 0.2:
        clauses.append(_returns(rng, components))
    return "\n".join(clauses)


def _kleene_query(rng: random.Random, types: dict[str, list[str]] | None, depth: int) -> str:
    shape = rng.choice(("+", "+", "+.", "+.", ".+", ".+.", "++", "+-.", ".+-.", "-+.", "+.-", "..", ".-."))
    components = [_component(rng, types, "abcd"[n], kind == "+", kind == "-") for n, kind in enumerate(shape)]
    positives = [c for c in components if not c.negated]
    clauses = [f"PATTERN SEQ({', '.join(c.text() for c in components)})"]

    strategy = rng.choice(STRATEGIES)
    form = rng.choice(FORMS) if rng.random() < 0.45 else None
    in_events = shape[0] != "-" and shape[-1] != "-" and rng.random() < 0.25
    # These are refused where a positive component's type lacks an [attr].
    needs_attribute = strategy == "partition_contiguity" or form is not None or in_events
    keys = [a for a in ("id", "s") if all(a in c.shared for c in positives) or not needs_attribute]
    conjuncts = []
    if rng.random() < 0.45:
        conjuncts.append(_equivalence(rng, components, tuple(keys)))
    conjuncts += [_condition(rng, components, depth) for _ in range(rng.choice((0, 1, 1, 2)) or bool(depth))]
    body = " AND ".join(conjunct for conjunct in conjuncts if conjunct)
    clauses.append(f"WHERE {strategy}({', '.join(c.name + '[]' * c.kleene for c in components)}) {{ {body} }}")

    if in_events:
        clauses.append(f"WITHIN {rng.randint(2, 7)} EVENTS")
    elif "-" in (shape[0], shape[-1]) or rng.random() < 0.6:
        clauses.append(f"WITHIN {rng.randint(2, 14)}")
    if form is not None:
        variable = f" {rng.choice(positives).name}" if form.startswith("SKIP") else ""
        clauses.append(f"OUTPUT {form}{variable}")
    if form != "COMPRESSED" and rng.random() < 0.2:
        clauses.append(_returns(rng, components))
    return "\n".join(clauses)


def _component(
    rng: random.Random, types: dict[str, list[str]] | None, name: str, kleene: bool, negated: bool
) -> _Component:
    # Early types are likelier, so that a stream of few types still matches.
    names = tuple(sorted(rng.sample(TYPES, 2))) if rng.random() < 0.25 else (rng.choice("AAABBBCCD"),)
    having = [set(VALUES) if types is None else set(types[t]) for t in names]
    attributes = tuple(a for a in VALUES if any(a in own for own in having))
    return _Component(name, names, attributes, frozenset(set.intersection(*having)), kleene, negated)


def _returns(rng: random.Random, components: list[_Component]) -> str:
    columns = []
    for component in components:
        if component.negated:
            continue
        name = component.name
        columns.append(f"{name}.n AS {name}_n")
        if component.kleene:
            columns.append(f"count({name}[]) AS {name}_count")
            if "x" in component.attributes:
                columns.append(f"sum({name}[].x) AS {name}_sum")
        elif "x" in component.attributes:
            columns.append(f"{name}.x {rng.choice('+-*/%')} {rng.randint(0, 2)} AS {name}_value")
    return f"RETURN R({', '.join(columns)})"


# ── Conditions ─────────────────────────────────────────────────────────────────────────────────────


def _equivalence(rng: random.Random, components: list[_Component], keys: tuple[str, ...] = ("id", "id", "s")) -> str:
    usable = [key for key in keys if any(key in c.attributes for c in components if not c.negated)]
    if not usable:
        return ""
    key = rng.choice(usable)
    value = rng.choice([repr(v) for v in VALUES[key] if v is not None])
    return f"[{key} = {value}]" if rng.random() < 0.15 else f"[{key}]"


def _condition(rng: random.Random, components: list[_Component], depth: int) -> str:
    """A conjunct, perhaps with OR and NOT inside, over at most one negative component and at most one Kleene one."""
    positives = [c for c in components if not c.negated and not c.kleene]
    kleene = [c for c in components if c.kleene]
    negatives = [c for c in components if c.negated]
    chosen = rng.sample(positives, min(len(positives), rng.randint(1, 2)))
    if kleene and rng.random() < 0.75:
        chosen.append(rng.choice(kleene))
    if negatives and rng.random() < 0.4:
        chosen.append(rng.choice(negatives))
    chosen = [c for c in chosen if any(a in c.attributes for a in (*NUMBERS, "s"))]
    if not chosen:
        return ""
    # One way of indexing for the whole conjunct: v.attr may not be mixed with v[i].
    index = rng.choice(("[1]", "[i]", "[i]", "[LEN]", "")) if rng.random() < 0.7 else "[i-1]"

    def comparison() -> str:
        return _comparison(rng, chosen, index)

    if depth:
        return _nested(rng, comparison, depth)
    roll = rng.random()
    if roll < 0.65:
        return comparison()
    if roll < 0.8:
        return f"({comparison()} OR {comparison()})"
    if roll < 0.9:
        return f"NOT ({comparison()} {rng.choice(('AND', 'OR'))} {comparison()})"
    return f"({comparison()} OR ({comparison()} AND {comparison()}))"


def _nested(rng: random.Random, comparison: Callable[[], str], depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return comparison()
    operator = rng.choice((" AND ", " OR "))
    operands = [_nested(rng, comparison, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
    return f"{rng.choice(('', '', 'NOT '))}({operator.join(operands)})"


def _comparison(rng: random.Random, chosen: list[_Component], index: str) -> str:
    def event(component: _Component) -> str:
        return component.name + (index if component.kleene else "")

    def number(component: _Component) -> str | None:
        attributes = [a for a in NUMBERS if a in component.attributes]
        if not attributes:
            return None
        attribute = rng.choice(attributes)
        plain = f"{event(component)}.{attribute}"
        if component.kleene:
            forms: list[Callable[[], str]] = [lambda: plain, lambda: plain]
            if index in ("[i]", "[i-1]"):
                function = rng.choice(("avg", "min", "max", "sum", "count", "first", "last"))
                forms.append(lambda: f"{function}({component.name}[..i-1].{attribute})")
                forms.append(lambda: f"{component.name}[i-1].{attribute}")
            if index == "[LEN]":
                function = rng.choice(("avg", "min", "max", "sum", "count", "first", "last"))
                forms.append(lambda: f"{function}({component.name}[].{attribute})")
                forms.append(lambda: f"{component.name}.LEN")
            return rng.choice(forms)()
        return rng.choice((plain, plain, f"{plain} + 1", f"2 * {plain}", f"{plain} % 2", f"1 / {plain}", f"-{plain}"))

    left_component = rng.choice(chosen)
    left = number(left_component)
    if "s" in left_component.attributes and (left is None or rng.random() < 0.15):
        text = f"{event(left_component)}.s"
        return rng.choice((f"{text} LIKE 'u%'", f"{text} < 'v'", f"{text} IN ('u', 'é')", f"upper({text}) = 'U'"))
    assert left is not None
    right = number(rng.choice(chosen))
    if right is None or rng.random() < 0.3:
        right = str(rng.choice((0, 1, 2, 1.5)))
    roll = rng.random()
    if roll < 0.7:
        return f"{left} {rng.choice(COMPARISONS)} {right}"
    no = rng.choice(("", "NOT "))
    return rng.choice(
        (
            f"{left} {no}IN (0, 1, {right})",
            f"{left} {no}BETWEEN 0 AND {right}",
            f"{left} IS {no}NULL",
            f"CASE WHEN {left} > 0 THEN {right} ELSE 1 END >= 1",
            f"coalesce({left}, 1) <= {right}",
            f"{event(left_component)}.time % 2 = 0",
        )
    )
