"""Learning a loss model from a history of complete matches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ouzel.errors import InputError
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT
from ouzel.loss.gaps import FAMILIES, Duration, Exponential, Gamma, Gap, Histogram, LogNormal, Uniform

Array = NDArray[np.float64]
Fitted = tuple[dict[str, Gap], dict[str, Gap], dict[str, float]]

# With fewer gaps a histogram would show noise; with more, its bins hold a few dozen each.
_BINS_MAX = 40


def fitted(matches: Any, components: Sequence[str] | None, time: str, family: str | Mapping[str, str]) -> Fitted:
    """Gaps, gaps after skipped components, and priors."""
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
        if happened[place].all():
            # Complete matches only: they do not show how often the component fails to happen.
            continue
        priors[name] = float(happened[place].mean())
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
    """The time of a component's event in each row, where it happened, and the nanoseconds of a tick if it has any."""
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
    candidates = [family] if family != "auto" else ["exponential", "gamma", "lognormal"]
    made = [_FITS[name](gaps) for name in candidates]
    best = min(made, key=lambda gap: _schwarz(gap, gaps)) if len(made) > 1 else made[0]
    return _with_units(best) if exact else best


def _schwarz(gap: Gap, gaps: Array) -> float:
    """The Bayesian information criterion; smaller is better. An extra parameter must improve the fit clearly."""
    likelihood = float(np.log(np.maximum(gap.density(gaps), 1e-300)).sum())
    return (1 if isinstance(gap, Exponential) else 2) * math.log(len(gaps)) - 2 * likelihood


def _with_units(gap: Gap) -> Gap:
    """Fitted in nanoseconds, so that the model holds for every tick of an input."""
    stored = gap.to_dict()
    changed: dict[str, Any] = {}
    for name, value in stored.items():
        if name in gap.lengths:
            changed[name] = [Duration(item) for item in value] if isinstance(value, list) else Duration(value)
        elif name != "family":
            changed[name] = value
    return type(gap)(**changed)


def _exponential(gaps: Array) -> Gap:
    return Exponential(float(gaps.mean()))


def _gamma(gaps: Array) -> Gap:
    """Maximum likelihood: log(shape) - digamma(shape) = log(mean) - mean(log), solved by Newton's method."""
    spread = math.log(gaps.mean()) - float(np.log(gaps).mean())
    if spread <= 1e-8:
        return Gamma(10_000.0, float(gaps.mean()) / 10_000)
    shape = (3 - spread + math.sqrt((spread - 3) ** 2 + 24 * spread)) / (12 * spread)
    for _ in range(30):
        step = (math.log(shape) - _digamma(shape) - spread) / (1 / shape - _trigamma(shape))
        shape = max(shape - step, shape / 10)
        if abs(step) < 1e-12 * shape:
            break
    shape = min(max(shape, 0.1), 10_000.0)
    return Gamma(shape, float(gaps.mean()) / shape)


def _digamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total -= 1 / x
        x += 1
    inverse = 1 / (x * x)
    return (
        total + math.log(x) - 0.5 / x - inverse * (1 / 12 - inverse * (1 / 120 - inverse * (1 / 252 - inverse / 240)))
    )


def _trigamma(x: float) -> float:
    total = 0.0
    while x < 8:
        total += 1 / (x * x)
        x += 1
    inverse = 1 / (x * x)
    return total + 1 / x + inverse / 2 + inverse / x * (1 / 6 - inverse * (1 / 30 - inverse * (1 / 42 - inverse / 30)))


def _lognormal(gaps: Array) -> Gap:
    logs = np.log(gaps)
    return LogNormal(float(np.exp(logs.mean())), float(min(max(logs.std(), 0.001), 20.0)))


def _uniform(gaps: Array) -> Gap:
    """The ends are slightly beyond the observed gaps, since the next gap may be."""
    low, high = float(gaps.min()), float(gaps.max())
    beyond = max((high - low) / max(len(gaps) - 1, 1), 1e-6 * high)
    return Uniform(max(low - beyond, 0.0), high + beyond)


def _histogram(gaps: Array) -> Gap:
    """Bins of equal counts, so that the density is fine where there are many gaps."""
    bins = int(min(max(round(math.sqrt(len(gaps))), 1), _BINS_MAX))
    edges = np.unique(np.quantile(gaps, np.linspace(0, 1, bins + 1)))
    edges = np.concatenate([[max(edges[0] * 0.999, 0.0)], edges[1:-1], [edges[-1] * 1.001 + 1e-9]])
    counts = np.histogram(gaps, edges)[0]
    return Histogram(tuple(edges.tolist()), tuple(counts.astype(float).tolist()))


_FITS: Mapping[str, Callable[[Array], Gap]] = {
    "exponential": _exponential,
    "gamma": _gamma,
    "lognormal": _lognormal,
    "uniform": _uniform,
    "histogram": _histogram,
}
