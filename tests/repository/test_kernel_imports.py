"""Tests drive the public API, so that kernels can change behind it: only tests of kernels import kernels."""

from __future__ import annotations

from pathlib import Path

from tests.repository.sources import ROOT, imports, modules
from tests.repository.test_imports import compiled_modules

TESTS = ROOT / "tests"
# Files outside tests/kernels that import compiled code, or what it reads, and why.
KERNEL_TESTS = {
    "engines/aggregate/test_counters.py": "kernels against a plain twin",
    "engines/kleene/test_runs.py": "kernels against a plain twin",
    "engines/sequence/predicate_twin.py": "the twin",
    "engines/sequence/stack_cases.py": "cases of kernel and twin",
    "engines/sequence/stack_twin.py": "the twin",
    "engines/sequence/test_stacks.py": "kernels against a plain twin",
    "engines/sequence/test_stacks_limits.py": "the kernel's answers to full arrays",
    "engines/sequence/test_stacks_predicates.py": "kernels against a plain twin",
    "engines/kleene/test_expand.py": "counts of more digits than any listing has",
    "runtime/test_take.py": "kernels against the take of Arrow",
    "benchmarks/test_many_queries_naive.py": "a naive kernel takes the place of ours",
    "query_set/test_agreement.py": "few ranges are searched as if they were many",
    "query_set/test_collisions.py": "events whose hashes are one are found by the hash",
    "runtime/test_interrupts.py": "pauses between pieces of work, made short",
    "runtime/test_divided.py": "pauses between pieces of work, made short",
    "spark/on_executors.py": "executors use the library of the wheel",
    "repository/wheel_check.py": "a wheel brings its kernels as a library",
}


def kernels_imported_by(path: Path) -> set[str]:
    known = set(modules())
    text = path.read_text(encoding="utf-8")
    targets = {one.target for one in imports("tests", text, is_package=False, known=known)}
    return {name for name in targets if name in compiled_modules() or name.startswith("ouzel.kernels")}


def test_only_kernel_tests_import_kernels() -> None:
    paths = (path for path in TESTS.rglob("*.py") if not path.is_relative_to(TESTS / "kernels"))
    found = {path.relative_to(TESTS).as_posix() for path in paths if kernels_imported_by(path)}
    assert found == KERNEL_TESTS.keys()


def test_an_import_of_a_kernel_is_seen(tmp_path: Path) -> None:
    for text in (
        "from ouzel.engines.kleene import runs",
        "import ouzel.kernels.order",
        "from ouzel.kernels import keys",
    ):
        (tmp_path / "test_x.py").write_text(text, encoding="utf-8")
        assert kernels_imported_by(tmp_path / "test_x.py"), text
