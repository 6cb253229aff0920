"""Loss models from lossy streams: `LossModel.fit` with a query.

`ouzel.loss.learning` needs bindings. These are the matches of a changed query: its negative components are positive,
all components but the last are optional, and the threshold is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from ouzel.bind.model import BoundQuery, TimeWindow
from ouzel.engines.incomplete.scores import highest_rates, rates_of
from ouzel.errors import InputError
from ouzel.lang import format_query, syntax
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.loss import Exponential, LossModel
from ouzel.loss.fitting import with_units
from ouzel.loss.gaps import FAMILIES, Duration, in_ticks
from ouzel.loss.learning import Bindings, Chain, Counts, Edges, Known, counted, learnt, pairs, start, with_families
from ouzel.loss.report import Report, hidden
from ouzel.loss.report import report as judged
from ouzel.prepared import Query, as_queries, query
from ouzel.runtime.calls import thread_count
from ouzel.runtime.input_binder import InputBinder
from ouzel.runtime.inputs import as_table
from ouzel.runtime.limits import Limits
from ouzel.runtime.threads import answers

if TYPE_CHECKING:
    from ouzel.spark.parts import Parts

# The column that numbers the input's events, so that bindings of the same last event are found.
EVENT = "ouzel_event"
_NO_LAST_EVENT = "no event fits the last component, so there is nothing to learn from"
_MATCHES_MAX = 1 << 40
# So many bindings are far below the 2 GB of a value of Arrow.
_PART_ROWS = 1_000_000
_BY_COMPONENT = ("gaps", "skip_gaps", "priors", "background", "component_loss")
T = TypeVar("T")


class Source(Protocol):
    """The bindings of a stream, perhaps in several parts."""

    chain: Chain
    bound: BoundQuery

    def sum(self, function: Callable[..., T], *arguments: Any) -> T:
        """The sum of `function(chain, *arguments, bindings)` over all parts."""

    def close(self) -> None:
        """Drop the bindings."""


@dataclass
class Local:
    """Bindings in memory."""

    chain: Chain
    bound: BoundQuery
    bindings: Bindings

    def sum(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(self.chain, *arguments, self.bindings)

    def close(self) -> None: ...


@dataclass
class Distributed:
    """Bindings that Spark's workers hold."""

    chain: Chain
    bound: BoundQuery
    parts: Parts

    def sum(self, function: Callable[..., T], *arguments: Any) -> T:
        found: T = self.parts.sum(function, self.chain, *arguments)
        return found

    def close(self) -> None:
        self.parts.close()


def source_of(
    events: Any, given: Any, *, time: str, type: str | None, time_unit: str | None, params: Mapping[str, Any] | None
) -> Source:
    """The bindings of a stream."""
    (one,) = as_queries(given, params).values()
    if not isinstance(one, Query):
        raise InputError("a loss model is learnt for one query as text, with SEQ and WITHIN")
    if one.tree.within is None or one.tree.within.in_events:
        raise InputError("a loss model is learnt for a query with a window of time; give WITHIN")
    optional = optional_query(one, time)
    model = wide_model(optional)
    negated = tuple(part.negated for part in one.tree.pattern.components)
    limits = Limits(max_matches_per_timestamp=_MATCHES_MAX)
    options: dict[str, Any] = {"time": time, "type": type, "time_unit": time_unit, "limits": limits, "model": model}
    if _are_on_spark(events):
        return _distributed(events, optional, negated, options)
    binder = InputBinder({"query": optional}, **options)
    wide = binder.table(_numbered(events))
    found = answers(binder.program, wide, thread_count(None))["query"]
    if not found.num_rows:
        raise InputError(_NO_LAST_EVENT)
    bound = binder.program.queries[0]
    chain = chain_of(bound, negated)
    return Local(chain, bound, bindings_of(chain, bound.catalog.time.tick_ns, found))


def _are_on_spark(events: Any) -> bool:
    frames = events.values() if isinstance(events, Mapping) else (events,)
    return any(hasattr(frame, "sparkSession") for frame in frames)


def _distributed(events: Any, optional: Query, negated: tuple[bool, ...], options: Mapping[str, Any]) -> Distributed:
    from ouzel.spark.parts import Parts, numbered_matches

    program, found = numbered_matches(events, optional, EVENT, options)
    bound = program.queries[0]
    chain = chain_of(bound, negated)
    parts = Parts(found, _parts_of, chain, bound.catalog.time.tick_ns)
    if not parts.count():
        parts.close()
        raise InputError(_NO_LAST_EVENT)
    return Distributed(chain, bound, parts)


def _parts_of(chain: Chain, tick_ns: int | None, found: pa.Table) -> Iterator[Bindings]:
    return bindings_of(chain, tick_ns, found).parts(_PART_ROWS)


def _numbered(events: Any) -> Any:
    """The events with a column that numbers them."""
    if isinstance(events, Mapping):
        tables = {kind: as_table(one) for kind, one in events.items()}
    else:
        tables = {"": as_table(events)}
    made, count = {}, 0
    for kind, table in tables.items():
        made[kind] = table.append_column(EVENT, pa.array(np.arange(count, count + table.num_rows)))
        count += table.num_rows
    return made if isinstance(events, Mapping) else made[""]


