"""Kernels that numba compiles when they are first called, and the cache of their machine code.

Numba's own cache checks only the file that defines a function, but a kernel also contains the code of the helpers that
it calls. Here the machine code of a function is stored under a digest of its file, of all files of Ouzel that it
imports, directly or not, and of numba's version. So old code never runs after a helper, the package or numba has
changed.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import sys
import tempfile
import time
import types
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from llvmlite import ir
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.extending import intrinsic
from numba.misc.appdirs import AppDirs

from ouzel.kernels import jit

_UNUSED_SECONDS_MAX = 30 * 24 * 3600
_SEAL_BYTES = 32


def compiled(function: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    """A function that numba compiles at its first call. The functions of Ouzel that it calls are compiled in the same
    way.
    """
    dispatcher = numba.njit(**options)(_with_compiled_callees(function))
    folder = cache_folder()
    place = None if folder is None else folder / digest(Path(function.__code__.co_filename))
    dispatcher._cache = _Cache(function, place)
    return dispatcher


@functools.cache
def _announce() -> None:
    """Explain, once per process, why the first call takes long."""
    if jit.MODE == "jit":
        reason = jit.WITHOUT_LIBRARY
        sys.stderr.write(f"ouzel: numba compiles the kernels of this query, for up to half a minute ({reason})\n")
        sys.stderr.flush()


def _with_compiled_callees(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose callees are compiled by numba. It is the same function unless this process uses the library."""
    names = {name: function.__globals__.get(name) for name in function.__code__.co_names}
    plain = {name: value for name, value in names.items() if _is_ours_and_plain(value)}
    if not plain:
        return function
    scope = function.__globals__ | {name: from_source(value) for name, value in plain.items()}
    made = types.FunctionType(function.__code__, scope, function.__name__, function.__defaults__, function.__closure__)
    made.__module__ = function.__module__
    made.__qualname__ = function.__qualname__
    return made


def _is_ours_and_plain(value: Any) -> bool:
    return (
        callable(value) and isinstance(value, (types.FunctionType, types.BuiltinFunctionType)) and value in jit.SOURCES
    )


@functools.cache
def from_source(made: Any) -> Any:
    """A kernel or helper as numba compiles it, in every mode of this process."""
    source = jit.SOURCES[made]
    return compiled(source.function, source.options) if source.options else INTRINSICS[source.function.__name__]


@functools.cache
def digest(source: Path) -> str:
    """A name for the compiled code of a file. It depends on the contents of the file, of all files that it imports, and
    on the version of the compiler.
    """
    versions = [numba.__version__, llvmlite.__version__, np.__version__, sys.implementation.cache_tag or "python"]
    return hashlib.sha256(repr([*versions, jit.digest_of(jit.sources([source]))]).encode()).hexdigest()[:24]


@intrinsic
def load_word(typing_context: Any, data: Any, position: Any) -> Any:
    signature = numba.types.uint64(data, numba.types.uintp)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        # Strings begin anywhere, so the load must not be taken for an aligned one.
        word = builder.load(address, align=1)
        return builder.bswap(word) if sys.byteorder == "big" else word

    return signature, generate


@intrinsic
def store_word(typing_context: Any, data: Any, position: Any, word: Any) -> Any:
    signature = numba.types.void(data, numba.types.uintp, numba.types.uint64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.bitcast(builder.gep(array.data, [arguments[1]]), ir.IntType(64).as_pointer())
        word = builder.bswap(arguments[2]) if sys.byteorder == "big" else arguments[2]
        builder.store(word, address, align=1)
        return context.get_dummy_value()

    return signature, generate


INTRINSICS = {"load_word": load_word, "store_word": store_word}


class _Cache(NullCache):  # type: ignore[misc]
    """The machine code of one function on disk: a file for each signature and processor, with a checksum."""

    def __init__(self, function: Callable[..., Any], folder: Path | None) -> None:
        self._folder = folder
        self._name = (
            f"{Path(function.__code__.co_filename).stem}.{function.__name__}-{function.__code__.co_firstlineno}"
        )

    @property
    def cache_path(self) -> str:
        return str(self._folder)

    def load_overload(self, signature: Any, target: Any) -> Any:
        target.refresh()
        found = None if self._folder is None else self._stored(self._path(self._folder, signature, target.codegen()))
        if found is None:
            _announce()
            return None
        return CompileResult._rebuild(target, *pickle.loads(found))

    @staticmethod
    def _stored(path: Path) -> bytes | None:
        try:
            sealed = path.read_bytes()
        except OSError:
            return None
        if hashlib.sha256(sealed[_SEAL_BYTES:]).digest() != sealed[:_SEAL_BYTES]:
            # Cut short or damaged: it is compiled again and written anew.
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        return sealed[_SEAL_BYTES:]

    def save_overload(self, signature: Any, result: Any) -> None:
        if self._folder is None:
            return
        body = dumps(result._reduce())
        path = self._path(self._folder, signature, result.codegen)
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

    def _path(self, folder: Path, signature: Any, codegen: Any) -> Path:
        form = hashlib.sha256(repr((str(signature), codegen.magic_tuple())).encode()).hexdigest()[:16]
        return folder / f"{self._name}-{form}"


@functools.cache
def cache_folder() -> Path | None:
    """The folder for machine code: numba's folder if it is set, otherwise the user's cache, a temporary folder, or
    None.
    """
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
    """Whether this user, and nobody else, can write to a folder. Machine code is loaded from it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        state = folder.stat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    is_private = not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not hasattr(os, "getuid") or (state.st_uid == os.getuid() and is_private)


def remove_unused(folder: Path) -> None:
    """Remove the code of versions whose folder has not been written to for a month."""
    oldest = time.time() - _UNUSED_SECONDS_MAX
    for version in folder.iterdir():
        if version.stat().st_mtime < oldest:
            for file in version.iterdir():
                file.unlink(missing_ok=True)
            version.rmdir()
