"""The pictures of the documentation, drawn by Ouzel itself: python docs/make_pictures.py

A test compares them with the files in docs/figures, so that they cannot go stale.
"""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import ouzel
from ouzel.algebra import Stream, stream
from ouzel.loss import Exponential, Gamma

FIGURES = Path(__file__).parent / "figures"

SHOP = [
    {"ts": 1, "type": "Shelf", "tag": "soap"},
    {"ts": 2, "type": "Shelf", "tag": "gin"},
    {"ts": 3, "type": "Shelf", "tag": "tea"},
    {"ts": 4, "type": "Shelf", "tag": "gin"},
    {"ts": 5, "type": "Register", "tag": "soap"},
    {"ts": 6, "type": "Exit", "tag": "soap"},
    {"ts": 7, "type": "Exit", "tag": "gin"},
]
THEFT = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag] WITHIN 100"
SMALL = [
    {"ts": ts, "type": kind, "id": key}
    for ts, kind, key in [(1, "A", "x"), (2, "A", "y"), (3, "B", "x"), (4, "C", "x"), (5, "B", "y"), (6, "B", "x")]
]
STRATEGIES = {
    "any": "skip_till_any_match",
    "next": "skip_till_next_match",
    "partition": "partition_contiguity",
    "strict": "strict_contiguity",
}
FALLS = "PATTERN Tick+ a[] WHERE skip_till_next_match(a[]) { a[i].price < a[i-1].price AND a.LEN > 1 } WITHIN 10"


def query_7() -> Stream:
    """Query 7 of the CESAR paper: a large trade, falling prices, and a rise."""
    quotes, same = stream("Stock"), "company = company.last"
    first, second, third = (
        quotes.rename({"name": "company", "price": name}).project(["company", name, "vol"])
        for name in ("maxP", "minP", "finalP")
    )
    falling = first.select("vol > 10000").fold(second, same, step="minP < minP.last", first={"minP": "maxP"})
    return falling.select("DUR >= 10").next(third, same).select("finalP > 1.05 * minP")


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    once = f"{THEFT} OUTPUT NON_OVERLAPPING"
    made: dict[str, str] = {"theft.svg": ouzel.plot(SHOP, once, label="tag", title="Taken and not paid for", width=720)}
    for name, strategy in STRATEGIES.items():
        text = f"PATTERN SEQ(A a, B b) WHERE {strategy}(a, b) {{ [id] }} WITHIN 10"
        made[f"strategy-{name}.svg"] = ouzel.plot(SMALL, text, label="id", title=strategy, width=640)
    ticks = [{"ts": ts, "type": "Tick", "price": price} for ts, price in enumerate([5, 3, 4, 2, 6], start=1)]
    made["falls.svg"] = ouzel.plot(ticks, FALLS, label="price", title="Falling prices", width=640)
    made["plan.svg"] = ouzel.explain(THEFT, "svg")
    made["query-7.svg"] = ouzel.explain(query_7(), "svg")
    made["score-and-probability.svg"] = score_and_probability()
    return {**made, **kernels()}


# ── Incomplete streams ─────────────────────────────────────────────────────────────────────────────