# ── The query of bindings ──────────────────────────────────────────────────────────────────────────


def optional_query(given: Query, time: str) -> Query:
    """The query that finds all bindings: negative components become positive, and the columns of its answer are the
    times of events.
    """
    parts = given.tree.pattern.components
    names = [_name(part) for part in parts]
    if parts[-1].negated:
        raise InputError(
            "a loss model is learnt from the events of the last component, which must be positive; leave the negated "
            "end out of the query, and give its gap"
        )
    positive = tuple(replace(part, variable=name, negated=False) for part, name in zip(parts, names, strict=True))
    items = [syntax.Item(syntax.Reference((name, time)), f"at{number}") for number, name in enumerate(names)]
    items.append(syntax.Item(syntax.Reference((names[-1], EVENT)), EVENT))
    optional = {name for name, part in zip(names, parts, strict=True) if part.negated}
    tree = replace(
        given.tree,
        name=None,
        pattern=replace(given.tree.pattern, parts=positive),
        where=None if given.tree.where is None else _with_defaults(given.tree.where, optional),
        threshold=syntax.Threshold(syntax.Literal(0)),
        output=None,
        returns=syntax.Return("Binding", tuple(items)),
        into=None,
    )
    return query(format_query(tree), given.types, given.params, name="query")


def _name(part: syntax.Component | syntax.Group) -> str:
    if isinstance(part, syntax.Group) or part.kleene:
        raise InputError("a loss model is learnt for a sequence of single components, as THRESHOLD needs it")
    if part.variable is not None:
        return part.variable
    if len(part.types) != 1:
        raise InputError("each component needs a variable, so that the model can name it")
    return part.types[0].name


def _with_defaults(node: Any, optional: set[str]) -> Any:
    """An equality with defaults such as `n.id[c.id] = c.id`, so that it holds if n has no event."""
    if isinstance(node, syntax.Binary) and node.operator == "=":
        sides = [node.left, node.right]
        for one, other in ((0, 1), (1, 0)):
            side = sides[one]
            if isinstance(side, syntax.Reference) and side.names[0] in optional and side.default is None:
                sides[one] = replace(side, default=sides[other])
        return replace(node, left=sides[0], right=sides[1])
    if isinstance(node, tuple):
        return tuple(_with_defaults(one, optional) for one in node)
    if is_dataclass(node) and isinstance(node, syntax.Expr):
        return replace(
            node, **{f.name: _with_defaults(getattr(node, f.name), optional) for f in fields(node) if f.init}
        )
    return node


def wide_model(optional: Query) -> LossModel:
    """A model under which every binding has a score above 0."""
    names = [_name(part) for part in optional.tree.pattern.components]
    return LossModel(0.5, gaps={name: Exponential(1e15) for name in names})


def chain_of(bound: BoundQuery, negated: tuple[bool, ...]) -> Chain:
    """The components and the window, in nanoseconds, or in ticks if ticks have no unit."""
    assert isinstance(bound.window, TimeWindow) and bound.window.ticks is not None
    scale = bound.catalog.time.tick_ns or 1
    return Chain(tuple(c.variable for c in bound.components), negated, float(bound.window.ticks * scale))


def bindings_of(chain: Chain, tick_ns: int | None, found: pa.Table) -> Bindings:
    """Bindings from the columns of their query's answer."""
    columns = [found.column(f"at{number}") for number in range(len(chain.names))]
    kind = columns[-1].type
    scale = NANOSECONDS_OF_UNIT[kind.unit] if pa.types.is_timestamp(kind) else tick_ns or 1
    last = columns[-1].cast(pa.int64()).to_numpy()
    times = np.full((found.num_rows, len(columns) - 1), np.nan)
    for number, column in enumerate(columns[:-1]):
        known = ~column.is_null().to_numpy()
        ticks = column.cast(pa.int64()).fill_null(0).to_numpy()
        # Differences of integers are exact.
        times[known, number] = chain.window - (last - ticks)[known] * float(scale)
    return Bindings.of(chain, times, found.column(EVENT).to_numpy(), last * scale)


# ── Learning ───────────────────────────────────────────────────────────────────────────────────────


def count(source: Source, model: LossModel) -> Counts:
    """The first part of the expectation step."""
    return source.sum(_counted, model)


def _counted(chain: Chain, model: LossModel, bindings: Bindings) -> Counts:
    return counted(Edges(chain, model), bindings)


