"""A picture of a loss model. Only this file uses matplotlib, which Ouzel does not depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ouzel.errors import InputError
from ouzel.loss.gaps import Gap

if TYPE_CHECKING:
    from ouzel.loss.model import LossModel

_SECOND_NS = 10**9


def plot(model: LossModel, components: Sequence[str] | None, path: str | None) -> Any:
    """One panel for each component: its gap, the gap that skips it, its loss rate and its prior."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("plotting a loss model needs matplotlib: pip install matplotlib") from None
    names = list(components) if components is not None else list(dict.fromkeys([*model.gaps, *model.skip_gaps]))
    if not names:
        raise InputError("this loss model has no gaps to plot")
    unknown = [name for name in names if name not in model.gaps and name not in model.skip_gaps]
    if unknown:
        raise InputError(f"this loss model has no gap of '{unknown[0]}'; it has {', '.join(model.gaps) or 'none'}")
    figure = Figure(figsize=(6, 2.2 * len(names)), layout="constrained")
    for number, name in enumerate(names, start=1):
        axes = figure.add_subplot(len(names), 1, number)
        for gap, label in ((model.gaps.get(name), "gap"), (model.skip_gaps.get(name), "gap to the next if skipped")):
            if gap is not None:
                _draw(axes, gap, label)
        facts = [f"loss {model.loss_of(name, None):g}"]
        if name in model.priors:
            facts.append(f"prior {model.priors[name]:g}")
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
        in_units, unit = gap.in_ticks(_SECOND_NS), "seconds"
    marks = in_units.landmarks()
    end = marks[-1] if in_units.kinks else float(np.interp(0.995, in_units.cdf(np.array(marks)), marks))
    t = np.linspace(0.0, end * 1.05, 400)[1:]
    axes.plot(t, in_units.density(t), label=f"{label}, {gap.family}")
    axes.set_xlabel(unit, fontsize=8)
