"""A library of kernels: the same answers as numba's, its checks of arguments, and when it is used."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import ouzel
from ouzel.engines.sequence import stacks, stacks_plain
from ouzel.kernels import groups, jit, numba_jit, order, text

pytestmark = pytest.mark.compiled

ROOT = jit.PACKAGE.parent.parent
# A few kernels of the package, and one that divides.
BUILD = """
import sys
from pathlib import Path
import llvmlite.binding as llvm
from kernel_build import emit, lower
lower.prepare()
from kernel_build.build import build
from kernel_build.forms import entries, entry_of
from kernel_build.link import compiler
from ouzel.kernels import jit

@jit.kernel
def divided(number: int, by: int):
    if by == 7:
        raise ValueError("seven is not allowed")
    return number // by

wanted = {wanted}
chosen = [entry for entry in entries() if entry.name in wanted]
chosen.append(entry_of(divided, jit.SOURCES[divided].function))
triple = llvm.get_default_triple()
build(chosen, triple, (emit.host_level(),), compiler(triple, portable=False), Path(sys.argv[1]))
"""
WANTED = {
    "ouzel.engines.sequence.stacks_plain.scan_plain",
    "ouzel.kernels.groups.sum_floats",
    "ouzel.kernels.order._count_roles",
    "ouzel.kernels.order._gather",
    "ouzel.kernels.text._select",
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """A library of some kernels, built and loaded."""
    file = tmp_path_factory.mktemp("library") / "_library.abi3.so"
    script = file.with_name("script.py")
    script.write_text(BUILD.replace("{wanted}", repr(WANTED)))
    environment = os.environ | {"OUZEL_KERNELS": "jit", "PYTHONPATH": f"{jit.PACKAGE.parent}:{ROOT}"}
    subprocess.run([sys.executable, str(script), str(file)], cwd=ROOT, env=environment, check=True, timeout=600)
    specification = importlib.util.spec_from_file_location("_library", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def copied(value: Any) -> Any:
    if isinstance(value, tuple):
        parts = [copied(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, np.ndarray):
        copy = value.copy()
        copy.flags.writeable = value.flags.writeable
        return copy
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in flat(part)]
    return [value.tobytes() if isinstance(value, np.ndarray) else value]


@pytest.mark.parametrize(
    ("module", "name", "run"),
    [
        (stacks, "scan_plain", lambda: run_query("PATTERN SEQ(Shelf a, Exit c) WHERE [tag_id] WITHIN 1 hour")),
        (text, "_select", lambda: run_query("PATTERN SEQ(Shelf a, Exit c) WHERE [tag_id] WITHIN 1 hour")),
        (order, "_gather", lambda: order.gather(np.arange(9_000) * 3, np.arange(0, 9_000, 2, dtype=np.int32))),
        (order, "_count_roles", lambda: order.expand(np.arange(300, dtype=np.uint64) % np.uint64(5))),
    ],
)
def test_recorded_calls_give_what_numba_gives(
    library: ModuleType, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, run: Callable[[], object]
) -> None:
    original = getattr(module, name)
    source = jit.SOURCES[original].function
    by_numba = numba_jit.from_source(original)
    by_library = library.entries[f"{source.__module__}.{source.__name__}"]
    calls = 0

    def compared(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        first, second = copied(arguments), copied(arguments)
        assert flat(by_library(*first)) == flat(by_numba(*second))
        assert flat(first) == flat(second)
        return original(*arguments)

    monkeypatch.setattr(module, name, compared)
    run()
    assert calls


def run_query(query: str) -> None:
    day = ouzel.datasets.shop_day(3_000)
    assert ouzel.match(day.events, ouzel.query(query, types=day.types)).num_rows


def test_returned_arrays_own_their_memory(library: ModuleType) -> None:
    offsets, values, valid = np.array([0, 2, 3, 3]), np.array([1.5, 2.0, 4.0]), np.ones(3, bool)
    results = [library.entries["ouzel.kernels.groups.sum_floats"](offsets, values, valid) for _ in range(100)]
    for sums, exists in results:
        assert sums.tolist()[:2] == [3.5, 4.0] and exists.tolist() == [True, True, False]
        sums[0] = 0.0
    assert flat(results[0]) == flat(tuple(results[1]))
    assert flat(groups.sum_floats(offsets, values, valid))[1] == flat(results[0])[1]


GOOD = (np.arange(4), np.zeros(2, np.int32), np.zeros(2, np.int64))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((GOOD[0], GOOD[1].astype(np.int64), GOOD[2]), "rows must be an array of int32 with 1 dimension, contiguous"),
        ((GOOD[0], GOOD[1], np.zeros((2, 1), np.int64)), "gathered must be an array of int64 with 1 dimension"),
        ((GOOD[0], GOOD[1], np.zeros(4, np.int64)[::2]), "gathered must be an array of int64 .* contiguous, writable"),
        ((GOOD[0], GOOD[1], order.frozen(GOOD[2])), "gathered must be .* writable"),
        ((GOOD[0].astype(">i8"), GOOD[1], GOOD[2]), "values must be an array"),
        ((GOOD[0], [0, 1], GOOD[2]), "rows must be an array of int32"),
        (GOOD[:2], "takes values rows gathered"),
        ((*GOOD, 1), "takes values rows gathered"),
    ],
)
def test_arguments_that_do_not_fit_are_named(library: ModuleType, arguments: tuple[Any, ...], error: str) -> None:
    with pytest.raises(TypeError, match=f"ouzel.kernels.order._gather.*{error}"):
        library.entries["ouzel.kernels.order._gather"](*arguments)


def test_fields_that_do_not_fit_are_named(library: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Any, ...]] = []
    monkeypatch.setattr(stacks, "scan_plain", lambda *arguments: seen.append(copied(arguments)) or (0, arguments[4]))
    run_query_without_answer()
    tables, state, instances, *rest = seen[0]
    scan = library.entries["ouzel.engines.sequence.stacks_plain.scan_plain"]
    assert jit.SOURCES[stacks_plain.scan_plain].is_kernel
    for wrong, path in [
        ((tables, state._replace(links=state.links[0]), instances), "state.links must be an array of int32 with 2"),
        ((tables._replace(window="long"), state, instances), "tables.window must be a number of type int64"),
        ((tables, state._replace(values=state.values[:2]), instances), "state.values must be a tuple"),
        ((tables, (), instances), "state must be a tuple"),
    ]:
        with pytest.raises(TypeError, match=f"scan_plain: {path}"):
            scan(*wrong, *rest)


def run_query_without_answer() -> None:
    day = ouzel.datasets.shop_day(1_000)
    ouzel.match(day.events, ouzel.query("PATTERN SEQ(Shelf a, Exit c) WHERE [tag_id] WITHIN 1 hour", types=day.types))


def test_exceptions_keep_their_text(library: ModuleType) -> None:
    divided = library.entries["__main__.divided"]
    assert divided(-7, 2) == -4
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        divided(1, 0)
    with pytest.raises(ValueError, match=r"^seven is not allowed$"):
        divided(1, 7)


PROGRAM = "import sys; from ouzel.kernels import jit; print(jit.MODE, 'numba' in sys.modules)"


@pytest.fixture
def checkout(tmp_path: Path, library: ModuleType) -> Path:
    """A checkout whose library fits its sources: the digest in it is of the same files."""
    shutil.copytree(jit.PACKAGE, tmp_path / "src" / "ouzel", ignore=shutil.ignore_patterns("__pycache__", "_library.*"))
    shutil.copytree(jit.BUILD, tmp_path / "kernel_build", ignore=shutil.ignore_patterns("__pycache__"))
    assert library.__file__ is not None
    shutil.copy(library.__file__, tmp_path / "src" / "ouzel" / "kernels")
    return tmp_path


def run(checkout: Path, program: str = PROGRAM, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "OUZEL"))}
    environment |= {"PYTHONPATH": str(checkout / "src")} | settings
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=250)


def test_library_is_used_without_numba(checkout: Path) -> None:
    assert run(checkout).stdout == "library False\n"
    assert run(checkout, OUZEL_KERNELS="jit").stdout == "jit False\n"
    assert run(checkout, OUZEL_KERNELS="python").stdout == "python False\n"
    assert run(checkout, NUMBA_DISABLE_JIT="1").stdout == "python False\n"
    assert run(checkout, NUMBA_DISABLE_JIT="1", OUZEL_KERNELS="library").stdout == "library False\n"
    assert "OUZEL_KERNELS must be library, jit or python, got 'fast'" in run(checkout, OUZEL_KERNELS="fast").stderr


def test_an_old_library_is_not_used_in_a_checkout(checkout: Path) -> None:
    with (checkout / "src" / "ouzel" / "kernels" / "events.py").open("a") as file:
        file.write("\n# edited\n")
    assert run(checkout).stdout == "jit False\n"
    reason = run(checkout, "from ouzel.kernels import jit; print(jit.WITHOUT_LIBRARY)").stdout
    assert reason == "the library is older than its sources; run `make kernels`\n"
    assert "run `make kernels`" in run(checkout, OUZEL_KERNELS="library").stderr.splitlines()[-1]
    # An installation has no build, and nobody edits it.
    shutil.rmtree(checkout / "kernel_build")
    assert run(checkout).stdout == "library False\n"


def test_without_library_and_numba_the_error_says_what_to_install(checkout: Path) -> None:
    (checkout / "src" / "ouzel" / "kernels" / "_library.abi3.so").unlink()
    assert run(checkout).stdout == "jit False\n"
    without_numba = "import sys; sys.modules['numba'] = None; "
    done = run(checkout, without_numba + PROGRAM)
    assert done.returncode and "pip install 'ouzel[jit]'" in done.stderr.splitlines()[-1]
