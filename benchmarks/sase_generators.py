"""The event and query generators of SASE, section 5.1, with every parameter of its Tables 1 and 2.

Time is the number of the event, so that a window of W ticks is a window of W events, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ouzel.errors import InputError

# V_1 … V_5 of Table 1; experiment 3 tests equivalence on attr1 and attr2.
VALUES = (1_000, 20, 100, 1_000, 10_000)


def sase_events(
    events: int = 1_000_000,
    *,
    types: int = 20,  # T
    type_zipf: float = 0.0,  # θ1
    attributes: int | None = None,  # A; as many as values unless told
    values: Sequence[int] = VALUES,  # V_i
    first_time: int = 0,
    seed: int = 0,
) -> pa.Table:
    """A stream of events E1, E2, … with integer attributes attr1, attr2, …, each drawn by itself.

    Type k occurs in proportion to k to the power of -type_zipf; attr_i is uniform over 0 … values[i-1] - 1. Batches
    of one long stream are made by moving `first_time` on and changing the seed.

    >>> sase_events(3, types=2, values=(100, 5), seed=1).column_names
    ['type', 'ts', 'attr1', 'attr2']
    >>> sase_events(3, first_time=7).column("ts").to_pylist()
    [7, 8, 9]
    """
    if events < 0:
        raise InputError(f"the number of events must not be negative, but is {events}")
    attributes = _check_world(types, attributes, values)
    rng = np.random.default_rng(seed)
    names = pa.array([f"E{number}" for number in range(1, types + 1)])
    if type_zipf == 0.0:
        codes = rng.integers(types, size=events, dtype=np.int32)
    else:
        bounds = np.cumsum(_zipf_shares(types, type_zipf))
        # Rounding may leave the last bound below 1, and a draw above it.
        codes = np.minimum(np.searchsorted(bounds, rng.random(events), side="right"), types - 1).astype(np.int32)
    columns: dict[str, pa.Array] = {
        "type": pa.DictionaryArray.from_arrays(codes, names).cast(pa.string()),
        "ts": pa.array(np.arange(first_time, first_time + events, dtype=np.int64)),
    }
    for number, size in enumerate(values[:attributes], start=1):
        columns[f"attr{number}"] = pa.array(rng.integers(size, size=events, dtype=np.int64))
    return pa.table(columns)


@dataclass(frozen=True)
class SaseQuery:
    """A generated query: its text, and what it was made of, from which its selectivity follows."""

    text: str
    window: int
    types: tuple[str, ...]
    # (k, type): no event of the type between the k-th positive component and the next; 0 is a negated start.
    negations: tuple[tuple[int, str], ...] = ()
    equivalences: tuple[str, ...] = ()
    # (attribute, operator) of a comparison between two events.
    comparisons: tuple[tuple[str, str], ...] = ()
    # (attribute, bound) of a condition attribute < bound on one event.
    simple: tuple[tuple[str, int], ...] = ()


def sase_query(
    length: int = 3,  # L
    *,
    step_zipf: float = 0.0,  # θ2
    equivalence_tests: int = 1,  # EP
    inequalities: int = 0,  # IP
    simple_predicates: int = 0,  # SP
    simple_share: float = 0.5,
    negations: int = 0,  # N
    negated_ends: bool = False,
    window: int = 10_000,  # W
    types: int = 20,
    attributes: int | None = None,
    values: Sequence[int] = VALUES,
    seed: int = 0,
) -> SaseQuery:
    """A query by the parameters of Table 2, over the events that `sase_events` makes with the same types and values.

    Components have different types, drawn in proportion to k to the power of -step_zipf. Equivalence tests are on
    attr1, attr2, …; each inequality compares two events on an attribute of its own, and each simple predicate keeps
    `simple_share` of one component's events, again by an attribute of its own. Negations stand between positive
    components, in different gaps if there are enough; with `negated_ends` also before the first or after the last.

    >>> print(sase_query(3, equivalence_tests=2, inequalities=1, negations=1, window=500, seed=4).text)
    PATTERN SEQ(E19 x1, !(E2 n1), E11 x2, E20 x3)
    WHERE [attr1] AND [attr2] AND x1.attr3 >= x2.attr3
    WITHIN 500
    """
    attributes = _check_world(types, attributes, values)
    if length < 1 or length + negations > types:
        raise InputError(f"{length} components and {negations} negations need as many types, but there are {types}")
    if equivalence_tests + inequalities + simple_predicates > attributes:
        raise InputError(
            f"{equivalence_tests} equivalence tests, {inequalities} inequalities and {simple_predicates} simple "
            f"predicates need an attribute each, but there are {attributes}"
        )
    if inequalities and length < 2:
        raise InputError("an inequality compares two events, but the sequence has one")
    if negations and length < 2 and not negated_ends:
        raise InputError("a sequence of one has no inside to negate in; allow negated_ends")
    rng = np.random.default_rng(seed)
    drawn = rng.choice(types, size=length + negations, replace=False, p=_zipf_shares(types, step_zipf))
    names = [f"E{code + 1}" for code in drawn]
    gaps = np.arange(0 if negated_ends else 1, length + 1 if negated_ends else length)
    places = (
        np.sort(rng.choice(gaps, size=negations, replace=negations > len(gaps))) if negations else np.array([], int)
    )
    negative = tuple(zip(places.tolist(), names[length:], strict=True))

    free = [f"attr{number}" for number in range(1, attributes + 1)]
    equivalences, free = free[:equivalence_tests], free[equivalence_tests:]
    conjuncts = [f"[{attribute}]" for attribute in equivalences]
    comparisons = []
    for attribute in free[:inequalities]:
        earlier, later = np.sort(rng.choice(length, size=2, replace=False)) + 1
        operator = str(rng.choice(["<", "<=", ">", ">=", "!="]))
        comparisons.append((attribute, operator))
        conjuncts.append(f"x{earlier}.{attribute} {operator} x{later}.{attribute}")
    simple = []
    for attribute in free[inequalities : inequalities + simple_predicates]:
        bound = max(1, round(simple_share * values[int(attribute[4:]) - 1]))
        simple.append((attribute, bound))
        conjuncts.append(f"x{rng.integers(length) + 1}.{attribute} < {bound}")

    components = []
    for place in range(length + 1):
        if place:
            components.append(f"{names[place - 1]} x{place}")
        for number, (gap, name) in enumerate(negative, start=1):
            if gap == place:
                components.append(f"!({name} n{number})")
    lines = [f"PATTERN SEQ({', '.join(components)})"]
    if conjuncts:
        lines.append("WHERE " + " AND ".join(conjuncts))
    lines.append(f"WITHIN {window}")
    return SaseQuery(
        text="\n".join(lines),
        window=window,
        types=tuple(names[:length]),
        negations=negative,
        equivalences=tuple(equivalences),
        comparisons=tuple(comparisons),
        simple=tuple(simple),
    )


def sase_selectivity(*, length: int, types: int, values: int, window: int) -> float:
    """Formula (1) of the paper: results per event of a query with one equivalence test and no negation.

    It counts the sequences that lie within a batch of W events and divides by W. A window that slides also sees those
    across the border of two batches: it gives `length` times as many, see `sase_matches_per_event`.

    >>> round(sase_selectivity(length=3, types=20, values=100, window=10_000), 3)  # experiment 1: "0.2"
    0.208
    """
    return math.comb(window, length) / (math.pow(types, length) * math.pow(values, length - 1) * window)


def sase_matches_per_event(
    query: SaseQuery, *, types: int = 20, type_zipf: float = 0.0, values: Sequence[int] = VALUES
) -> float:
    """How many matches an event completes on average, with a sliding window, far from the start of the stream. Exact.

    >>> round(sase_matches_per_event(sase_query(3, window=10_000), values=(100,)), 3)  # three times formula (1)
    0.625
    """
    shares = _zipf_shares(types, type_zipf)
    length = len(query.types)
    domain = {f"attr{number}": size for number, size in enumerate(values, start=1)}
    same_key = math.prod(1.0 / domain[attribute] for attribute in query.equivalences)

    # How likely an event between two bound ones is a forbidden one, by gap; different types exclude each other.
    forbidden = [0.0] * (length + 1)
    for gap, name in query.negations:
        forbidden[gap] += shares[int(name[1:]) - 1] * same_key

    # ways[s]: choices of positions that span s, each weighted by the chance that no forbidden event lies between them.
    ways = np.zeros(query.window)
    ways[0] = 1.0
    for gap in range(1, length):
        ways = _extend(ways, 1.0 - forbidden[gap])
    # Before the first and after the last, the rest of the window must be free of the negated start and end.
    rest = np.arange(query.window)[::-1]
    total = float(np.sum(ways * (1.0 - forbidden[0]) ** rest * (1.0 - forbidden[length]) ** rest))

    chance = math.prod(float(shares[int(name[1:]) - 1]) for name in query.types) * same_key ** (length - 1)
    for attribute, operator in query.comparisons:
        size = domain[attribute]
        equal = 1.0 / size
        chance *= {"!=": 1.0 - equal, "<": (1.0 - equal) / 2, ">": (1.0 - equal) / 2}.get(operator, (1.0 + equal) / 2)
    for attribute, bound in query.simple:
        chance *= bound / domain[attribute]
    return total * chance


def _extend(ways: np.ndarray, stay: float) -> np.ndarray:
    """One more event after those of `ways`: result[s] = Σ_g stay^(g-1) ways[s-g]."""
    longer = np.zeros_like(ways)
    if stay == 1.0:
        longer[1:] = np.cumsum(ways[:-1])
        return longer
    running = 0.0
    for span in range(1, len(ways)):
        running = float(ways[span - 1]) + stay * running
        longer[span] = running
    return longer


def _zipf_shares(count: int, exponent: float) -> np.ndarray:
    weights: np.ndarray = np.arange(1, count + 1, dtype=np.float64) ** -exponent
    weights /= weights.sum()
    return weights


def _check_world(types: int, attributes: int | None, values: Sequence[int]) -> int:
    """The number of attributes, once the parameters are found to fit together."""
    attributes = len(values) if attributes is None else attributes
    if types < 1:
        raise InputError(f"there must be at least one event type, not {types}")
    if not 0 <= attributes <= len(values):
        raise InputError(f"values gives the domain sizes of {len(values)} attributes, not of {attributes}")
    if any(size < 1 for size in values):
        raise InputError(f"every attribute needs at least one value: {tuple(values)}")
    return attributes
