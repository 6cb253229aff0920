"""Hundreds of thousands of standing queries: Cayuga's section 5, its technical benchmark and Double-Top.

    python -m benchmarks.many_queries [--quick] [--only NAME …] [--page] [--without-spark]

Every run checks that all ways have the same answers. `--page` replaces the parts of the page that were measured, so
they can be measured at different times.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks import many_queries_bars as parts
from benchmarks.many_queries_patterns import binding, patterns, three_steps
from benchmarks.many_queries_plots import plot
from benchmarks.many_queries_rules import ranges
from benchmarks.many_queries_updates import explosive, updates
from benchmarks.many_queries_world import TEMPLATES, events, parameters, query_set, read
from benchmarks.measure import markdown
from benchmarks.report import FIGURES, RESULTS, Part, Table, sections_of, table_of, verdict, write_page

PAGE = RESULTS / "many-queries.md"

# Name: title, what to know of it, and who measures it.
PARTS: dict[str, tuple[str, str, Callable[[bool], parts.Found]]] = {
    "naive": (
        "Figure 17: Filter against the naive extension",
        "12,500 events, the first fifth as warm-up. The naive extension is the paper's: the FR index alone. "
        "Each user's automaton looks up its start edge in a hash table of the edges that the index found, and "
        "then reads its own instances. Two choices favour it: the index has only the edges of starts, and the "
        "lists of a user are adjacent, with four bytes per entry. An earlier twin kept all instances of all "
        "automata in one array: in a separate run it took 34, 66 and 147 µs on uniform events and 43, 99 and "
        "236 on skewed ones. With it the factors would be about half as large, and the first two uniform ones "
        "would miss the bar. Skewed events affect automata far more often, which costs both the same, so the "
        "factor is smaller.",
        parts.naive,
    ),
    "building": (
        "Building",
        "The constants have many duplicates; numpy sorts them about twice as fast as distinct numbers.",
        parts.building,
    ),
    "binding": (
        "Parsing and binding texts that differ in constants only",
        "The first text of a shape is parsed and bound; the others get their constants and positions filled in."
        " Both methods give equal bound queries.",
        binding,
    ),
    "patterns": (
        "Pattern queries",
        "4,000 events in batches of 1,000, two types, 50 names. Patterns of one or two events, and longer ones "
        "whose events are equal in some attribute, are merged into automata. The others run in sessions, where "
        "patterns that differ only in RETURN run once. "
        "Most of the cost of one engine per query is the same for every batch, however small. The cost "
        "that remains in a set is mostly the answers: one table per query.",
        patterns,
    ),
    "ranges": (
        "Rules that differ only in a threshold or a range",
        "20,000 events, about ten rules firing at each. Scanning tests all ranges that share a key, over 200 events.",
        ranges,
    ),
    "three_steps": (
        "Patterns of three events",
        "As above. One by one, every fortieth pattern was measured, with a factor of 40.",
        three_steps,
    ),
    "updates": (
        "Adding and removing rules",
        "An update adds a rule, which takes effect with the event that follows, and removes the rule that was added "
        "before it. The rules of the table stay. In the end every second one of them is removed.",
        updates,
    ),
    "explosive": (
        "One explosive rule among others",
        "Every event starts an instance of it that never ends, until it passes its limit and is suspended. The "
        "others' answers are the same with it and without it, which every run checks.",
        explosive,
    ),
    "scale": (
        "Figure 16(a): by number of queries, uniform events",
        "20,000 events. An instance is affected if the event moves it along an edge. The cost grows with the number "
        "of affected instances. Each round measures all sizes; the table gives the median of three rounds. Both times "
        "of a bar come from the same round.",
        parts.uniform_scale,
    ),
    "skewed": (
        "Figure 16(a): by number of queries, skewed events",
        "20,000 events, 4,000 for the non-deterministic templates. About 100 static predicates of 200,000 match"
        " an event. With skew, the number of affected instances grows with the number of queries, as the bars "
        "show.",
        parts.skewed_scale,
    ),
    "zipf": (
        "Figure 16(b): by zipf_1",
        "200,000 queries, 10,000 uniform events. The larger the exponent, the more queries share.",
        parts.zipf_1,
    ),
    "selectivity": ("Figure 16(c): by selectivity", "200,000 queries, 10,000 uniform events.", parts.selectivity),
    "double_top": (
        "Figure 20: Double-Top",
        "112,635 daily prices of 24 symbols: seeded random walks, as running averages. The fold formulation has"
        " five consecutive extrema. For resubscription an extremum lasts three quotes, so overlapping ones are "
        "no sequence, and the numbers of results differ. The CPU of Spark SQL is that of the JVM. Why the bar "
        "is missed: to find extrema, resubscription affects two instances at every quote, and the fold "
        "formulation slightly more than two, because it has no other way to find where prices turn. So both "
        "spend the same time on instances, and on planning and reading quotes. The further work of "
        "resubscription grows with the number of extrema, and smoothing leaves few of them, as the paper notes."
        " An instance in the loop of a fold is changed in place, without a copy and without an index update.",
        parts.double_top,
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small worlds, to see that everything runs")
    parser.add_argument("--only", nargs="*", choices=list(PARTS))
    parser.add_argument("--page", action="store_true", help=f"write benchmarks/results/{PAGE.name} after each part")
    parser.add_argument("--without-spark", action="store_true", help="leave out what is compared with Spark")
    given = parser.parse_args()
    if given.only != ["double_top"]:
        small = events(2_000)
        for name in TEMPLATES:
            read(query_set(name, parameters(100)[0], small.schema), small)
    for name, (title, note, measure) in PARTS.items():
        if not given.only or name in given.only:
            if name == "double_top" and given.without_spark:
                (headings, rows), bars = parts.double_top(given.quick, with_spark=False)
                rows = _with_earlier_cells(rows, table_of(sections_of(PAGE).get(title, ()))[1:])
            else:
                (headings, rows), bars = measure(given.quick)
            print(f"\n{title}\n\n{markdown(headings, rows)}\n\n{verdict([(title, note, ([], []), bars)])}", flush=True)
            if given.page:
                write_results([(title, note, (headings, rows), bars)])
    if given.page:
        write_results([])


def _with_earlier_cells(rows: list[list[str]], earlier: list[list[str]]) -> list[list[str]]:
    """What was not measured now, as it was measured last."""
    known = {row[0]: row for row in earlier}

    def cell(row: list[str], place: int) -> str:
        return known[row[0]][place] if row[place] == parts.NOT_MEASURED and row[0] in known else row[place]

    return [[cell(row, place) for place in range(len(row))] for row in rows]


WORKLOAD = """\
Five templates over one stream of eight attributes, by Table 2 of the paper (CESAR 5.1): four discrete attributes with
100 values, four continuous ones, two equalities and two ranges a step, 25 ranges of selectivity 0.7, three steps,
Zipf 1, 1 and 0.8, DUR at most 20. The paper leaves these points open; the generator decides them:

- one event a tick; continuous values are in [0, 1), and a range is [low, low + selectivity] with 25 equally spaced
  lows, the same for both ranges of a step;
- the two attributes of a step differ; the primary one keeps its value in all three steps;
- the parameterized predicate of LinearDyn is c0 of this step above c0 of the step before;
- events are uniform, or *skewed*: their discrete values follow Zipf 0.9 by the same ranks as the constants of queries.
  With uniform events a query's first step matches 0.01 · 0.01 · 0.7 · 0.7 of them, ten matches an event at 200,000
  queries, and a whole Filter query has so small a probability that 100,000 events should bring about one answer to
  400,000 queries. The paper reports about 100 matches an event and 41 to 171 answers, which our reading of Table 2
  does not give. Zipf 0.9 was chosen because then 106 static predicates of 200,000 Filter queries match an event;
  10,000 events have 694 answers."""


def write_results(measured: list[Part]) -> None:
    """The page, with parts that were measured now."""
    about = (
        "# Cayuga's experiments, measured",
        "",
        "Written by `python -m benchmarks.many_queries --page`, part by part (`--only`): one thread, CPU time, ratios "
        "within one part. All rates and ratios are per core. Absolute rates depend on the machine "
        "and its load; ratios depend on them much less. All methods are checked to give the same answers.",
    )
    names = {title: name for name, (title, _, _) in PARTS.items()}

    def drawn(title: str, table: Table) -> Path | None:
        return plot(names[title], title, *table, FIGURES)

    write_page(PAGE, about, measured, names, texts=[("The workload", [WORKLOAD])], plot=drawn)


if __name__ == "__main__":
    main()
