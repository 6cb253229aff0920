"""What a new process costs until its first answer, for each kind of query: CPU seconds, memory, installed size.

    python -m benchmarks.first_query [--python PYTHON] [--modes library,jit] [--kinds sequence;...] [--runs 5] [--quick]

Each process has a HOME of its own. `jit` is measured with an empty cache and again with the cache that this left.
`--python` measures what another environment has installed, such as a wheel. The last column compares the best run with
the best `import numpy, pyarrow.compute, lark` in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

IMPORTS = "import numpy, pyarrow.compute, lark"
KINDS = {
    "sequence": "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5",
    "negation, text key": "PATTERN SEQ(A a, !(C c), B b) WHERE [name] AND a.v < b.v WITHIN 5",
    "Kleene, next": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_next_match(a, b[], c) { [id] AND b[i].v > b[i-1].v }"
    " WITHIN 9",
    "Kleene, any": "PATTERN SEQ(A a, B+ b[], C c) WHERE skip_till_any_match(a, b[], c) { [id] } WITHIN 9",
    "aggregate by key": "PATTERN SEQ(A a, B b) WHERE [id] GROUP BY id AGG COUNT, SUM(b.v) WITHIN 9",
    "aggregate COUNT": "PATTERN SEQ(A a, B b) AGG COUNT WITHIN 9",
    "incomplete": "PATTERN SEQ(A a, B b, C c) WHERE [id] WITHIN 9 THRESHOLD 0.01 RETURN Found(a.id AS id)",
    "algebra": "",
}
QUERY = """
import sys
import numpy, pyarrow
import ouzel
kind, text = sys.argv[1:]
events = pyarrow.table({
    "type": pyarrow.array(numpy.array(list("ABC"))[numpy.arange(99) % 3].astype("U1")),
    "ts": numpy.arange(99), "id": numpy.arange(99) // 3 % 4, "v": numpy.arange(99) * 7 % 10,
    "name": pyarrow.array(numpy.array(list("abcd"))[numpy.arange(99) // 3 % 4]),
})
options = {}
if kind == "algebra":
    from ouzel.algebra import stream
    query = stream("A").rename({"v": "w"}).next(stream("B"), "id = id.last").select("v > w")
else:
    query = ouzel.query(text)
if kind == "incomplete":
    from ouzel.loss import Exponential
    gaps = {"b": Exponential(2), "c": Exponential(2)}
    options["model"] = ouzel.LossModel(0.05, gaps=gaps, priors={"a": 0.9, "b": 0.9})
print(ouzel.match(events, query, **options).num_rows)
"""
# A source tree gets what an installed package has.
COMPILE = """
import compileall, pathlib, ouzel
compileall.compile_dir(pathlib.Path(ouzel.__file__).parent, quiet=1)
"""
# The megabytes of the package and of what it needs, by mode.
SIZES = """
import importlib.util, json, pathlib
def megabytes(name):
    found = importlib.util.find_spec(name)
    if found is None:
        return None
    files = [pathlib.Path(found.origin)]
    for folder in map(pathlib.Path, found.submodule_search_locations or ()):
        libraries = folder.parent / f"{folder.name}.libs"
        files += [file for place in (folder, libraries) for file in place.rglob("*") if "__pycache__" not in file.parts]
    return sum(file.stat().st_size for file in set(files) if file.is_file()) / 1e6
print(json.dumps({name: megabytes(name) for name in ("ouzel", "numpy", "pyarrow", "lark", "numba", "llvmlite")}))
"""
MEASURED = """
import resource, json
taken = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps([taken.ru_utime + taken.ru_stime, taken.ru_maxrss / 1024]))
"""


def measure(python: str, home: Path, mode: str, program: str, *arguments: str) -> tuple[float, float, str]:
    """(CPU seconds, MB, what it printed) of a new process."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "OUZEL", "XDG"))}
    environment |= {"HOME": str(home), "OUZEL_KERNELS": mode, "TMPDIR": str(home)}
    done = subprocess.run(
        [python, "-c", program + MEASURED, *arguments], env=environment, check=True, capture_output=True, text=True
    )
    *printed, last = done.stdout.splitlines()
    seconds, megabytes = json.loads(last)
    return seconds, megabytes, " ".join(printed)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--modes", default="jit,library")
    parser.add_argument("--kinds", default=";".join(KINDS))
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one run of each kind, with the library")
    options = parser.parse_args()
    if options.quick:
        options.runs, options.modes = 1, "library"
    subprocess.run([options.python, "-c", COMPILE], check=True)
    sizes = subprocess.run([options.python, "-c", SIZES], check=True, capture_output=True, text=True).stdout
    shown = [f"{name} {size:.1f} MB" for name, size in json.loads(sizes).items() if size is not None]
    print(f"Installed: {', '.join(shown)}\n", flush=True)
    print("| kind | mode | CPU s | MB | times the imports |\n| --- | --- | --- | --- | --- |")
    for kind in options.kinds.split(";"):
        answers = set()
        for mode in options.modes.split(","):
            with tempfile.TemporaryDirectory() as folder:

                def run(mode: str = mode, kind: str = kind, home: str = folder) -> tuple[float, float, str]:
                    return measure(options.python, Path(home), mode, QUERY, kind, KINDS[kind])

                imports, taken = [], []
                if mode == "jit":
                    seconds, megabytes, answer = run()
                    answers.add(answer)
                    print(f"| {kind} | jit, cold | {seconds:.2f} | {megabytes:.0f} | |", flush=True)
                for _ in range(options.runs):
                    imports.append(measure(options.python, Path(folder), mode, IMPORTS)[0])
                    taken.append(run())
                answers |= {one[2] for one in taken}
                seconds, megabytes, _ = min(taken)
                name = "jit, warm" if mode == "jit" else mode
                print(
                    f"| {kind} | {name} | {seconds:.2f} | {megabytes:.0f} | {seconds / min(imports):.2f} |", flush=True
                )
        assert len(answers) == 1, f"{kind}: answers differ: {answers}"


if __name__ == "__main__":
    main()