def fit(
    source: Source, given: Mapping[str, Any], family: str | Mapping[str, str] = "auto"
) -> tuple[LossModel, list[float]]:
    """(model, log-likelihoods): the most likely model with what the user has given, and the log-likelihood after each
    step, which never falls.
    """
    chain, tick_ns = source.chain, source.bound.catalog.time.tick_ns
    by_hand = LossModel(**given)
    has_loss = any(name in given for name in ("loss", "reader_loss"))
    known = Known(
        {name: frozenset(getattr(by_hand, name)) for name in _BY_COMPONENT},
        has_loss,
        {} if family == "auto" else _families(chain, family),
    )
    middle = {chain.name(place) for place in range(1, len(chain.positives) - 1)}
    rates_known = has_loss or set(chain.names) - {chain.name(-1)} <= set(by_hand.component_loss)
    if not rates_known and not middle - set(by_hand.component_loss):
        raise InputError(
            f"loss rates are learnt only for components between two others, and query '{source.bound.name}' has no "
            "such component without a given rate; give loss= or component_loss="
        )

    def improved(model: LossModel, known: Known) -> tuple[LossModel, list[float]]:
        return learnt(chain, lambda one: count(source, one), model, known)

    working = in_chain(by_hand, source.bound if has_loss else None, tick_ns)
    model, trace = improved(start(chain, source.sum(pairs), working, known), known)
    other, found = improved(with_families(chain, count(source, model), model, known), known)
    if found[-1] > trace[-1]:
        model, trace = other, [*trace, found[-1]]
    if not rates_known:
        # Own rates of the components in the middle, if they fit clearly better than one for all.
        others = frozenset(chain.names) - middle
        own = replace(known, names={**known.names, "component_loss": known.names["component_loss"] | others}, each=True)
        other, found = improved(model, own)
        if 2 * (found[-1] - trace[-1]) > len(middle) * np.log(count(source, other).last_events):
            model, trace = other, [*trace, *found[1:]]
    return _finished(model, by_hand, known, chain, count(source, model), tick_ns), trace


def report(source: Source, model: LossModel) -> Report:
    """How well a model fits a stream."""
    working = in_chain(model, source.bound, source.bound.catalog.time.tick_ns)
    missing = [name for place, name in enumerate(source.chain.names) if place and name not in working.gaps]
    if missing:
        raise InputError(f"the model has no gap of '{missing[0]}'; give gaps={{'{missing[0]}': …}} or fit the model")
    return judged(source.chain, working, count(source, working), source.sum(hidden, working))


def _families(chain: Chain, family: str | Mapping[str, str]) -> dict[tuple[str, str], str]:
    named = dict.fromkeys(chain.names, family) if isinstance(family, str) else family
    for name in named.values():
        if name != "auto" and name not in FAMILIES:
            raise InputError(f"there is no family of gaps '{name}'; there are auto, {', '.join(FAMILIES)}")
    return {(kind, name): one for name, one in named.items() for kind in ("gaps", "skip_gaps")}


def in_chain(model: LossModel, bound: BoundQuery | None, tick_ns: int | None) -> LossModel:
    """A model whose lengths have the unit of the chain. With a bound query, it also has a loss rate for each
    component.
    """
    unit = None if tick_ns is None else 1

    def length(value: Any, what: str) -> float:
        # A plain number counts the ticks of the input.
        ticks = in_ticks(value, unit, what)
        return ticks if isinstance(value, Duration) else ticks * (tick_ns or 1)

    def gap(one: Any) -> Any:
        changed = {}
        for name in one.lengths:
            value = getattr(one, name)
            changed[name] = (
                tuple(length(item, name) for item in value) if isinstance(value, tuple) else length(value, name)
            )
        return replace(one, **changed)

    rates = dict(model.component_loss)
    if bound is not None:
        losses = highest_rates(rates_of(bound, model))
        rates = {c.variable: loss for c, loss in zip(bound.components, losses, strict=True)}
    return LossModel(
        model.loss,
        gaps={name: gap(one) for name, one in model.gaps.items()},
        skip_gaps={name: gap(one) for name, one in model.skip_gaps.items()},
        priors=model.priors,
        background={name: length(value, f"background[{name!r}]") for name, value in model.background.items()},
        component_loss=rates,
    )


def _finished(
    model: LossModel, by_hand: LossModel, known: Known, chain: Chain, counts: Counts, tick_ns: int | None
) -> LossModel:
    """The learnt model with units of time, and with priors below 1 for components that always happened."""
    last_events = counts.last_events
    # Laplace's rule of succession.
    highest = (last_events + 1) / (last_events + 2)
    priors = {name: min(prior, highest) for name, prior in model.priors.items()}

    def united(gap: Any) -> Any:
        return gap if tick_ns is None else with_units(gap)

    learnt_names = [n for p, n in enumerate(chain.names) if p != chain.positives[-1]]
    rates = {name: model.component_loss[name] for name in learnt_names} if not known.loss else {}
    background = {
        name: length if tick_ns is None else Duration(float(length))  # type: ignore[arg-type]
        for name, length in model.background.items()
        if name != chain.name(-1)
    }
    return replace(
        by_hand,
        gaps={**{name: united(gap) for name, gap in model.gaps.items()}, **by_hand.gaps},
        skip_gaps={**{name: united(gap) for name, gap in model.skip_gaps.items()}, **by_hand.skip_gaps},
        priors={**priors, **by_hand.priors},
        background={**background, **by_hand.background},
        component_loss={**rates, **by_hand.component_loss},
    )
