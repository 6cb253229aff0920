"""Build the library of kernels: python -m kernel_build [--levels all] [--triple aarch64-linux-gnu] [--output FILE].

Without options it is built for this machine, beside the sources that use it, and only what has changed is made again.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

# Only numba can lower, and it must not find a library that is being replaced.
os.environ["OUZEL_KERNELS"] = "jit"

import llvmlite.binding as llvm

from kernel_build import emit, lower
from kernel_build.build import build, versions
from kernel_build.forms import entries
from kernel_build.link import check_portable, compiler
from ouzel.kernels import jit

LIBRARY = jit.PACKAGE / "kernels" / "_library.abi3.so"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m kernel_build", description="Build the library of kernels.")
    parser.add_argument("--levels", choices=("host", "all"), default="host", help="of x86-64: this machine's, or all")
    parser.add_argument("--triple", default=llvm.get_default_triple(), help="the target, as LLVM names it")
    parser.add_argument("--output", type=Path, default=LIBRARY)
    options = parser.parse_args()
    if options.triple.startswith("x86_64"):
        levels = emit.X86_LEVELS if options.levels == "all" else (emit.host_level(),)
    else:
        levels = ("generic",)
    command = compiler(options.triple, portable=options.output != LIBRARY)
    if command is None:
        print(f"no C compiler for {options.triple}, nor ziglang: no library of kernels is built", file=sys.stderr)
        sys.exit(0 if options.output == LIBRARY else 1)
    made_of = f"{jit.sources_digest()} {options.triple} {' '.join(levels)} {versions()}"
    stamp = options.output.with_suffix(".stamp")
    if options.output.exists() and stamp.exists() and stamp.read_text() == made_of:
        return
    lower.prepare()
    build(entries(), options.triple, levels, command, options.output)
    if options.output != LIBRARY:
        check_portable(options.output)
    stamp.write_text(made_of)


if __name__ == "__main__":
    main()
