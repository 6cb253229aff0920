"""How kernels are compiled and where their machine code is kept.

Two decorators: `kernel` for functions that Python calls, `helper` for functions that only kernels call.

Numba's own cache checks the file that defines a function, but a kernel also contains the code of the helpers it calls.
Here the machine code of a function is kept under a digest of its file and of every file of ours that this one imports,
directly or not. An edited helper, an upgraded package or another numba therefore never runs old code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import re
import stat
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

PACKAGE = Path(__file__).parent.parent

_IMPORTED = re.compile(rb"^\s*(?:from|import)\s+(ouzel[\w.]*)", re.MULTILINE)
_UNUSED_SECONDS_MAX = 30 * 24 * 3600
_SEAL_BYTES = 32


def kernel(
    function: Callable[..., Any] | None = None,
    *,
    allocates: bool = False,
    inline: bool = False,
    error_model: str = "python",
    signature: Any = None,
    is_called_from_python: bool = True,
) -> Any:
    """Compile a function that Python calls, when it is first called, or at once for a given signature.

    Without `allocates` the function may create no arrays; it is then compiled without numba's memory management.
    """
    if function is None:
        return functools.partial(
            kernel,
            allocates=allocates,
            inline=inline,
            error_model=error_model,
            signature=signature,
            is_called_from_python=is_called_from_python,
        )
    options: dict[str, Any] = {"nogil": True, "error_model": error_model, "no_cfunc_wrapper": True}
    if not allocates:
        options["_nrt"] = False
    if inline:
        options["forceinline"] = True
    if not is_called_from_python:
        options["no_cpython_wrapper"] = True
    dispatcher = numba.njit(**options)(function)
    if dispatcher is function:
        return function  # NUMBA_DISABLE_JIT=1
    folder = cache_folder()
    if folder is not None:
        source = Path(function.__code__.co_filename)
        dispatcher._cache = _Cache(function, folder / digest(source))
    if signature is not None:
        dispatcher.compile(signature)
        dispatcher.disable_compile()
    return dispatcher


# Functions that only kernels call need no entry for Python, which saves a quarter of the time of compiling.
helper = functools.partial(kernel, is_called_from_python=False)


@functools.cache
def digest(source: Path) -> str:
    """The cache key of a file: its text, the texts of all files it imports, and the compiler's version."""
    found: dict[Path, bytes] = {}
    open_files = [source]
    while open_files:
        file = open_files.pop()
        if file in found:
            continue
        found[file] = _text(file)
        for name in _IMPORTED.findall(found[file]):
            open_files.extend(_files(name.decode()))
    versions = [numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag or "python"]
    hasher = hashlib.sha256(repr(versions).encode())
    for file in sorted(found):
        hasher.update(file.name.encode() + b"\0" + hashlib.sha256(found[file]).digest())
    return hasher.hexdigest()[:24]


def _files(name: str) -> list[Path]:
    """The source files of a module of ours; for a package all its files, since any of them may be imported."""
    place = PACKAGE.joinpath(*name.split(".")[1:])
    if place == PACKAGE:
        return []
    return sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]


def _text(file: Path) -> bytes:
    # The package may be in an archive, which only its loader can read.
    loader: Any = sys.modules[__name__].__loader__
    text: bytes = loader.get_data(str(file))
    return text


class _Cache(NullCache):  # type: ignore[misc]
    """The machine code of one function on disk: a file for each signature and processor, with a checksum."""

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self._folder = folder
        self._name = (
            f"{Path(function.__code__.co_filename).stem}.{function.__name__}-{function.__code__.co_firstlineno}"
        )

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        target.refresh()
        path = self._path(signature, target.codegen())
        try:
            sealed = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(sealed[_SEAL_BYTES:]).digest() != sealed[:_SEAL_BYTES]:
            # Cut short or damaged: it is compiled again and written anew.
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return CompileResult._rebuild(target, *pickle.loads(sealed[_SEAL_BYTES:]))

    def save_overload(self, signature: Any, result: Any) -> None:
        body = dumps(result._reduce())
        path = self._path(signature, result.codegen)
        unfinished = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
        # The function is compiled and runs. If the disk is full, the next process compiles it again.
        with contextlib.suppress(OSError):
            if not self._folder.is_dir():
                self._folder.mkdir(parents=True, exist_ok=True)
                remove_unused(self._folder.parent)
            try:
                unfinished.write_bytes(hashlib.sha256(body).digest() + body)
                unfinished.replace(path)
            finally:
                unfinished.unlink(missing_ok=True)

    def _path(self, signature: Any, codegen: Any) -> Path:
        form = hashlib.sha256(repr((str(signature), codegen.magic_tuple())).encode()).hexdigest()[:16]
        return self._folder / f"{self._name}-{form}"


@functools.cache
def cache_folder() -> Path | None:
    """Where machine code is stored: numba's folder if it is set, the user's cache, a temporary folder, or nowhere."""
    if numba.config.CACHE_DIR:
        candidates = [Path(numba.config.CACHE_DIR) / "ouzel"]
    else:
        user = os.getuid() if hasattr(os, "getuid") else "user"
        candidates = [
            Path(AppDirs("ouzel", appauthor=False).user_cache_dir) / "kernels",
            Path(tempfile.gettempdir()) / f"ouzel-kernels-{user}",
        ]
    return next((folder for folder in candidates if _is_ours(folder)), None)


def _is_ours(folder: Path) -> bool:
    """Whether only we can write there: machine code is loaded from it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    is_private = not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and is_private)


def remove_unused(folder: Path) -> None:
    """Remove the code of versions whose folder has not changed for a month."""
    oldest = time.time() - _UNUSED_SECONDS_MAX
    for version in folder.iterdir():
        if version.stat().st_mtime < oldest:
            for file in version.iterdir():
                file.unlink(missing_ok=True)
            version.rmdir()
