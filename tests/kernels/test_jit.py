"""Machine code is kept where processes share it, and never runs when it is old or damaged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ouzel.kernels import jit, numba_jit

pytestmark = pytest.mark.compiled

CALLEE = """
from ouzel.kernels.jit import helper


@helper
def step(value):
    return value + 1
"""
CALLER = """
from ouzel.kernels.callee import step
from ouzel.kernels.jit import kernel


@kernel
def twice(value):
    return step(step(value))
"""
PROGRAM = """
from ouzel.kernels.caller import twice

print(twice(40), sum(twice.stats.cache_hits.values()))
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with the real decorators and two kernels, one of which calls the other."""
    kernels = tmp_path / "source" / "ouzel" / "kernels"
    kernels.mkdir(parents=True)
    (kernels.parent / "__init__.py").touch()
    (kernels / "__init__.py").touch()
    for name in ("jit.py", "numba_jit.py"):
        shutil.copy(Path(jit.__file__).with_name(name), kernels)
    (kernels / "callee.py").write_text(CALLEE)
    (kernels / "caller.py").write_text(CALLER)
    return kernels


def run(package: Path, **settings: str) -> list[int]:
    """What the kernel returns in a new process, and how many functions were loaded instead of compiled."""
    home = package.parent.parent.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA", "OUZEL", "XDG"))}
    environment |= {
        "HOME": str(home / "home"),
        "PYTHONPATH": str(package.parent.parent),
        "TMPDIR": str(home),
    } | settings
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], check=True, env=environment, timeout=250, capture_output=True, text=True
    )
    words = [int(word) for word in done.stdout.split()]
    # One line about both functions, and none if machine code was loaded.
    assert done.stderr.count("\n") == (words[1] == 0) == ("numba compiles the kernels" in done.stderr), done.stderr
    return words


def machine_code(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("caller.twice-*") if file.is_file()]


def test_code_is_kept_in_the_cache_of_the_user(package: Path, tmp_path: Path) -> None:
    assert run(package) == [42, 0]
    assert run(package) == [42, 1]
    assert machine_code(tmp_path / "home")
    assert not list(package.rglob("*.nb?"))


def test_an_edited_callee_changes_its_caller(package: Path) -> None:
    assert run(package) == [42, 0]
    (package / "callee.py").write_text(CALLEE.replace("+ 1", "+ 2"))
    assert run(package) == [44, 0]
    (package / "callee.py").write_text(CALLEE)
    assert run(package) == [42, 1]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_code_is_compiled_again(package: Path, tmp_path: Path, damage: str) -> None:
    run(package)
    (file,) = machine_code(tmp_path)
    code = bytearray(file.read_bytes())
    whole = bytes(code)
    if damage == "cut":
        del code[len(code) // 2 :]
    elif damage == "flipped":
        code[len(code) // 2] ^= 1
    else:
        code.clear()
    file.write_bytes(code)
    assert run(package) == [42, 0]
    assert len(file.read_bytes()) == len(whole)
    assert run(package) == [42, 1]


def test_processes_share_temporary_folder_without_home(package: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("a file, which stops even the superuser from making a folder")
    assert run(package) == [42, 0]
    assert run(package) == [42, 1]
    (folder,) = tmp_path.glob("ouzel-kernels-*")
    assert len(machine_code(folder)) == 1
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_that_others_can_write_is_not_trusted(package: Path, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    folder = tmp_path / f"ouzel-kernels-{os.getuid()}"
    folder.mkdir()
    folder.chmod(0o777)
    assert run(package) == [42, 0]
    assert run(package) == [42, 0]
    assert not machine_code(tmp_path)


def test_a_folder_given_to_numba_is_used(package: Path, tmp_path: Path) -> None:
    assert run(package, NUMBA_CACHE_DIR=str(tmp_path / "given")) == [42, 0]
    assert machine_code(tmp_path / "given")


def test_code_of_old_versions_is_removed(tmp_path: Path) -> None:
    for name, age_days in [("old", 31), ("new", 1)]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
        then = time.time() - age_days * 24 * 3600
        os.utime(tmp_path / name, (then, then))
    numba_jit.remove_unused(tmp_path)
    assert [folder.name for folder in tmp_path.iterdir()] == ["new"]


def test_every_import_of_a_kernel_is_one_that_the_digest_follows() -> None:
    for file in jit.kernel_files():
        text = file.read_text()
        assert not re.search(r"^\s*from \.", text, re.MULTILINE), f"{file.name}: write the import in full"
        assert "njit" not in text, f"{file.name}: use the decorators of jit.py"
