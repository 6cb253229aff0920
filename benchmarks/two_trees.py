"""CPU time of two versions of the sources on the same queries: did a change make anything slower?

    git worktree add ../old COMMIT
    python -m benchmarks.two_trees ../old . [--events 400000] [--runs 7] [--only count ...]

Each version runs in a process of its own that stays alive, with one thread. They answer each query in turn; the best
run counts. Compare a version with itself first: that shows how far from 1 ratios are by chance.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow.feather as feather

from benchmarks.measure import markdown
from benchmarks.sase_generators import sase_events

TWO = "PATTERN SEQ(E1 a, E2 b)"
THREE = "PATTERN SEQ(E1 a, E2 b, E3 c)"
MISSING = "PATTERN SEQ(E1 a, !(E2 b), E3 c)"
NEXT = "PATTERN SEQ(E1 a, E2+ b[], E3 c) WHERE skip_till_next_match(a, b[], c)"
ANY = "PATTERN SEQ(E1 a, E2+ b[], E3 c) WHERE skip_till_any_match(a, b[], c)"
LONG, SHORT = "WITHIN 10000", "WITHIN 60"
QUERIES = {
    "sequence with key": f"{THREE} WHERE [attr1] {LONG}",
    "no key": f"{THREE} {SHORT}",
    "condition": f"{THREE} WHERE [attr1] AND a.attr2 < c.attr2 {LONG}",
    "RETURN": f"{THREE} WHERE [attr1] {LONG} RETURN R(a.attr1 AS id, c.attr2 - a.attr2 AS rise)",
    "negation": f"{MISSING} WHERE [attr1] {LONG}",
    "negation with condition": f"{MISSING} WHERE [attr1] AND b.attr2 > a.attr2 {LONG}",
    "Kleene, next": f"{NEXT} {{ [attr1] }} {LONG} RETURN R(COUNT(b[]) AS n)",
    "Kleene, condition": f"{NEXT} {{ [attr1] AND b[i].attr2 > b[i-1].attr2 }} {LONG} RETURN R(COUNT(b[]) AS n)",
    "Kleene, any": f"{ANY} {{ [attr1] }} WITHIN 1000 RETURN R(COUNT(b[]) AS n)",
    "count": f"{THREE} AGG COUNT {LONG}",
    "count by key": f"{THREE} WHERE [attr1] AGG COUNT GROUP BY attr1 {LONG}",
    "count with negation": f"{MISSING} AGG COUNT {LONG}",
    "sum": f"{TWO} WHERE [attr1] AGG SUM(b.attr2) {LONG}",
    "count with condition": f"{TWO} WHERE [attr1] AND a.attr2 < b.attr2 AGG COUNT {LONG}",
}
# The allocator keeps the memory of earlier calls. Otherwise it returns memory to the system by rules that depend on the
# sizes of all arrays, and page faults are a third of the time of one version and absent from the other.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_TOP_PAD_": "67108864",
}
# Reads names of queries, writes CPU seconds and the number of rows.
WORKER = """
import gc, sys, time, warnings
warnings.simplefilter("ignore")
import ouzel, pyarrow.feather
from benchmarks.two_trees import QUERIES
table = pyarrow.feather.read_table(sys.argv[1])
queries = {name: ouzel.query(text) for name, text in QUERIES.items()}
for line in sys.stdin:
    gc.collect()
    started = time.process_time()
    answer = ouzel.match(table, queries[line.strip()])
    taken = time.process_time() - started
    print(taken, answer.num_rows, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--events", type=int, default=400_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--only", nargs="*", choices=QUERIES, default=list(QUERIES))
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stored = f"{folder}/events.feather"
        feather.write_feather(sase_events(asked.events, values=(1_000, 100), seed=1), stored, "uncompressed")
        with worker(asked.old, stored) as old, worker(asked.new, stored) as new:
            taken: dict[str, list[tuple[float, float]]] = {name: [] for name in asked.only}
            matches: dict[str, int] = {}
            for run in range(asked.runs + 1):
                for name in asked.only:
                    (before, expected), (after, matches[name]) = ask(old, name), ask(new, name)
                    assert expected == matches[name], f"{name}: {expected} rows, then {matches[name]}"
                    # The first call may compile.
                    if run:
                        taken[name].append((before, after))
    rows, ratios = [], []
    for name, seconds in taken.items():
        before, after = map(min, zip(*seconds, strict=True))
        ratios.append(after / before)
        rows.append([name, f"{matches[name]:,}", f"{before * 1e3:.1f}", f"{after * 1e3:.1f}", f"{ratios[-1]:.2f}"])
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    print(f"{markdown(['query', 'rows', 'old, ms', 'new, ms', 'new over old'], rows)}")
    print(f"\ngeometric mean {mean:.2f}, highest {max(ratios):.2f}, load {os.getloadavg()[0]:.1f}")


@contextmanager
def worker(tree: Path, stored: str) -> Iterator[subprocess.Popen[str]]:
    """A process with the sources of a tree, and the benchmarks of this one."""
    here = Path(__file__).parent.parent
    environment = {**os.environ, **KEEP_MEMORY, "PYTHONPATH": f"{tree.resolve()}/src:{here}", "OUZEL_THREADS": "1"}
    command = [sys.executable, "-c", WORKER, stored]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=tree
    )
    try:
        yield process
    finally:
        process.communicate()


def ask(process: subprocess.Popen[str], name: str) -> tuple[float, int]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(name + "\n")
    process.stdin.flush()
    seconds, matches = process.stdout.readline().split()
    return float(seconds), int(matches)


if __name__ == "__main__":
    main()
