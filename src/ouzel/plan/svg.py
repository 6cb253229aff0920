"""The automaton and the operators of a plan as an SVG picture, drawn without other programs."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from ouzel.plan.diagram import Arrow
    from ouzel.plan.explain import Explanation

_RADIUS = 26
_CHARACTER = 6.7  # width of one character of the 11 px monospace font
_LINE = 15
_MARGIN = 30
_STYLE = """
  text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1f2933; }
  .state { fill: #ffffff; stroke: #334e68; stroke-width: 1.6; }
  .name { font-weight: 600; text-anchor: middle; dominant-baseline: central; }
  .edge { fill: none; stroke: #334e68; stroke-width: 1.4; }
  .dashed { stroke-dasharray: 4 3; }
  .forbid { stroke: #c0392b; }
  .forbidden { fill: #c0392b; }
  .middle { text-anchor: middle; }
  .test { fill: #627d98; }
  .box { fill: #f0f4f8; stroke: #bcccdc; rx: 6; }
  .title { font-weight: 600; }
"""


def svg(explained: Explanation) -> str:
    """Draw an explanation: the automaton, below it the operators in the order in which events pass them, then the
    reasons."""
    arrows = explained.automaton.arrows
    states = explained.automaton.states
    loops: dict[int, list[Arrow]] = {}
    forwards: dict[int, list[Arrow]] = {}
    jumps: list[Arrow] = []
    for arrow in arrows:
        if arrow.source == arrow.target:
            loops.setdefault(arrow.source, []).append(arrow)
        elif arrow.target == arrow.source + 1:
            forwards.setdefault(arrow.source, []).append(arrow)
        else:
            jumps.append(arrow)
    above = max((sum(_height(a) for a in group) for group in loops.values()), default=0)
    below = max((sum(_height(a) for a in group) for group in forwards.values()), default=0)
    baseline = _MARGIN + above + 40 + _RADIUS
    centres = _centres(len(states), forwards, loops)
    parts: list[str] = []
    for source, group in forwards.items():
        parts += _forward(group, centres[source], centres[source + 1], baseline)
    for arrow in jumps:
        depth = below + 26
        below = depth + _height(arrow)
        parts += _jump(arrow, centres[arrow.source], centres[arrow.target], baseline, depth)
    for source, group in loops.items():
        parts += _loops(group, centres[source], baseline)
    for centre, state in zip(centres, states, strict=True):
        parts.append(f'<circle class="state" cx="{centre:.0f}" cy="{baseline}" r="{_RADIUS}"/>')
        if state.final:
            parts.append(f'<circle class="state" cx="{centre:.0f}" cy="{baseline}" r="{_RADIUS - 4}"/>')
        parts.append(f'<text class="name" x="{centre:.0f}" y="{baseline}">{escape(_short(state.name))}</text>')
    top = baseline + _RADIUS + below + 30
    boxes, bottom, box_width = _operator_boxes(explained, top)
    parts += boxes
    width = max(centres[-1] + _RADIUS, _MARGIN + box_width) + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom + _MARGIN:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom + _MARGIN:.0f}" role="img" '
        f'aria-label="plan of {_attribute(explained.name)}">'
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="#334e68"/></marker></defs>'
    )
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", marker, background, *parts, "</svg>"])


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _short(name: str) -> str:
    return name if len(name) <= 7 else name[:6] + "…"


def _title(arrow: Arrow) -> str:
    return " ".join(part for part in (arrow.kind, arrow.label) if part)


def _height(arrow: Arrow) -> float:
    return _LINE * (1 + len(arrow.predicates)) + 8


def _width(arrow: Arrow) -> float:
    return max(len(text) for text in (_title(arrow), *arrow.predicates)) * _CHARACTER


def _centres(count: int, forwards: dict[int, list[Arrow]], loops: dict[int, list[Arrow]]) -> list[float]:
    """Centres far enough apart for the widest text between and above neighbours."""
    reach = [max((_width(a) / 2 for a in loops.get(i, ())), default=0.0) for i in range(count)]
    centres = [_MARGIN + max(_RADIUS, reach[0])]
    for i in range(count - 1):
        between = max((_width(a) for a in forwards.get(i, ())), default=0.0) + 2 * _RADIUS + 24
        centres.append(centres[-1] + max(110.0, between, reach[i] + reach[i + 1] + 20))
    return centres


def _forward(group: list[Arrow], left: float, right: float, baseline: float) -> list[str]:
    dashed = " dashed" if all(a.kind == "proceed" for a in group) else ""
    parts = [
        f'<path class="edge{dashed}" marker-end="url(#tip)" '
        f'd="M{left + _RADIUS:.0f},{baseline} L{right - _RADIUS:.0f},{baseline}"/>'
    ]
    middle, y = (left + right) / 2, baseline + 18.0
    for arrow in group:
        parts.append(f'<text class="middle" x="{middle:.0f}" y="{y:.0f}">{escape(_title(arrow))}</text>')
        y += _LINE
        for predicate in arrow.predicates:
            parts.append(f'<text class="middle test" x="{middle:.0f}" y="{y:.0f}">{escape(predicate)}</text>')
            y += _LINE
        y += 8
    return parts


def _jump(arrow: Arrow, left: float, right: float, baseline: float, depth: float) -> list[str]:
    """An arrow over other states, below the straight ones and their tests."""
    top, bottom = baseline + _RADIUS, baseline + _RADIUS + depth
    dashed = " dashed" if arrow.kind == "proceed" else ""
    parts = [
        f'<path class="edge{dashed}" marker-end="url(#tip)" '
        f'd="M{left:.0f},{top} C{left + 10:.0f},{bottom} {left + 30:.0f},{bottom} {left + 50:.0f},{bottom} '
        f'L{right - 50:.0f},{bottom} C{right - 30:.0f},{bottom} {right - 10:.0f},{bottom} {right:.0f},{top}"/>'
    ]
    middle = (left + right) / 2
    for number, text in enumerate((_title(arrow), *arrow.predicates)):
        tone = "middle test" if number else "middle"
        y = bottom + _LINE * (number + 1)
        parts.append(f'<text class="{tone}" x="{middle:.0f}" y="{y:.0f}">{escape(text)}</text>')
    return parts


def _loops(group: list[Arrow], centre: float, baseline: float) -> list[str]:
    top = baseline - _RADIUS
    only_forbidding = all(a.kind == "forbid" for a in group)
    style = "edge forbid dashed" if only_forbidding else "edge dashed" if _only_quiet(group) else "edge"
    parts = [
        f'<path class="{style}" marker-end="url(#tip)" '
        f'd="M{centre - 11:.0f},{top + 3} C{centre - 30:.0f},{top - 40} {centre + 30:.0f},{top - 40} '
        f'{centre + 11:.0f},{top + 3}"/>'
    ]
    y = top - 38.0
    for arrow in reversed(group):
        for predicate in reversed(arrow.predicates):
            parts.append(f'<text class="middle test" x="{centre:.0f}" y="{y:.0f}">{escape(predicate)}</text>')
            y -= _LINE
        tone = "middle forbidden" if arrow.kind == "forbid" else "middle"
        parts.append(f'<text class="{tone}" x="{centre:.0f}" y="{y:.0f}">{escape(_title(arrow))}</text>')
        y -= _LINE + 8
    return parts


def _only_quiet(group: list[Arrow]) -> bool:
    return all(a.kind in ("ignore", "forbid") for a in group)


def _operator_boxes(explained: Explanation, top: float) -> tuple[list[str], float, float]:
    lines = (*explained.operators, *explained.reasons)
    longest = max(len(text) for line in lines for text in (line.operator, *line.does))
    width = longest * _CHARACTER + 30
    parts: list[str] = []
    y = top
    for number, line in enumerate(lines):
        height = _LINE * (1 + len(line.does)) + 14
        if 0 < number < len(explained.operators):
            middle = _MARGIN + 40
            parts.append(f'<path class="edge" marker-end="url(#tip)" d="M{middle},{y - 18:.0f} L{middle},{y:.0f}"/>')
        parts.append(f'<rect class="box" x="{_MARGIN}" y="{y:.0f}" width="{width:.0f}" height="{height}"/>')
        parts.append(f'<text class="title" x="{_MARGIN + 12}" y="{y + 18:.0f}">{escape(line.operator)}</text>')
        for i, text in enumerate(line.does):
            parts.append(f'<text x="{_MARGIN + 18}" y="{y + 18 + _LINE * (i + 1):.0f}">{escape(text)}</text>')
        y += height + 18
    return parts, y - 18, width
