"""skip_till_any_match against "every choice of events that satisfies order, types, predicates and window".

The check here knows nothing of runs, conjunctive form or the expression evaluator: it tries every subset of the events
and every way of handing it out to the components, and its predicates are Python functions written beside their text.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

from ouzel.lang import parse
from tests.agreement import case_count
from tests.oracle.events import Event
from tests.oracle.oracle import Match, Result, answer
from tests.oracle.predicates import Choice, Predicate, Row, kleene_predicates, later_predicates, single_predicates


@dataclass(frozen=True)
class Case:
    kinds: str  # "." a single component, "+" a Kleene one, "-" a negative one
    types: str
    predicates: tuple[Predicate, ...]
    window: int | None
    has_key: bool
    rows: list[Row]

    @property
    def names(self) -> str:
        return "abcd"[: len(self.kinds)]

    @property
    def text(self) -> str:
        written = {".": "{t} {v}", "+": "{t}+ {v}[]", "-": "!({t} {v})"}
        components = [written[k].format(t=t, v=v) for k, t, v in zip(self.kinds, self.types, self.names, strict=True)]
        conjuncts = [*(["[k]"] if self.has_key else []), *(predicate.text for predicate in self.predicates)]
        where = f" WHERE {' AND '.join(conjuncts)}" if conjuncts else ""
        within = f" WITHIN {self.window}" if self.window is not None else ""
        return f"PATTERN SEQ({', '.join(components)}){where}{within}"


KINDS = (".", "+", "..", "+.", ".+", "...", ".+.", ".-.", "-..", "..-", "+-.", "-.-.", ".--.", "-+", "+-")


def random_case(rng: random.Random) -> Case:
    kinds = rng.choice(KINDS)
    names = "abcd"[: len(kinds)]
    positives = [v for v, kind in zip(names, kinds, strict=True) if kind == "."]
    pool: list[Predicate] = []
    for v, w in itertools.permutations(positives, 2):
        pool += single_predicates(v, w)
    for v, kind in zip(names, kinds, strict=True):
        if kind == "+":
            pool += kleene_predicates(v)
            pool += [predicate for w in positives if w > v for predicate in later_predicates(v, w)]
        if kind == "-":
            pool += [predicate for w in positives for predicate in single_predicates(v, w)]
    predicates = tuple(rng.sample(pool, min(len(pool), rng.randint(0, 2))))
    window = rng.randint(1, 10) if "-" in (kinds[0], kinds[-1]) or rng.random() < 0.6 else None
    time = 0
    rows: list[Row] = []
    for number in range(rng.randint(3, 8)):
        time += rng.choice((0, 1, 1, 2))
        row: Row = {"type": rng.choice("AABBC"), "time": time, "n": number, "k": rng.choice((1, 1, 2, None))}
        rows.append(row | {name: rng.choice((-1, 0, 1, 1, 2, None)) for name in ("x", "y")})
    types = "".join(rng.choice("AABBC") for _ in kinds)
    return Case(kinds, types, predicates, window, rng.random() < 0.3, rows)


# ── Every choice ───────────────────────────────────────────────────────────────────────────────────


def every_choice(case: Case) -> Iterator[Choice]:
    """Every way to choose events that follow each other and to hand them out to the positive components in order."""
    positives = [(v, t, k) for v, t, k in zip(case.names, case.types, case.kinds, strict=True) if k != "-"]
    for size in range(len(positives), len(case.rows) + 1):
        for chosen in itertools.combinations(case.rows, size):
            if any(before["time"] >= after["time"] for before, after in itertools.pairwise(chosen)):
                continue
            for cuts in itertools.combinations(range(1, size), len(positives) - 1):
                parts = [list(chosen[i:j]) for i, j in itertools.pairwise((0, *cuts, size))]
                fits = all(
                    all(row["type"] == t for row in part) and (k == "+" or len(part) == 1)
                    for (_, t, k), part in zip(positives, parts, strict=True)
                )
                if fits:
                    yield {v: part for (v, _, _), part in zip(positives, parts, strict=True)}


def is_match(case: Case, choice: Choice) -> bool:
    chosen = [row for part in choice.values() for row in part]
    if case.window is not None and chosen[-1]["time"] - chosen[0]["time"] >= case.window:
        return False
    if case.has_key and (len({row["k"] for row in chosen}) > 1 or chosen[0]["k"] is None):
        return False
    negatives = {v for v, kind in zip(case.names, case.kinds, strict=True) if kind == "-"}
    if not all(predicate.function(choice) for predicate in case.predicates if not predicate.variables & negatives):
        return False
    return not any(is_forbidden(case, choice, v, row) for v in negatives for row in case.rows)


def is_forbidden(case: Case, choice: Choice, negative: str, row: Row) -> bool:
    first, last = next(iter(choice.values()))[0], list(choice.values())[-1][-1]
    before = [part[-1]["time"] for v, part in choice.items() if v < negative]
    after = [part[0]["time"] for v, part in choice.items() if v > negative]
    window = case.window or 0
    low = before[-1] if before else last["time"] - window
    high = after[0] if after else first["time"] + window
    return (
        row["type"] == case.types[case.names.index(negative)]
        and low < row["time"] < high
        and (not case.has_key or row["k"] == first["k"])
        and all(p.function({**choice, negative: [row]}) for p in case.predicates if negative in p.variables)
    )


def numbers(match: Result) -> tuple[tuple[str, tuple[int, ...]], ...]:
    assert isinstance(match, Match)
    return tuple(
        (name, tuple(e.attributes["n"] for e in (events if isinstance(events, tuple) else (events,))))
        for name, events in match.bound.items()
    )


def test_any_match_is_every_choice_of_events() -> None:
    cases = case_count(600)
    matched = 0
    for seed in range(cases):
        case = random_case(random.Random(seed))
        events = [Event(row["type"], row["time"], row["time"], row) for row in case.rows]
        found = [numbers(match) for match in answer(parse(case.text), events)["q1"]]
        expected = [
            tuple((v, tuple(row["n"] for row in part)) for v, part in choice.items())
            for choice in every_choice(case)
            if is_match(case, choice)
        ]
        assert sorted(found) == sorted(expected), f"seed {seed}: {case.text}\non {case.rows}"
        matched += bool(expected)
    print(f"{cases} random cases, {matched} with a match")
    assert matched > cases / 4