def score_and_probability() -> str:
    """Score and probability of a theft whose aisle reading is missing, by the time from the shelf to the exit."""
    model = ouzel.LossModel(
        0.05,
        gaps={"b": Gamma(4, 90), "n": Exponential(600), "c": Gamma(3, 40)},
        priors={"a": 0.95, "b": 0.9},
    )
    query = "PATTERN SEQ(Shelf a, Aisle b, !(Counter n), Exit c) WHERE [tag] WITHIN 7200 THRESHOLD 0"
    lengths = range(25, 3_001, 25)
    events = [{"ts": 0, "type": "Shelf", "tag": length} for length in lengths]
    events += [{"ts": length, "type": "Exit", "tag": length} for length in lengths]
    found = ouzel.match(events, query + " RETURN Theft(c.tag AS length)", model=model).to_pylist()
    rows = sorted((row["length"], row["score"], row["probability"]) for row in found if row["missing"] == ["b"])

    def line(place: int, highest: float) -> str:
        return " ".join(f"{60 + row[0] / 5:.0f},{220 - 180 * row[place] / highest:.0f}" for row in rows)

    labels = [(60 + 100 * number, 240, f"{500 * number} s", "middle") for number in range(7)]
    labels += [(52, 224, "0", "end"), (52, 44, "1", "end"), (668, 44, "0.05", "start"), (668, 224, "0", "start")]
    labels += [(60, 24, "probability", "start"), (660, 24, "score", "end")]
    texts = "\n".join(f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, text, anchor in labels)
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="720" height="260" viewBox="0 0 720 260" role="img">\n'
        "<style>text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2933; } "
        "polyline, path { fill: none; stroke: #334e68; stroke-width: 1.6; }</style>\n"
        '<rect width="100%" height="100%" fill="#ffffff"/>\n'
        '<path d="M60,40 L60,220 L660,220 L660,40" style="stroke:#829ab1;stroke-width:1"/>\n'
        f'<polyline points="{line(2, 1.0)}"/>\n'
        f'<polyline points="{line(1, 0.05)}" stroke-dasharray="5 4"/>\n'
        f'<path d="M60,30 L130,30"/><path stroke-dasharray="5 4" d="M624,30 L660,30"/>\n{texts}\n</svg>'
    )


# ── Kernels ────────────────────────────────────────────────────────────────────────────────────────

Box = tuple[str, float, float, str]  # name, column, row, text


def leap(source: str, target: str, boxes: list[Box]) -> float:
    """How many columns apart two boxes of one row stand; 0 for boxes of different rows."""
    place = {name: (column, row) for name, column, row, _ in boxes}
    (column, row), (other_column, other_row) = place[source], place[target]
    return abs(column - other_column) if row == other_row else 0


