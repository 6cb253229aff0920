"""How kernels run: as machine code from the library, as machine code that numba makes, or as plain Python.

The library is made when the package is built (`kernel_build/`). With it, neither numba nor llvmlite is imported.
Without it, numba compiles a kernel at its first call. The choice is made once in each process. OUZEL_KERNELS=library,
jit or python overrides it; NUMBA_DISABLE_JIT=1 means python.

Two decorators: `kernel` for functions that Python calls, `helper` for functions that only kernels call. The annotations
of a kernel are its signature in the library. A union in them gives one signature for each member.
"""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parent.parent
# Only a checkout has it, and only there can sources and library differ.
BUILD = PACKAGE.parent.parent / "kernel_build"

_DECORATED = b"from ouzel.kernels.jit import"
_IMPORTED = re.compile(rb"^\s*(?:from|import)\s+(ouzel[\w.]*)", re.MULTILINE)


class Source(NamedTuple):
    """The Python function of a kernel or helper, and the options with which numba compiles it."""

    function: Callable[..., Any]
    options: Mapping[str, Any]
    is_kernel: bool


# What a decorated function was made of, by what it became.
SOURCES: dict[Any, Source] = {}


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    allocates: bool = False,
    inline: bool = False,
    error_model: str = "python",
) -> Any:
    """Decorate a function that Python calls.

    Without `allocates` the function must not create arrays. It is then compiled without numba's memory management.
    """
    if function is None:
        return functools.partial(kernel, allocates=allocates, inline=inline, error_model=error_model)
    options = _options(allocates, inline, error_model)
    if MODE == "python":
        made: Any = function
    elif MODE == "jit" or not function.__module__.startswith("ouzel."):
        made = _numba().compiled(function, options)
    else:
        made = LIBRARY.entries[f"{function.__module__}.{function.__name__}"]
    SOURCES[made] = Source(function, options, True)
    return made


def helper(
    function: Callable[..., Any] | None = None,
    *,
    allocates: bool = False,
    inline: bool = False,
    error_model: str = "python",
    in_python: Callable[..., Any] | None = None,
) -> Any:
    """Decorate a function that only kernels call. `in_python` replaces it if kernels run as plain Python."""
    if function is None:
        return functools.partial(
            helper, allocates=allocates, inline=inline, error_model=error_model, in_python=in_python
        )
    # Python has no way to call it, which saves a quarter of the time of compiling.
    options = _options(allocates, inline, error_model) | {"no_cpython_wrapper": True}
    made = _numba().compiled(function, options) if MODE == "jit" else in_python or function
    SOURCES[made] = Source(function, options, False)
    return made


def intrinsic(function: Callable[..., Any]) -> Any:
    """Decorate a helper that is written in LLVM instructions. The decorated function replaces it if kernels run as
    plain Python.
    """
    made = _numba().INTRINSICS[function.__name__] if MODE == "jit" else function
    SOURCES[made] = Source(function, {}, False)
    return made


def _options(allocates: bool, inline: bool, error_model: str) -> dict[str, Any]:
    options: dict[str, Any] = {"nogil": True, "error_model": error_model, "no_cfunc_wrapper": True}
    if not allocates:
        options["_nrt"] = False
    if inline:
        options["forceinline"] = True
    return options


def _numba() -> Any:
    return importlib.import_module("ouzel.kernels.numba_jit")


def _choose() -> tuple[str, Any, str]:
    """(mode, library, reason): how this process runs kernels, the library, and why it cannot be used."""
    is_disabled = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")
    mode = os.environ.get("OUZEL_KERNELS") or ("python" if is_disabled else "")
    if mode not in ("", "library", "jit", "python"):
        raise ImportError(f"OUZEL_KERNELS must be library, jit or python, got {mode!r}")
    if mode in ("", "library"):
        library, fault = _load_library()
        if not fault:
            return "library", library, ""
        if mode == "library":
            raise ImportError(f"the compiled kernels cannot be used: {fault}")
        return "jit", None, fault
    return mode, None, f"OUZEL_KERNELS={mode}"


def _load_library() -> tuple[Any, str]:
    """(library, reason): the library, and why it cannot be used; an empty reason if it can."""
    try:
        library = importlib.import_module("ouzel.kernels._library")
    except ModuleNotFoundError:
        return None, "there is no library; " + ("run `make kernels`" if BUILD.is_dir() else "a wheel for Linux has one")
    except ImportError as error:
        return None, f"{error}"
    if BUILD.is_dir() and library.digest != sources_digest():
        return library, "the library is older than its sources; run `make kernels`"
    return library, ""


def sources_digest() -> str:
    """A digest of all sources of the library: the kernels, what they import, and the build."""
    found = sources(kernel_files())
    found |= {file: read(file) for pattern in ("*.py", "*.c") for file in BUILD.glob(pattern)}
    return digest_of(found)


def kernel_files() -> list[Path]:
    """The files that have kernels or helpers."""
    files = [file for pattern in ("kernels/*.py", "engines/*/*.py") for file in PACKAGE.glob(pattern)]
    return sorted(file for file in files if _DECORATED in read(file))


def sources(files: Collection[Path]) -> dict[Path, bytes]:
    """The contents of files, and of all files of Ouzel that they import, directly or not."""
    found: dict[Path, bytes] = {}
    open_files = list(files)
    while open_files:
        file = open_files.pop()
        if file not in found:
            found[file] = read(file)
            for name in _IMPORTED.findall(found[file]):
                open_files.extend(_files(name.decode()))
    return found


def digest_of(found: Mapping[Path, bytes]) -> str:
    hasher = hashlib.sha256()
    for file in sorted(found):
        hasher.update(file.name.encode() + b"\0" + hashlib.sha256(found[file]).digest())
    return hasher.hexdigest()[:24]


def _files(name: str) -> list[Path]:
    """The source files of one of Ouzel's modules. For a package these are all its files, since any of them may be
    imported.
    """
    place = PACKAGE.joinpath(*name.split(".")[1:])
    if place == PACKAGE:
        return []
    return sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


@functools.cache
def read(file: Path) -> bytes:
    # The package may be in an archive, which only its loader can read.
    loader: Any = sys.modules[__name__].__loader__
    text: bytes = loader.get_data(str(file))
    return text


MODE, LIBRARY, WITHOUT_LIBRARY = _choose()
if MODE == "jit" and importlib.util.find_spec("numba") is None:
    raise ImportError("there are no compiled kernels for this platform; install numba: pip install 'ouzel[jit]'")
