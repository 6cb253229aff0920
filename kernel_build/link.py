"""Objects and glue to one shared library."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
# The oldest glibc of manylinux_2_17, for compilers that can choose.
GLIBC = "2.17"


class Row(NamedTuple):
    """One form of a kernel in the library."""

    name: str
    parameters: tuple[str, ...]
    arguments: str
    results: str
    symbols: tuple[str, ...]  # by level


def compiler(triple: str, *, portable: bool) -> list[str] | None:
    """A C compiler for a target, if there is one: this machine's own, or that of the package ziglang.

    A portable library is one that other machines can load: ziglang links it for an old glibc.
    """
    is_host = triple.split("-")[0] == os.uname().machine
    own = shlex.split(os.environ.get("CC", "")) or next(
        ([found] for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None
    )
    zig = None
    if importlib.util.find_spec("ziglang") is not None:
        zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{triple.split('-')[0]}-linux-gnu.{GLIBC}"]
    own = own if is_host and Path(sysconfig.get_paths()["include"], "Python.h").exists() else None
    return (zig or own) if portable or not is_host else (own or zig)


def check_portable(library: Path) -> None:
    """A library that needs a newer glibc than the name of its wheel says is not one for other machines."""
    needed = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+)", library.read_bytes())}
    newest = max(needed, default=(0, 0))
    if newest > tuple(map(int, GLIBC.split("."))):
        named = ".".join(map(str, newest))
        raise SystemExit(f"the library needs glibc {named}, not {GLIBC}: install ziglang, which links for it")


def link(
    command: Sequence[str],
    rows: Sequence[Row],
    levels: Sequence[str],
    digest: str,
    objects: Sequence[Path],
    table: Path,
    library: Path,
) -> None:
    table.write_text(_table(rows, levels, digest))
    unfinished = library.with_suffix(".unfinished")
    subprocess.run(
        [
            *command, "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-s", f"-DLEVELS={len(levels)}",
            f"-I{table.parent}", f"-I{sysconfig.get_paths()['include']}",
            str(HERE / "glue.c"), str(HERE / "runtime.c"), *map(str, objects), "-lm", "-o", str(unfinished),
        ],
        check=True,
    )  # fmt: skip
    # A process may have the old one open.
    unfinished.replace(library)


def _table(rows: Sequence[Row], levels: Sequence[str], digest: str) -> str:
    lines = [f"int32_t {symbol}(int64_t *);" for row in rows for symbol in row.symbols]
    lines += ["static const form forms[] = {"]
    for row in rows:
        parameters = "".join(f" {name}" for name in row.parameters)
        functions = ", ".join(row.symbols)
        lines += [f'  {{"{row.name}", "{parameters}", "{row.arguments}", "{row.results}", {{{functions}}}}},']
    lines += ["  {0}", "};", f'#define DIGEST "{digest}"']
    names = ", ".join('"' + level.partition("@")[0] + '"' for level in levels)
    lines += [f"static const char *const levels[] = {{{names}}};"]
    return "\n".join([*lines, ""])
