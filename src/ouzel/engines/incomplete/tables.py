"""Arrays of the arrival kernel (AYAC): a query with its edges and their scores, the state, and the matches.

Instances are those of `kernels/events.py`. Positions count positive components. An *edge* leads to a position from an
earlier one, or from the start of the window (ENTRY). The positions between them are missing. A path has a score and a
weight, which are products over its edges. Its probability is its share of the weights of all explanations. Nothing here
needs numba.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ouzel.kernels.arrays import Matrix
from ouzel.kernels.predicate_tables import Alternative, Predicates, Values, build_predicates, new_values

ENTRY = -1
# Bounds and products are rounded differently, and their tables have errors of up to 1e-9 per edge: nothing that is
# nearer to the threshold than this is pruned.
SLACK = 1 + 1e-6


class ArrivalCounter(IntEnum):
    """Indexes into `ArrivalState.counters`."""

    LATEST_TICK = 0  # the tick of the latest matches
    AT_LATEST = 1  # how many there were at it
    OLDEST = 2  # a slot before which all events have left the window
    # Work counters; the answer does not depend on them.
    INSTANCES = 3  # seen
    KEPT = 4  # arrivals whose upper bound reaches the threshold
    SEARCHES = 5  # started backwards from a last component
    EDGES = 6  # candidates visited in these
    MATCHES = 7


class ByEdge(IntEnum):
    """Columns of `ArrivalTables.by_edge`. The negatives of an edge end where those of the next row begin."""

    SOURCE = 0  # a position, or ENTRY
    SCORE = 1  # a curve, or -1: the constant is in `edge_score`
    FIRST_NEGATIVE = 2  # in `edge_negatives`


class ByPair(IntEnum):
    """Columns of `ArrivalTables.pairs`: curves of the weight of an edge, see `ouzel.loss.posterior`."""

    PATH = 0
    EVERY = 1
    NOTHING_BETWEEN = 2


class NegativeWeight(IntEnum):
    """Columns of `ArrivalTables.negative_weights`, by component: curves."""

    UNOBSERVED = 0
    OBSERVED = 1


class ByBeside(IntEnum):
    """Columns of `ArrivalTables.beside`: see `Beside` of `ouzel.loss.posterior`. Functions are rows of `densities`."""

    NEGATIVE = 0  # a component
    LEFT = 1  # or -1
    SLOT = 2
    RIGHT = 3  # or -1
    DUE = 4


class AtEnd(IntEnum):
    """Indexes into `ArrivalTables.at_end`."""

    SCORE = 0
    PATH = 1  # the weight of a path
    EVERY = 2  # of all explanations


class ByNegative(IntEnum):
    """Columns of `ArrivalTables.by_negative`, by component. Rows of positive components are not used."""

    EVERYWHERE = 0  # 1 if some of its instances may have EVERY_KEY
    READY = 1  # the lowest position that its tests read; the length if they read none
    FIRST_TEST = 2
    AFTER_TEST = 3


class ByTest(IntEnum):
    """Columns of `ArrivalTables.by_test`. What belongs to a test ends where that of the next row begins."""

    FIRST_NAMED = 0  # in `named`: positions that change the test if they are missing
    FIRST_VARIANT = 1  # in `variants`: by those missing, as bits, a conjunct, or ALWAYS


ALWAYS = -1


class CurveTables(NamedTuple):
    """Functions of a number of ticks with values in [0, 1], stored in pieces; see `Curve` of `ouzel.loss`."""

    first_piece: NDArray[np.int32]  # of each curve; one more entry than curves
    low: NDArray[np.int64]
    middle: NDArray[np.float64]
    half: NDArray[np.float64]  # 0: the coefficients are the values at the piece's ticks
    coefficients: Matrix[np.float64]  # [piece, power]
    ceiling: NDArray[np.float64]  # of the curve from 1 to the end of the piece
    trend: NDArray[np.uint8]  # of each curve: 0 neither, 1 rising, 2 falling


class ArrivalTables(NamedTuple):
    """A query over an incomplete stream."""

    components: int
    length: int
    window: int  # in ticks
    threshold: float
    bounds: int  # 1: upper bounds prune
    least_probability: float
    knows_probability: int
    on_probability: int  # 1: the threshold is on it, and a score may be 0
    last_prior: float  # the share of last events that end an attempt
    max_matches_per_timestamp: int
    position: NDArray[np.int32]  # by component; -1 if negative
    component_at: NDArray[np.int32]  # by position
    first_edge: NDArray[np.int32]  # to each position; one more entry than positions
    by_edge: Matrix[np.int32]  # [edge, ByEdge], one row more than edges
    edge_score: NDArray[np.float64]  # of edges without a curve
    edge_best: NDArray[np.float64]  # G over the whole window (AYAC section 4)
    edge_negatives: NDArray[np.int32]  # components
    negatives_between: Matrix[np.int32]  # [negative, 2]: its component and the number of positions before it
    negatives_at_end: NDArray[np.int32]  # components behind the last positive
    at_end: NDArray[np.int32]  # [AtEnd]: curves of the time from the last event to the end of the window, or -1
    curves: CurveTables
    pairs: Matrix[np.int32]  # [pair of positions, ByPair]: see `pair_of`
    best_path_ahead: NDArray[np.float64]  # by position: an upper bound of the weight of a path to it
    best_ahead: NDArray[np.float64]  # likewise of an explanation without observed negatives
    negative_weights: Matrix[np.int32]  # [component, NegativeWeight]
    first_beside: NDArray[np.int32]  # of each pair of positions; one more entry than pairs
    beside: Matrix[np.int32]  # [term, ByBeside]
    beside_scale: NDArray[np.float64]  # by term
    densities: Matrix[np.float64]  # [function, 2 · cell and 2 · cell + 1]: at its beginning and end
    by_negative: Matrix[np.int32]  # [component, ByNegative]
    first_test: NDArray[np.int32]  # tests whose lowest position is this one; one more entry than positions
    by_test: Matrix[np.int32]  # [test, ByTest], one row more than tests
    named: NDArray[np.int32]
    variants: NDArray[np.int32]
    predicates: Predicates


class ArrivalTest(NamedTuple):
    """A conjunct, with one variant for each set of missing components that changes it.

    `lowest` is the lowest position that the conjunct reads. `variants` has one entry for each subset of `named` that
    may be missing, indexed by bits, the lowest for the first of `named`. None means that the conjunct holds.
    """

    lowest: int
    named: tuple[int, ...]
    variants: tuple[tuple[Alternative, ...] | None, ...]


class ArrivalEdge(NamedTuple):
    """An edge. `score` is the number of a curve or, if it is a float, a constant."""

    source: int
    target: int
    score: int | float
    best: float
    negatives: tuple[int, ...]


class ArrivalWeights(NamedTuple):
    """The part of `ArrivalTables` that probabilities need."""

    pairs: NDArray[np.int32]
    best_path_ahead: NDArray[np.float64]
    best_ahead: NDArray[np.float64]
    negative_weights: NDArray[np.int32]
    first_beside: NDArray[np.int32]
    beside: NDArray[np.int32]
    beside_scale: NDArray[np.float64]
    densities: NDArray[np.float64]
    last_prior: float
    at_end: tuple[int, ...]  # AtEnd.PATH and AtEnd.EVERY, of a query with a negated end


def pair_of(source: int, target: int) -> int:
    """The row of an edge in `ArrivalTables.pairs`."""
    return target * (target + 1) // 2 + source + 1


def build_arrival_tables(
    negated: Sequence[bool],
    window: int,
    threshold: float,
    edges: Sequence[ArrivalEdge],
    curves: CurveTables,
    tests: Sequence[ArrivalTest] = (),
    negative_tests: Mapping[int, Sequence[ArrivalTest]] | None = None,
    *,
    everywhere: Sequence[int] = (),
    bounds: bool = True,
    least_probability: float | None = None,
    weights: ArrivalWeights | None = None,
    score_at_end: int = -1,
    max_matches_per_timestamp: int,
) -> ArrivalTables:
    """The tables of a query. With `least_probability` its threshold is on the probability."""
    places = [component for component, is_negative in enumerate(negated) if not is_negative]
    length = len(places)
    position = np.full(len(negated), -1, np.int32)
    position[places] = np.arange(length)
    ordered = sorted(edges, key=lambda edge: (edge.target, -edge.source))
    first_edge = np.searchsorted([edge.target for edge in ordered], np.arange(length + 1)).astype(np.int32)
    edge_negatives: list[int] = []
    by_edge = np.zeros((len(ordered) + 1, len(ByEdge)), np.int32)
    edge_score = np.ones(len(ordered))
    for number, edge in enumerate(ordered):
        by_edge[number] = (
            edge.source,
            -1 if isinstance(edge.score, float) else edge.score,
            len(edge_negatives),
        )
        edge_score[number] = edge.score if isinstance(edge.score, float) else 1.0
        edge_negatives += edge.negatives
    by_edge[-1, ByEdge.FIRST_NEGATIVE] = len(edge_negatives)

    listed = sorted(tests, key=lambda test: test.lowest)
    first_test = np.searchsorted([test.lowest for test in listed], np.arange(length + 1)).astype(np.int32)
    by_negative = np.zeros((len(negated), len(ByNegative)), np.int32)
    for component, is_negative in enumerate(negated):
        own = list((negative_tests or {}).get(component, ())) if is_negative else []
        by_negative[component] = (
            component in everywhere,
            min((test.lowest for test in own), default=length),
            len(listed),
            len(listed) + len(own),
        )
        listed += own
    conjuncts: list[tuple[Alternative, ...]] = []
    by_test = np.zeros((len(listed) + 1, len(ByTest)), np.int32)
    named: list[int] = []
    variants: list[int] = []
    for number, test in enumerate(listed):
        assert len(test.variants) == 1 << len(test.named)
        by_test[number] = len(named), len(variants)
        named += test.named
        for variant in test.variants:
            variants.append(ALWAYS if variant is None else len(conjuncts))
            if variant is not None:
                conjuncts.append(variant)
    by_test[-1] = len(named), len(variants)
    negatives = [component for component, is_negative in enumerate(negated) if is_negative]
    between = [(c, sum(1 for place in places if place < c)) for c in negatives if c < places[-1]]
    return ArrivalTables(
        components=len(negated),
        length=length,
        window=window,
        threshold=threshold,
        bounds=int(bounds),
        least_probability=least_probability or 0.0,
        on_probability=int(least_probability is not None),
        knows_probability=int(weights is not None),
        last_prior=1.0 if weights is None else weights.last_prior,
        max_matches_per_timestamp=max_matches_per_timestamp,
        position=position,
        component_at=np.array(places, np.int32),
        first_edge=first_edge,
        by_edge=by_edge,
        edge_score=edge_score,
        edge_best=np.array([edge.best for edge in ordered], np.float64),
        edge_negatives=np.array(edge_negatives, np.int32),
        negatives_between=np.array(between, np.int32).reshape(len(between), 2),
        negatives_at_end=np.array([c for c in negatives if c > places[-1]], np.int32),
        at_end=np.array([score_at_end, *((weights.at_end if weights is not None else ()) or (-1, -1))], np.int32),
        curves=curves,
        pairs=np.empty((0, len(ByPair)), np.int32) if weights is None else weights.pairs,
        best_path_ahead=np.empty(0) if weights is None else weights.best_path_ahead,
        best_ahead=np.empty(0) if weights is None else weights.best_ahead,
        negative_weights=np.empty((0, 2), np.int32) if weights is None else weights.negative_weights,
        first_beside=np.zeros(1, np.int32) if weights is None else weights.first_beside,
        beside=np.empty((0, len(ByBeside)), np.int32) if weights is None else weights.beside,
        beside_scale=np.empty(0) if weights is None else weights.beside_scale,
        densities=np.empty((0, 2)) if weights is None else weights.densities,
        by_negative=by_negative,
        first_test=first_test,
        by_test=by_test,
        named=np.array(named, np.int32),
        variants=np.array(variants, np.int32),
        predicates=build_predicates(conjuncts),
    )


class QueueLink(IntEnum):
    """Columns of `ArrivalState.links`: slots of the same queue; -1 for none."""

    BELOW = 0  # the one before
    ABOVE = 1  # the one after
    JUMP = 2  # one further back, to find a time in logarithmically many steps
    SPAN = 3  # how many steps that is
    KEPT = 4  # the newest at or before this one whose upper bound reaches the threshold
    OLDER = 5  # its neighbours in the monotonic queue
    NEWER = 6


class Queue(IntEnum):
    """Columns of `ArrivalState.queues`: slots; -1 for none."""

    NEWEST = 0
    OLDEST = 1
    # The kept arrivals that no later one equals or exceeds; the first has the largest bound.
    MAXIMUM = 2
    LAST_MAXIMUM = 3


class ArrivalState(NamedTuple):
    """The state between calls: a queue for each key and component (PAQs and NAQs of AYAC section 4)."""

    queues: Matrix[np.int32]  # [key * components + component, Queue]
    links: Matrix[np.int32]  # [slot, QueueLink]
    upper: NDArray[np.float64]  # by slot: u, an upper bound of the score of all paths to it
    counters: NDArray[np.int64]
    # Scratch of one search.
    bound: NDArray[np.int32]  # by component
    missing: NDArray[np.uint8]  # by position
    node: NDArray[np.int32]  # by level
    place: NDArray[np.int32]  # by level: the position of its node
    edge: NDArray[np.int32]  # by level
    candidate: NDArray[np.int32]  # by level
    score: NDArray[np.float64]  # by level
    weight: NDArray[np.float64]  # by level
    values: Values


class ArrivalOutput(NamedTuple):
    """The matches found. `written`, of length 1, is their number."""

    slots: Matrix[np.int32]  # [position, match], -1 where missing
    score: NDArray[np.float64]
    probability: NDArray[np.float64]  # NaN if it is not known
    match_end: NDArray[np.int64]
    written: NDArray[np.int64]


def new_state(tables: ArrivalTables, capacity: int, keys: int) -> ArrivalState:
    """Empty queues with room for this many slots and keys."""
    levels = tables.length + 1
    return ArrivalState(
        queues=np.full((keys * tables.components, len(Queue)), -1, np.int32),
        links=np.full((capacity, len(QueueLink)), -1, np.int32),
        upper=np.zeros(capacity, np.float64),
        counters=np.zeros(len(ArrivalCounter), np.int64),
        bound=np.zeros(tables.components, np.int32),
        missing=np.zeros(tables.length, np.uint8),
        node=np.zeros(levels, np.int32),
        place=np.zeros(levels, np.int32),
        edge=np.zeros(levels, np.int32),
        candidate=np.zeros(levels, np.int32),
        score=np.zeros(levels, np.float64),
        weight=np.zeros(levels, np.float64),
        values=new_values(tables.predicates),
    )


def reserve(tables: ArrivalTables, state: ArrivalState, capacity: int, keys: int) -> ArrivalState:
    """The same state with room for at least this many slots and keys."""
    if capacity > len(state.upper):
        links = np.full((capacity, len(QueueLink)), -1, np.int32)
        links[: len(state.links)] = state.links
        upper = np.zeros(capacity, np.float64)
        upper[: len(state.upper)] = state.upper
        state = state._replace(links=links, upper=upper)
    if keys * tables.components > len(state.queues):
        queues = np.full((max(keys * tables.components, 2 * len(state.queues)), len(Queue)), -1, np.int32)
        queues[: len(state.queues)] = state.queues
        state = state._replace(queues=queues)
    return state


def new_output(tables: ArrivalTables, capacity: int = 1024) -> ArrivalOutput:
    """Room for this many matches."""
    return ArrivalOutput(
        slots=np.empty((tables.length, capacity), np.int32),
        score=np.empty(capacity, np.float64),
        probability=np.empty(capacity, np.float64),
        match_end=np.empty(capacity, np.int64),
        written=np.zeros(1, np.int64),
    )


def grown(tables: ArrivalTables, output: ArrivalOutput) -> ArrivalOutput:
    """The same matches with twice the room."""
    larger = new_output(tables, 2 * len(output.score))
    used = int(output.written[0])
    larger.slots[:, :used] = output.slots[:, :used]
    for name in ("score", "probability", "match_end"):
        getattr(larger, name)[:used] = getattr(output, name)[:used]
    larger.written[0] = used
    return larger
