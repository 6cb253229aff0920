"""What counting patterns together costs: steps of each sort for each event, and what a step takes.

All prices are nanoseconds of one machine for each event of the stream; only their ratios matter. Those of steps were
fitted by `python -m benchmarks.aggregate_prices`, those around them to whole answers, from the table to the counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ouzel.engines.aggregate.tree_tables import LANES, Part, SegmentPart


class Work(NamedTuple):
    """Steps for one event of each symbol, by its sort; or what a step of each sort costs."""

    plain: float = 0.0  # a node beside no segment
    levels: float = 0.0  # a word of its column
    below: float = 0.0  # a column below it
    beside: float = 0.0  # an entry or an exit of a segment
    joint: float = 0.0  # any other node beside segments
    lanes: float = 0.0  # so many words of snapshots and columns at a time
    segment: float = 0.0  # a place in a segment
    segment_lanes: float = 0.0
    rows: float = 0.0  # an answer


PRICES = Work(
    plain=23.3, levels=0.8, below=2.25, beside=60.0, joint=99.0, lanes=6.8, segment=6.1, segment_lanes=7.8, rows=14.0
)


# Around a step of counting: memory is touched for the first time, instances are copied, rows become columns.
TOGETHER, STAGED_TOGETHER, STEP_TOGETHER, ROW_TOGETHER = 28.0, 25.5, 1.8, 45.0
ALONE, STEP_ALONE, ROW_ALONE = 13.0, 2.1, 12.0


class _Node:
    """What is known of a node of the tree."""

    def __init__(self, symbol: int, *, is_exit: bool) -> None:
        self.symbol = symbol
        self.is_exit = is_exit
        self.below = 1
        self.entries = 0
        self.lanes = 0.0
        # It has nodes below it, or behind its segments nodes with something below them.
        self.has_nodes = False
        self.goes_on = False
        self.patterns = 0


def work_of(
    patterns: Sequence[Sequence[Part]], segments: Sequence[Sequence[int]] = (), *, levels: int | None = None
) -> list[tuple[int, Work]]:
    """The work of each place where a symbol is counted, with common beginnings merged.

    >>> [(symbol, work.below) for symbol, work in work_of([(0, 1), (0, 2)])]
    [(0, 3.0), (1, 1.0), (2, 1.0)]
    """
    lanes = [-(-(len(segment) + 1) // LANES) for segment in segments]
    nodes: dict[tuple[Part, ...], _Node] = {}
    entered: set[tuple[Part, ...]] = set()
    deepest = 0
    for pattern in patterns:
        level = 0
        above: list[tuple[_Node, Part]] = []  # with the part that follows
        for place, part in enumerate(pattern):
            here = tuple(pattern[: place + 1])
            if isinstance(part, SegmentPart):
                width = lanes[part.segment]
                if here not in entered:
                    entered.add(here)
                    _note_snapshot(above, level, width, len(segments[part.segment]) + 1)
                level += len(segments[part.segment]) + 1
                continue
            before = pattern[place - 1] if place else None
            if here not in nodes:
                nodes[here] = made = _Node(part, is_exit=isinstance(before, SegmentPart))
                if isinstance(before, SegmentPart):
                    # Read and multiplied when it comes, lost when it goes.
                    made.lanes += (level - len(segments[before.segment]) + 1) * lanes[before.segment]
                _note_column(above, lanes)
            level += 1
            if place + 1 < len(pattern):
                above.append((nodes[here], pattern[place + 1]))
            else:
                nodes[here].patterns += 1
        deepest = max(deepest, level)
    found = [(node.symbol, _work_of_node(node, (levels or deepest) + 1)) for node in nodes.values()]
    for segment, width in zip(segments, lanes, strict=True):
        found += [(symbol, Work(segment=1.0, segment_lanes=4.0 * width)) for symbol in segment]
    return found


def _note_snapshot(above: Sequence[tuple[_Node, Part]], level: int, lanes: int, side: int) -> None:
    """A segment follows the last node."""
    *earlier, (owner, _) = above
    owner.entries += 1
    owner.lanes += (level + 1) * lanes
    for node, part in earlier:
        node.lanes += side * lanes if isinstance(part, SegmentPart) else lanes
        node.goes_on |= isinstance(part, SegmentPart)


def _note_column(above: Sequence[tuple[_Node, Part]], lanes: Sequence[int]) -> None:
    """A node follows."""
    for distance, (node, part) in enumerate(reversed(above)):
        if isinstance(part, SegmentPart):
            node.lanes += lanes[part.segment]
            node.goes_on |= distance > 0
        else:
            node.below += 1
            node.has_nodes = True


def _work_of_node(node: _Node, levels: int) -> Work:
    if not node.is_exit and not node.entries:
        return Work(
            plain=1.0, levels=float(levels), below=float(node.below), lanes=node.lanes, rows=float(node.patterns)
        )
    simple = not node.has_nodes and node.is_exit + node.entries == 1 and not node.goes_on
    return Work(
        beside=float(simple),
        joint=float(not simple),
        below=float(node.below - 1),
        lanes=node.lanes,
        rows=float(node.patterns),
    )


def cost(
    patterns: Sequence[Sequence[Part]],
    segments: Sequence[Sequence[int]],
    rates: Sequence[float],
    *,
    levels: int | None = None,
) -> float:
    """What counting takes for each turn of the stream; `levels` if other patterns lie in columns as long as theirs.

    >>> cost([(0, 1, 2), (0, 1, 3)], (), [1.0] * 4) < 2 * cost([(0, 1, 2)], (), [1.0] * 4)
    True
    """
    return sum(
        rates[symbol] * sum(steps * price for steps, price in zip(work, PRICES, strict=True))
        for symbol, work in work_of(patterns, segments, levels=levels)
    )


def cost_together(counting: float, staged: float, rows: float) -> float:
    """What it adds to whole answers to count queries together: what counting costs, which share of all events is
    staged for them and not for others, and how many answers there are for each event. `TOGETHER` comes once."""
    return STEP_TOGETHER * counting + STAGED_TOGETHER * staged + ROW_TOGETHER * rows


def cost_alone(counting: float, rows: float) -> float:
    """What a whole answer costs that one query has for itself."""
    return ALONE + STEP_ALONE * counting + ROW_ALONE * rows