def diagram(boxes: list[Box], arrows: list[tuple[str, str]], notes: list[tuple[float, float, str]]) -> str:
    """Boxes on a grid, arrows from box to box, and words beside them."""
    down, high = 62, 34
    wide = max(112, *(7 * len(text) + 16 for _, _, _, text in boxes))
    across = wide + 38
    # Arrows that pass over boxes of their row need room above it.
    top = 24 + 18 * max(int(leap(source, target, boxes)) - 1 for source, target in arrows)
    place = {name: (24 + column * across, top + row * down) for name, column, row, _ in boxes}
    width = max(x for x, _ in place.values()) + wide + 24
    height = max(y for _, y in place.values()) + high + 24
    for column, row, text in notes:
        width = max(width, 24 + column * across + 7 * len(text) + 24)
        height = max(height, top + row * down + 30)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        "<style>text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2933; } "
        ".note { fill: #627d98; } rect.box { fill: #f0f4f8; stroke: #829ab1; } "
        "path { fill: none; stroke: #334e68; stroke-width: 1.4; }</style>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" style="fill:#334e68"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
    ]
    for source, target in arrows:
        (x1, y1), (x2, y2) = place[source], place[target]
        if (passed := leap(source, target, boxes)) > 1:
            lift = y1 - 24 * (passed - 1) - 6
            parts.append(
                f'<path marker-end="url(#tip)" d="M{x1 + 0.4 * wide:.0f},{y1} '
                f'C{x1:.0f},{lift:.0f} {x2 + wide:.0f},{lift:.0f} {x2 + 0.6 * wide:.0f},{y2}"/>'
            )
            continue
        if abs(y1 - y2) < 1:
            start = (x1 + wide, y1 + high / 2) if x2 > x1 else (x1, y1 + high / 2)
            end = (x2, y2 + high / 2) if x2 > x1 else (x2 + wide, y2 + high / 2)
        elif x1 == x2:
            start, end = (x1 + wide / 2, y1 + (high if y2 > y1 else 0)), (x2 + wide / 2, y2 + (0 if y2 > y1 else high))
        else:
            start = (x1 + wide, y1 + high / 2) if x2 > x1 else (x1, y1 + high / 2)
            end = (x2, y2 + high / 2) if x2 > x1 else (x2 + wide, y2 + high / 2)
        parts.append(f'<path marker-end="url(#tip)" d="M{start[0]:.0f},{start[1]:.0f} L{end[0]:.0f},{end[1]:.0f}"/>')
    for name, _, _, text in boxes:
        x, y = place[name]
        parts.append(f'<rect class="box" x="{x:.0f}" y="{y:.0f}" width="{wide}" height="{high}" rx="5"/>')
        parts.append(f'<text x="{x + wide / 2:.0f}" y="{y + 22:.0f}" text-anchor="middle">{escape(text)}</text>')
    for column, row, text in notes:
        parts.append(
            f'<text class="note" x="{24 + column * across}" y="{top + row * down + 22:.0f}">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def kernels() -> dict[str, str]:
    """One picture for each way of answering."""
    stacks = diagram(
        [("a1", 0, 1, "a1"), ("a3", 0, 2, "a3"), ("b2", 1, 1, "b2"), ("b5", 1, 2, "b5"), ("c6", 2, 1, "c6")],
        [("b2", "a1"), ("b5", "a3"), ("c6", "b5")],
        [(0, 0, "stack of A"), (1, 0, "stack of B"), (2, 0, "stack of C"),
         (0, 3, "c6 builds (a1 b2 c6), (a1 b5 c6), (a3 b5 c6)")],
    )  # fmt: skip
    runs = diagram(
        [("r0", 0, 0, "a1"), ("r1", 1, 0, "a1 a2"), ("r2", 2, 0, "a1 a2 a4"), ("m", 3, 0, "a1 a2 a4 b5")],
        [("r0", "r1"), ("r1", "r2"), ("r2", "m")],
        [(0, 1, "one run under skip_till_next_match: each event moves it on, leaves it, or ends it")],
    )
    graph = diagram(
        [("a1", 0, 0, "a1"), ("a2", 1, 0, "a2"), ("a3", 2, 0, "a3"), ("b", 3, 0, "b4: 7 matches")],
        [("a2", "a1"), ("a3", "a2"), ("b", "a3"), ("a3", "a1"), ("b", "a2"), ("b", "a1")],
        [(0, 1, "SEQ(A+ a[], B b): a cell links to all that may stand right before it; each path from b4 is a match")],
    )
    counters = diagram(
        [("c1", 0, 0, "a: 3"), ("c2", 1, 0, "a b: 5"), ("c3", 2, 0, "a b c: 11")],
        [("c1", "c2"), ("c2", "c3")],
        [(0, 1, "a new c adds the number of (a b) to the number of (a b c); nothing is built")],
    )
    automata = diagram(
        [("s", 0, 1, "start"), ("x", 1, 0, "A, id = 7"), ("y", 1, 1, "A, price > 3"), ("z", 1, 2, "B"),
         ("q", 2, 0, "queries 1 … 900"), ("r", 2, 1, "queries 901, 902"), ("t", 2, 2, "query 903")],
        [("s", "x"), ("s", "y"), ("s", "z"), ("x", "q"), ("y", "r"), ("z", "t")],
        [(0, 3, "equal prefixes are one state; an index over constants finds the states an event concerns")],
    )  # fmt: skip
    arrivals = diagram(
        [("x", 0, 0, "shelf at 3"), ("n", 1, 0, "aisle missing"), ("z", 2, 0, "exit at 9"), ("p", 3, 0, "score 0.04")],
        [("x", "n"), ("n", "z"), ("z", "p")],
        [(0, 1, "a gap is weighed by what is lost and how long gaps are; what cannot reach the threshold is dropped")],
    )
    return {
        f"kernel-{name}.svg": picture
        for name, picture in [
            ("stacks", stacks), ("runs", runs), ("graph", graph),
            ("counters", counters), ("automata", automata), ("arrivals", arrivals),
        ]
    }  # fmt: skip


def main() -> None:
    """Write the pictures."""
    FIGURES.mkdir(exist_ok=True)
    for name, picture in pictures().items():
        (FIGURES / name).write_text(picture + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
