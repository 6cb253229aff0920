"""`LossModel`: what a stream loses and how its gaps are distributed. It is given by hand, or fitted to a history of
complete matches.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ouzel.errors import InputError, ModelWarning
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.loss.fitting import AUTO, best_gap, with_units
from ouzel.loss.gaps import (
    FAMILIES,
    Duration,
    Gap,
    GivenLength,
    from_plain,
    gap_from_dict,
    in_ticks,
    length_of,
    number_of,
    plain,
)

if TYPE_CHECKING:
    from ouzel.loss.report import Report

Array = NDArray[np.float64]
Fitted = tuple[dict[str, Gap], dict[str, Gap], dict[str, float]]


def fitted(matches: Any, components: Sequence[str] | None, time: str, family: str | Mapping[str, str]) -> Fitted:
    """Gaps, gaps after skipped components, and priors, fitted to complete matches."""
    table = matches if isinstance(matches, pa.Table) else _table(matches)
    names = list(components) if components is not None else _components(table, time)
    if len(names) < 2:
        raise InputError("a history needs at least two components, each a struct column with the time of its event")
    if not table.num_rows:
        raise InputError("the history is empty: there is nothing to fit")
    columns = [_times(table, name, time) for name in names]
    exact = columns[0][2] is not None
    happened = np.stack([known for _, known, _ in columns])
    # Differences of integers are exact; current timestamps as doubles would lose their last digits.
    base = min((int(ticks[known].min()) for ticks, known, _ in columns if known.any()), default=0)
    times = np.stack([(ticks - base).astype(np.float64) * (scale or 1) for ticks, _, scale in columns])
    gaps: dict[str, Gap] = {}
    skip_gaps: dict[str, Gap] = {}
    priors: dict[str, float] = {}
    for place in range(1, len(names)):
        both = happened[place - 1] & happened[place]
        if both.any():
            between = times[place, both] - times[place - 1, both]
            gaps[names[place]] = _fit(between, _family(family, names[place]), names[place], exact)
    for place, name in enumerate(names):
        if place == len(names) - 1 and happened[place].all():
            # A history of matches does not show last events that end no match.
            continue
        # A component that always happened may fail once (Laplace's rule of succession).
        seen, rows = int(happened[place].sum()), happened.shape[1]
        priors[name] = (seen + 1) / (rows + 2) if seen == rows else seen / rows
        skipped = np.zeros(0)
        if 0 < place < len(names) - 1:
            # From the last component that happened before it to the next component, if that happened.
            chosen = ~happened[place] & happened[place + 1] & happened[:place].any(axis=0)
            before = np.where(happened[:place], times[:place], -np.inf).max(axis=0)
            skipped = (times[place + 1] - before)[chosen]
        if len(skipped):
            skip_gaps[name] = _fit(skipped, _family(family, name), f"{name}, skipped", exact)
    return gaps, skip_gaps, priors


def _table(matches: Any) -> pa.Table:
    try:
        return pa.Table.from_pylist(list(matches))
    except (TypeError, AttributeError, pa.ArrowException) as error:
        raise InputError(
            f"a history must be an Arrow table of matches, or a list of them as dictionaries: {error}"
        ) from None


def _components(table: pa.Table, time: str) -> list[str]:
    return [
        field.name for field in table.schema if pa.types.is_struct(field.type) and field.type.get_field_index(time) >= 0
    ]


def _times(table: pa.Table, name: str, time: str) -> tuple[NDArray[np.int64], NDArray[np.bool_], int | None]:
    """(times, happened, tick): for each row, the time of a component's event and whether it happened; and the length of
    a tick in nanoseconds, None if it has no unit.
    """
    if name not in table.column_names:
        raise InputError(f"the history has no column '{name}'")
    column = table.column(name)
    if not pa.types.is_struct(column.type) or column.type.get_field_index(time) < 0:
        raise InputError(
            f"the column '{name}' of the history must be a struct with a field '{time}'; name the field with time="
        )
    values = pc.struct_field(column, time)
    exact = pa.types.is_timestamp(values.type)
    if not exact and not pa.types.is_integer(values.type):
        raise InputError(f"times must be timestamps or whole numbers, and '{time}' of '{name}' is {values.type}")
    known = np.asarray(values.is_valid().to_numpy(), bool)
    ticks = pc.fill_null(values.cast(pa.int64()), 0).to_numpy()
    return np.asarray(ticks), known, NANOSECONDS_OF_UNIT[values.type.unit] if exact else None


def _family(family: str | Mapping[str, str], name: str) -> str:
    chosen = family if isinstance(family, str) else family.get(name, "auto")
    if chosen != "auto" and chosen not in FAMILIES:
        raise InputError(f"there is no family of gaps '{chosen}'; there are auto, {', '.join(FAMILIES)}")
    return chosen


def _fit(gaps: Array, family: str, what: str, exact: bool) -> Gap:
    if gaps.min() < 0:
        raise InputError(f"the history has a negative gap before '{what}': its components are not in order")
    gaps = np.maximum(gaps, 1e-9)
    best = best_gap(gaps, np.ones(len(gaps)), AUTO if family == "auto" else (family,))
    return with_units(best) if exact else best


_VERSION = 1


@dataclass(frozen=True)
class LossModel:
    """Loss rates, gap distributions and priors for queries over incomplete streams (THRESHOLD).

    `loss` is the share of events that readers lose. `component_loss` gives this share for a component, by its variable.
    `reader_loss` gives it for a reader. A component's reader is the value to which its own condition fixes the
    attribute named in `reader`, as in `x.reader = 'shelf'`; with `reader="type"` it is the component's event type. The
    rate of a component takes precedence over that of its reader, and the rate of a reader over `loss`.

    `gaps` maps a variable to the distribution of the time since the positive component before it. Negative components
    need a gap too; the first component needs none. `priors` give the probability that a component happens at all, and
    `skip_gaps` the time to the next component if it does not. `background` is the mean time, for each key, between
    events that fit a component but belong to no match. `probability` needs priors, but `score` does not.

    >>> from ouzel.loss import Exponential
    >>> model = LossModel(0.05, gaps={"c": Exponential("20 min")}, priors={"a": 0.9})
    >>> LossModel.from_json(model.to_json()) == model
    True
    """

    loss: float = 0.0
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    priors: Mapping[str, float] = field(default_factory=dict)
    skip_gaps: Mapping[str, Gap] = field(default_factory=dict)
    background: Mapping[str, GivenLength] = field(default_factory=dict)
    component_loss: Mapping[str, float] = field(default_factory=dict)
    reader_loss: Mapping[str, float] = field(default_factory=dict)
    reader: str = "reader"

    def __post_init__(self) -> None:
        object.__setattr__(self, "loss", _rate(self.loss, "loss", below_one=True))
        for name in ("component_loss", "reader_loss"):
            given = _mapping(getattr(self, name), name)
            rates = {str(key): _rate(value, f"{name}[{key!r}]", below_one=True) for key, value in given.items()}
            object.__setattr__(self, name, rates)
        priors = {str(key): _rate(value, f"priors[{key!r}]") for key, value in _mapping(self.priors, "priors").items()}
        object.__setattr__(self, "priors", priors)
        for name in ("gaps", "skip_gaps"):
            given = _mapping(getattr(self, name), name)
            for key, gap in given.items():
                if not isinstance(gap, Gap):
                    raise InputError(f"{name}[{key!r}] must be a gap such as Exponential('5 min'), got {gap!r}")
            object.__setattr__(self, name, dict(given))
        given = _mapping(self.background, "background")
        background = {str(key): length_of(value, f"background[{key!r}]") for key, value in given.items()}
        for key, value in background.items():
            if not (value.nanoseconds if isinstance(value, Duration) else value) > 0:
                raise InputError(f"background[{key!r}] must be a mean time above 0, got {given[key]!r}")
        object.__setattr__(self, "background", background)
        if not isinstance(self.reader, str):
            raise InputError(f"reader must be the name of an attribute, got {self.reader!r}")

    def loss_of(self, component: str, readers: Sequence[str] | None) -> float:
        """The loss rate of a component that these readers read; None if the readers are not known.

        Of several readers, the highest rate counts. Without readers, nothing can be lost.
        """
        if component in self.component_loss:
            return self.component_loss[component]
        if readers is None or not self.reader_loss:
            return self.loss
        return max((self.reader_loss.get(reader, self.loss) for reader in readers), default=0.0)

    def background_of(self, component: str, tick_ns: int | None) -> float | None:
        """The mean time in ticks between background events that fit a component; None if the model has none."""
        given = self.background.get(component)
        return None if given is None else in_ticks(given, tick_ns, f"background[{component!r}]")

    @classmethod
    def fit(
        cls,
        events: Any,
        query: Any = None,
        *,
        components: Sequence[str] | None = None,
        time: str = "ts",
        type: str | None = "type",
        time_unit: str | None = None,
        params: Mapping[str, Any] | None = None,
        family: str | Mapping[str, str] = "auto",
        **given: Any,
    ) -> LossModel:
        """Learn a model from a lossy stream, or from a history without loss.

        With `query`, `events` is a stream, in any form that `ouzel.match` takes, or as Spark DataFrames. Loss rates,
        gaps, priors and background are learnt by expectation maximisation. Components between the first and the last
        get different loss rates if these fit clearly better than a common rate. If `loss` or `reader_loss` is given,
        the gaps that skip a component are learnt too.

        Without `query`, `events` is a table of matches, as `ouzel.match` returns it: a struct for each component, with
        the event's time in the field named by `time`. A null struct means that the component did not happen. Such rows
        decide its prior and the gap that skips it.

        `family` is exponential, gamma, lognormal, uniform or histogram; auto chooses one by Schwarz's criterion. Other
        fields of the model can be given as arguments, and are then not learnt.

        >>> history = [{"a": {"ts": 0}, "b": {"ts": gap}} for gap in (5, 9, 10, 11, 15)]
        >>> LossModel.fit(history, loss=0.1, family="exponential").gaps
        {'b': Exponential(mean=10.0)}
        """
        if query is not None:
            import ouzel

            learning: Any = ouzel.learning
            source = learning.source_of(events, query, time=time, type=type, time_unit=time_unit, params=params)
            try:
                learnt: LossModel = learning.fit(source, given, family)[0]
                for sentence in learning.report(source, learnt).warnings:
                    warnings.warn(sentence, ModelWarning, stacklevel=2)
                return learnt
            finally:
                source.close()
        gaps, skip_gaps, priors = fitted(events, components, time, family)
        given_by_hand = {name: _mapping(given.pop(name, {}), name) for name in ("gaps", "skip_gaps", "priors")}
        return cls(
            gaps={**gaps, **given_by_hand["gaps"]},
            skip_gaps={**skip_gaps, **given_by_hand["skip_gaps"]},
            priors={**priors, **given_by_hand["priors"]},
            **given,
        )

    def report(
        self,
        events: Any,
        query: Any,
        *,
        time: str = "ts",
        type: str | None = "type",
        time_unit: str | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> Report:
        """How well the model fits a stream: rates, gaps and their families, and calibration with events that are hidden
        for this purpose.

        Its `warnings` say where the stream contradicts the model. `fit` gives them as `ouzel.ModelWarning`.
        """
        import ouzel

        learning: Any = ouzel.learning
        source = learning.source_of(events, query, time=time, type=type, time_unit=time_unit, params=params)
        try:
            made: Report = learning.report(source, self)
            return made
        finally:
            source.close()

    def to_json(self) -> str:
        """The model as text, which `from_json` reads."""
        return json.dumps(
            {
                "version": _VERSION,
                "loss": self.loss,
                "component_loss": dict(self.component_loss),
                "reader_loss": dict(self.reader_loss),
                "reader": self.reader,
                "priors": dict(self.priors),
                "background": {name: plain(length) for name, length in self.background.items()},
                "gaps": {name: gap.to_dict() for name, gap in self.gaps.items()},
                "skip_gaps": {name: gap.to_dict() for name, gap in self.skip_gaps.items()},
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> LossModel:
        """The model from the text of `to_json`."""
        try:
            stored = json.loads(text)
        except (TypeError, ValueError) as error:
            raise InputError(f"this is not a loss model in JSON: {error}") from None
        if not isinstance(stored, Mapping):
            raise InputError("this is not a loss model in JSON: it is not an object")
        fields = {key: value for key, value in stored.items() if key != "version"}
        if stored.get("version", _VERSION) != _VERSION:
            raise InputError(f"this loss model has version {stored['version']}; this Ouzel reads version {_VERSION}")
        unknown = set(fields) - set(cls.__dataclass_fields__)
        if unknown:
            raise InputError(f"a loss model has no '{sorted(unknown)[0]}'")
        for name in ("gaps", "skip_gaps"):
            fields[name] = {key: gap_from_dict(gap) for key, gap in _mapping(fields.get(name, {}), name).items()}
        background = _mapping(fields.get("background", {}), "background")
        fields["background"] = {key: from_plain(value) for key, value in background.items()}
        return cls(**fields)

    def plot(self, path: str | None = None, *, components: Sequence[str] | None = None) -> Any:
        """A matplotlib figure with the densities of gaps, loss rates and priors. With `path` it is also written to a
        file.

        It has one panel for each component, with its gap and the gap that skips it.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise InputError("plotting a loss model needs matplotlib: pip install matplotlib") from None
        names = list(components) if components is not None else list(dict.fromkeys([*self.gaps, *self.skip_gaps]))
        if not names:
            raise InputError("this loss model has no gaps to plot")
        unknown = [name for name in names if name not in self.gaps and name not in self.skip_gaps]
        if unknown:
            raise InputError(f"this loss model has no gap of '{unknown[0]}'; it has {', '.join(self.gaps) or 'none'}")
        figure = Figure(figsize=(6, 2.2 * len(names)), layout="constrained")
        for number, name in enumerate(names, start=1):
            axes = figure.add_subplot(len(names), 1, number)
            for gap, label in ((self.gaps.get(name), "gap"), (self.skip_gaps.get(name), "gap to the next if skipped")):
                if gap is not None:
                    _draw(axes, gap, label)
            facts = [f"loss {self.loss_of(name, None):g}"]
            if name in self.priors:
                facts.append(f"prior {self.priors[name]:g}")
            axes.set_title(f"{name}: {', '.join(facts)}", fontsize=10, loc="left")
            axes.set_yticks([])
            axes.legend(fontsize=8)
        if path is not None:
            try:
                figure.savefig(path, dpi=120)
            except (OSError, ValueError) as error:
                raise InputError(f"cannot write the picture to '{path}': {error}") from None
        return figure


def _draw(axes: Any, gap: Gap, label: str) -> None:
    try:
        in_units, unit = gap.in_ticks(None), "ticks"
    except InputError:
        in_units, unit = gap.in_ticks(NANOSECONDS_OF_UNIT["s"]), "seconds"
    marks = in_units.landmarks()
    end = marks[-1] if in_units.kinks else float(np.interp(0.995, in_units.cdf(np.array(marks)), marks))
    t = np.linspace(0.0, end * 1.05, 400)[1:]
    axes.plot(t, in_units.density(t), label=f"{label}, {gap.family}")
    axes.set_xlabel(unit, fontsize=8)


def _mapping(given: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(given, Mapping):
        raise InputError(f"{what} must be a dictionary by name, got {given!r}")
    return given


def _rate(given: Any, what: str, *, below_one: bool = False) -> float:
    value = number_of(given, what)
    if not 0 <= value <= 1 or (below_one and value == 1):
        raise InputError(f"{what} must be between 0 and 1{', below 1' if below_one else ''}, got {given!r}")
    return value


__all__ = ["LossModel"]
