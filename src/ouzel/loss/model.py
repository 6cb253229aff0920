"""What a stream loses and how its gaps are distributed: `LossModel`, given by hand or fitted to a history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ouzel.errors import InputError
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.loss.gaps import Gap, gap_from_dict, number_of

_VERSION = 1


@dataclass(frozen=True)
class LossModel:
    """Loss rates, gap distributions and priors for queries over incomplete streams (THRESHOLD).

    `loss` is the share of events that readers lose. `component_loss` gives it for a component, by its variable.
    `reader_loss` gives it for a reader: the value that a component's own condition gives to the attribute named in
    `reader` (`x.reader = 'shelf'`), or the component's event type with `reader="type"`. The rate of a component takes
    precedence over that of its reader, and the rate of a reader over `loss`.

    `gaps` maps a variable to the time between the positive component before it and itself. Negative components need
    one; the first component needs none. `priors` give the probability that each component happens at all, and
    `skip_gaps` the time to the next component if it does not. `probability` needs priors, `score` does not.

    >>> from ouzel.loss import Exponential
    >>> model = LossModel(0.05, gaps={"c": Exponential("20 min")}, priors={"a": 0.9})
    >>> LossModel.from_json(model.to_json()) == model
    True
    """

    loss: float = 0.0
    gaps: Mapping[str, Gap] = field(default_factory=dict)
    priors: Mapping[str, float] = field(default_factory=dict)
    skip_gaps: Mapping[str, Gap] = field(default_factory=dict)
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
        if not isinstance(self.reader, str):
            raise InputError(f"reader must be the name of an attribute, got {self.reader!r}")

    def loss_of(self, component: str, readers: Sequence[str] | None) -> float:
        """The loss rate of a component that these readers read; None if the readers are not known.

        With several readers, the highest rate counts. With none, nothing can be lost.
        """
        if component in self.component_loss:
            return self.component_loss[component]
        if readers is None or not self.reader_loss:
            return self.loss
        return max((self.reader_loss.get(reader, self.loss) for reader in readers), default=0.0)

    @classmethod
    def fit(
        cls,
        matches: Any,
        *,
        components: Sequence[str] | None = None,
        time: str = "ts",
        family: str | Mapping[str, str] = "auto",
        **given: Any,
    ) -> LossModel:
        """Learn gaps, and priors where the history shows them, from a history without loss.

        `matches` is a table as `ouzel.match` returns it: a struct for each component, with the event's time in the
        field named by `time`. A null struct means that the component did not happen; such rows give its prior and the
        gap that skips it. `family` is auto, which chooses by Schwarz's criterion, or one of exponential, gamma,
        lognormal, uniform and histogram. All other fields of the model can be given as arguments.

        >>> history = [{"a": {"ts": 0}, "b": {"ts": gap}} for gap in (5, 9, 10, 11, 15)]
        >>> LossModel.fit(history, loss=0.1, family="exponential").gaps
        {'b': Exponential(mean=10.0)}
        """
        from ouzel.loss.fitting import fitted

        gaps, skip_gaps, priors = fitted(matches, components, time, family)
        given_by_hand = {name: _mapping(given.pop(name, {}), name) for name in ("gaps", "skip_gaps", "priors")}
        return cls(
            gaps={**gaps, **given_by_hand["gaps"]},
            skip_gaps={**skip_gaps, **given_by_hand["skip_gaps"]},
            priors={**priors, **given_by_hand["priors"]},
            **given,
        )

    def to_json(self) -> str:
        """The model as text; `from_json` reads it."""
        return json.dumps(
            {
                "version": _VERSION,
                "loss": self.loss,
                "component_loss": dict(self.component_loss),
                "reader_loss": dict(self.reader_loss),
                "reader": self.reader,
                "priors": dict(self.priors),
                "gaps": {name: gap.to_dict() for name, gap in self.gaps.items()},
                "skip_gaps": {name: gap.to_dict() for name, gap in self.skip_gaps.items()},
            },
            sort_keys=True,
        )

    @classmethod
    def from_json(cls, text: str) -> LossModel:
        """The model that `to_json` wrote."""
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
        return cls(**fields)

    def plot(self, path: str | None = None, *, components: Sequence[str] | None = None) -> Any:
        """The gaps' densities with loss rates and priors, as a matplotlib figure; with `path` also as a file.

        One panel for each component shows its gap and the gap that skips it.
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
