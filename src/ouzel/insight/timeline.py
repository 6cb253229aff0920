"""`ouzel.plot`: an SVG timeline with a lane of marks for each event type, and arcs for matches."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import numpy as np
import pyarrow as pa

from ouzel.bind.diagnostics import listed, nearest
from ouzel.bind.model import BoundQuery, Component
from ouzel.errors import InputError, QueryError
from ouzel.insight.events import Events, read_events
from ouzel.insight.words import plain
from ouzel.lang.syntax import Output, OutputForm
from ouzel.notebook import Picture
from ouzel.prepared import OneQuery, Query, RowPatternQuery, as_queries
from ouzel.runtime.engine import match
from ouzel.runtime.frames import ticks_to_time
from ouzel.runtime.layout import ticks_of

# Up to so many matches are drawn one by one; more are drawn as incidents, and too many incidents as densities.
MATCHES_MAX = 20
INCIDENTS_MAX = 60
MATCHES_GROUPED_MAX = 10_000
EVENTS_MAX = 3_000
_COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#444444")
_LEFT, _TOP, _LANE, _BOTTOM, _RIGHT = 24, 56, 58, 46, 24
_CHARACTER, _SMALL_CHARACTER = 7.0, 6.4
_BAR = 6
_STYLE = """
  text { font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2933; }
  .title { font-weight: 600; font-size: 14px; }
  .small { font-size: 11px; fill: #627d98; }
  .lane { stroke: #d9e2ec; stroke-width: 1; }
  .axis { stroke: #829ab1; stroke-width: 1; }
  .event { fill: #bcccdc; stroke: #627d98; stroke-width: 1; }
  .match { fill: none; stroke-width: 1.8; }
  .density { fill: #829ab1; }
  .ends { fill: #d95f02; }
  .middle { text-anchor: middle; }
  .value { paint-order: stroke; stroke: #ffffff; stroke-width: 3px; }
"""


def plot(
    events: Any,
    query: OneQuery,
    *,
    params: Mapping[str, Any] | None = None,
    time: str = "ts",
    type: str | None = "type",
    order: Collection[str] = (),
    time_unit: str | None = None,
    label: str | None = None,
    title: str | None = None,
    width: int = 900,
    incidents_max: int = INCIDENTS_MAX,
) -> Picture:
    """A timeline as the text of an SVG picture: a lane of marks for each event type, an arc for each step of a match.

    With more than 20 matches, those that share events are drawn as one incident, with one arc and the number of
    matches. With more than `incidents_max` incidents, each lane shows the number of events over time, and one more lane
    the number of matches that end. If there are many events, only those of the pattern's types during the matches are
    drawn. `label` names a column whose value is written next to each mark, if there is space. The other arguments are
    those of `match`. Notebooks show the picture.

    >>> events = [{"type": "A", "ts": 1}, {"type": "B", "ts": 2}, {"type": "A", "ts": 3}]
    >>> picture = plot(events, "PATTERN SEQ(A a, B b) WITHIN 10")
    >>> picture.startswith("<svg"), picture.count('class="event"'), picture.count('class="match"')
    (True, 3, 1)
    """
    (prepared,) = as_queries(query, params).values()
    if isinstance(prepared, RowPatternQuery):
        raise QueryError(
            "only matches of PATTERN queries can be drawn, not those of MATCH_RECOGNIZE",
            hint="ALL ROWS PER MATCH with CLASSIFIER() lists the rows of each match, and ouzel.why explains a row",
        )
    if not isinstance(prepared, Query) or prepared.tree.aggregates:
        raise QueryError("only matches can be drawn, not aggregates over them", hint="leave AGG out to see the matches")
    # The events of the matches are needed, even if RETURN would drop them.
    output = prepared.tree.output
    if output is not None and output.form is OutputForm.COMPRESSED:
        output = None
    # Every match is asked for on purpose here.
    output = output or Output(OutputForm.ALL)
    drawn = replace(prepared, tree=replace(prepared.tree, returns=None, output=output))
    read = read_events(events, {drawn.name: drawn}, time=time, type=type, order=order, time_unit=time_unit)
    if label is not None and label not in read.table.column_names:
        hint = nearest(label, read.table.column_names) or f"the columns are {listed(read.table.column_names, 'and')}"
        raise InputError(f"there is no column '{label}' to label the marks with; {hint}")
    found = match(events, drawn, time=time, type=type, order=order, time_unit=time_unit)
    notes = [f"{counted(found.num_rows, 'match', 'matches')}, {read.count:,} events"]
    name = title or prepared.name
    incidents = None
    if found.num_rows <= MATCHES_GROUPED_MAX:
        paths = list(_paths(read, found))
        incidents = [Incident(path, 1) for path in paths] if len(paths) <= MATCHES_MAX else _incidents(paths)
    if incidents is None or len(incidents) > incidents_max:
        notes.append("too many for arcs: each bar shows how many")
        ends = ticks_of(found.select(["end"]).rename_columns([read.layout.time]), read.layout)
        return Picture(_Canvas(read, np.arange(read.count), width, None).densities(name, "; ".join(notes), ends))
    if len(incidents) < found.num_rows:
        notes.append(f"an arc for each of {counted(len(incidents), 'incident', 'incidents')}")
    places = _drawn_places(read, [incident.path for incident in incidents])
    if len(places) < read.count:
        notes.append(f"{len(places):,} events are drawn")
    return Picture(_Canvas(read, places, width, label).picture(name, "; ".join(notes), incidents))


def counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"


class Incident(NamedTuple):
    """One match that is drawn for a set of matches that share events, with the number of these matches."""

    path: list[int]
    matches: int


def _incidents(paths: list[list[int]]) -> list[Incident]:
    """Incidents: sets of matches that share events, directly or through other matches. The longest match of each is
    drawn.
    """
    owner: dict[int, int] = {}
    parent = list(range(len(paths)))

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = parent[parent[number]]
            number = parent[number]
        return number

    for number, path in enumerate(paths):
        for place in path:
            parent[root(owner.setdefault(place, number))] = root(number)
    members: dict[int, list[list[int]]] = {}
    for number, path in enumerate(paths):
        members.setdefault(root(number), []).append(path)
    return [
        Incident(max(group, key=lambda path: (len(path), path[-1] - path[0])), len(group)) for group in members.values()
    ]


def _paths(events: Events, found: pa.Table) -> Iterator[list[int]]:
    """For each match, the indexes of its events, in the order of the pattern."""
    at_time: dict[Any, list[int]] = {}
    for place, time in enumerate(events.table.column(events.layout.time).to_pylist()):
        at_time.setdefault(time, []).append(place)
    for row in found.to_pylist():
        path = []
        for component in events.query.positives:
            bound = row[component.variable]
            for one in bound if component.kleene else [] if bound is None else [bound]:
                there = at_time[one[events.layout.time]]
                # If two events are equal in all columns, either may be drawn.
                path.append(next(place for place in there if _is_it(events, component, place, one)))
        # AND has its components in any order.
        yield sorted(path)


def _is_it(events: Events, component: Component, place: int, one: Mapping[str, Any]) -> bool:
    """Whether the event at an index is the one that a match returned as a struct."""
    kind = events.types[place].as_py()
    if component.types is not None and kind not in component.types:
        return False
    return all(
        _key(events.table.column(events.layout.column(kind, name))[place].as_py()) == _key(value)
        for name, value in one.items()
    )


def _key(value: Any) -> Any:
    return repr(value) if isinstance(value, dict | list | float) else value


def _drawn_places(events: Events, paths: list[list[int]]) -> np.ndarray:
    places = np.arange(events.count)
    if len(places) <= EVENTS_MAX:
        return places
    bound = np.array(sorted({place for path in paths for place in path}), np.int64)
    relevant = np.logical_or.reduce([events.are_of(component) for component in events.query.components])
    if len(bound):
        inside = (events.end >= events.end[bound].min()) & (events.end <= events.end[bound].max())
        relevant = relevant & inside
    rest = np.setdiff1d(np.flatnonzero(relevant), bound)
    room = max(EVENTS_MAX - len(bound), 0)
    if len(rest) > room:
        # Spread over the whole time, not crowded at its start.
        rest = rest[np.linspace(0, len(rest) - 1, room).astype(np.int64)] if room else rest[:0]
    return np.union1d(bound, rest)


# ── Drawing ────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class _Canvas:
    events: Events
    places: np.ndarray
    width: int
    label: str | None

    def __post_init__(self) -> None:
        taken = self.events.types.take(pa.array(self.places)).to_pylist()
        kinds = ["no type" if kind is None else str(kind) for kind in taken]
        self._kind = dict(zip(self.places.tolist(), kinds, strict=True))
        self._lanes = _lane_order(self.events.query, set(kinds))
        names = max((len(name) for name in self._lanes), default=0)
        self._x0 = _LEFT + names * _CHARACTER + 16
        ticks = self.events.end[self.places]
        self._first = int(ticks.min()) if len(ticks) else 0
        self._span = max(int(ticks.max()) - self._first if len(ticks) else 1, 1)

    def x(self, tick: int) -> float:
        return self._x0 + 12 + (tick - self._first) / self._span * (self.width - _RIGHT - self._x0 - 24)

    def y(self, kind: str) -> float:
        return _TOP + _LANE * (self._lanes.index(kind) + 0.62)

    def point(self, place: int) -> tuple[float, float]:
        return self.x(int(self.events.end[place])), self.y(self._kind[place])

    def picture(self, title: str, note: str, incidents: list[Incident]) -> str:
        """The picture with marks and arcs."""
        bound = {place for incident in incidents for place in incident.path}
        return self._framed(title, note, self._matches(incidents) + self._marks(bound) + self._labels(bound))

    def densities(self, title: str, note: str, ends: np.ndarray) -> str:
        """The picture with bars over time: for the events of each lane, and for the matches that end."""
        kinds = np.array([self._lanes.index(kind) for kind in self._kind.values()])
        ticks = self.events.end[self.places]
        self._lanes.append("matches")
        bars = [self._bars(ticks[kinds == lane], lane, "density") for lane in range(len(self._lanes) - 1)]
        bars.append(self._bars(ends, len(self._lanes) - 1, "ends"))
        return self._framed(title, note, [bar for lane in bars for bar in lane])

    def _bars(self, ticks: np.ndarray, lane: int, style: str) -> list[str]:
        left, right = self.x(self._first), self.x(self._first + self._span)
        count = max(int((right - left) / _BAR), 1)
        heights, _ = np.histogram(ticks, bins=count, range=(self._first, self._first + self._span))
        base, step = self.y(self._lanes[lane]), (right - left) / count
        most = max(int(heights.max()), 1)
        bars = [
            f'<rect class="{style}" x="{left + place * step:.1f}" y="{base - height / most * _LANE * 0.55:.1f}" '
            f'width="{step - 1:.1f}" height="{height / most * _LANE * 0.55:.1f}"/>'
            for place, height in enumerate(heights.tolist())
            if height
        ]
        return [*bars, f'<text class="small" x="{_LEFT}" y="{base + 18:.1f}">at most {most:,}</text>']

    def _framed(self, title: str, note: str, content: list[str]) -> str:
        height = _TOP + _LANE * max(len(self._lanes), 1) + _BOTTOM
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{height}" '
            f'viewBox="0 0 {self.width} {height}" role="img" aria-label="{escape(title, {chr(34): "&quot;"})}">'
        )
        parts = [head, f"<style>{_STYLE}</style>", '<rect width="100%" height="100%" fill="#ffffff"/>']
        parts.append(f'<text class="title" x="{_LEFT}" y="22">{escape(title)}</text>')
        parts.append(f'<text class="small" x="{_LEFT}" y="39">{escape(note)}</text>')
        parts += self._background(height) + content
        return "\n".join([*parts, "</svg>"])

    def _background(self, height: int) -> list[str]:
        parts = []
        for kind in self._lanes:
            y = self.y(kind)
            parts.append(
                f'<line class="lane" x1="{self._x0:.1f}" y1="{y:.1f}" x2="{self.width - _RIGHT}" y2="{y:.1f}"/>'
            )
            parts.append(f'<text x="{_LEFT}" y="{y + 4:.1f}">{escape(kind)}</text>')
        base = height - _BOTTOM + 8
        parts.append(f'<line class="axis" x1="{self._x0:.1f}" y1="{base}" x2="{self.width - _RIGHT}" y2="{base}"/>')
        time = self.events.layout.schema.field(self.events.layout.time).type
        for tick in _axis_ticks(self._first, self._first + self._span, time):
            x = self.x(tick)
            parts.append(f'<line class="axis" x1="{x:.1f}" y1="{base}" x2="{x:.1f}" y2="{base + 5}"/>')
            label = escape(_tick_label(tick, time, self._span))
            parts.append(f'<text class="small middle" x="{x:.1f}" y="{base + 19}">{label}</text>')
        return parts

    def _marks(self, bound: set[int]) -> list[str]:
        parts = []
        radius = 4.5 if len(self.places) <= 300 else 2.5
        # Draw the events of matches above the others.
        for place in sorted(self.places.tolist(), key=lambda place: (place in bound, place)):
            x, y = self.point(place)
            style = ' style="fill:#334e68"' if place in bound else ""
            parts.append(f'<circle class="event" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"{style}/>')
        return parts

    def _labels(self, bound: set[int]) -> list[str]:
        """The texts next to marks, those of matches first. A label that would overlap another in its lane is left
        out.
        """
        if self.label is None:
            return []
        column = self.events.table.column(self.label)
        parts = []
        # The left and right ends of labels by lane, in order and without overlaps.
        taken: dict[float, list[tuple[float, float]]] = {}
        for place in sorted(self.places.tolist(), key=lambda place: (place not in bound, place)):
            x, y = self.point(place)
            value = column[place].as_py()
            text = "" if value is None else str(value)
            half = len(text) * _SMALL_CHARACTER / 2 + 3
            lane = taken.setdefault(y, [])
            after = bisect(lane, (x, x))
            free = (after == 0 or lane[after - 1][1] <= x - half) and (after == len(lane) or x + half <= lane[after][0])
            if text and free:
                lane.insert(after, (x - half, x + half))
                parts.append(f'<text class="small middle value" x="{x:.1f}" y="{y + 18:.1f}">{escape(text)}</text>')
        return parts

    def _matches(self, incidents: list[Incident]) -> list[str]:
        opacity = 0.9 if len(incidents) <= 20 else 0.6
        taken: dict[tuple[int, int], int] = {}
        parts = []
        for number, incident in enumerate(incidents):
            colour = _COLOURS[number % len(_COLOURS)]
            path = incident.path
            drawn = []
            for place, after in pairwise(path):
                # Matches that share a step lie beside each other.
                lane = taken.get((place, after), 0)
                taken[place, after] = lane + 1
                drawn.append(_arc(self.point(place), self.point(after), lane))
            if not drawn:
                x, y = self.point(path[0])
                drawn.append(f"M{x - 8:.1f},{y:.1f} a8,8 0 1,0 16,0 a8,8 0 1,0 -16,0")
            curve = " ".join(drawn)
            parts.append(f'<path class="match" d="{curve}" style="stroke:{colour};opacity:{opacity}"/>')
            if incident.matches > 1:
                x, y = self.point(path[-1])
                parts.append(f'<text class="small value" x="{x + 6:.1f}" y="{y - 7:.1f}">×{incident.matches:,}</text>')
        return parts


def _arc(start: tuple[float, float], end: tuple[float, float], lane: int) -> str:
    """The path from one mark to the next: an arc above the lane within a type, an S-shaped curve between types."""
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:
        lift = min(14 + (x2 - x1) * 0.12, 30) + 5 * (lane % 4)
        return f"M{x1:.1f},{y1:.1f} C{x1:.1f},{y1 - lift:.1f} {x2:.1f},{y2 - lift:.1f} {x2:.1f},{y2:.1f}"
    middle = (x1 + x2) / 2 + 7 * ((lane + 1) // 2) * (-1 if lane % 2 else 1)
    return f"M{x1:.1f},{y1:.1f} C{middle:.1f},{y1:.1f} {middle:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"


def _lane_order(query: BoundQuery, kinds: set[str]) -> list[str]:
    """The types of the pattern in its order, then all other types by name."""
    named = [kind for component in query.components for kind in component.types or ()]
    ordered = [kind for kind in dict.fromkeys(named) if kind in kinds]
    return ordered + sorted(kinds - set(ordered))


def _axis_ticks(first: int, last: int, time: pa.DataType) -> list[int]:
    """About six times for the axis, at round values."""
    second = 1_000_000_000 if getattr(time, "unit", None) == "ns" else 1_000_000
    steps = [10**power * digit for power in range(19) for digit in (1, 2, 5)]
    if pa.types.is_timestamp(time):
        minute, hour, day = 60 * second, 3_600 * second, 86_400 * second
        clock = [n * minute for n in (1, 2, 5, 10, 15, 30)] + [n * hour for n in (1, 2, 3, 6, 12)]
        clock += [n * day for n in (1, 2, 7, 14, 28, 91, 365)]
        steps = [step for step in steps if step <= 30 * second] + clock
    step = next((step for step in steps if (last - first) / step <= 8), steps[-1])
    return list(range(-(-first // step) * step, last + 1, step))


def _tick_label(tick: int, time: pa.DataType, span: int) -> str:
    value = ticks_to_time(np.array([tick], np.int64), time)[0].as_py()
    if not hasattr(value, "strftime"):
        return plain(value)
    day = 86_400 * (1_000_000_000 if time.unit == "ns" else 1_000_000)
    if span > 3 * day:
        return str(value.strftime("%d %b"))
    return str(value.strftime("%H:%M:%S" if value.second or span < day // 200 else "%H:%M"))
