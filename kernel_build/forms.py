"""The signatures of kernels, from their annotations.

A *form* is one signature: the types of numba's that a kernel is compiled for, and the *layout* by which `glue.c` reads
the arguments. In a layout ( ) is a tuple, a capital letter a scalar, a small letter and a digit an array with so many
dimensions; behind it `s` means any strides and `r` that it may be read-only.
"""

from __future__ import annotations

import importlib
import itertools
import types
import typing
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba.core import types as numba_types
from numba.np.numpy_support import from_dtype

from ouzel.kernels import jit

# The letters of dtypes, in the order of `glue.c`.
DTYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64")
LETTERS = "tbchijklmfd"


class Form(NamedTuple):
    types: tuple[Any, ...]  # numba's
    layout: str


class Entry(NamedTuple):
    """A kernel: a function that Python calls."""

    name: str  # with its module
    file: Path
    kernel: Any  # numba's dispatcher
    parameters: tuple[str, ...]
    forms: tuple[Form, ...]


def entries() -> list[Entry]:
    """All kernels of the package; numba compiles none of them yet."""
    assert jit.MODE == "jit", "set OUZEL_KERNELS=jit"
    for file in jit.kernel_files():
        importlib.import_module(".".join(file.relative_to(jit.PACKAGE.parent).with_suffix("").parts))
    return [
        entry_of(kernel, source.function)
        for kernel, source in jit.SOURCES.items()
        if source.is_kernel and source.function.__module__.startswith("ouzel.")
    ]


def entry_of(kernel: Any, function: Callable[..., Any]) -> Entry:
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    hints = typing.get_type_hints(function, include_extras=True)
    missing = [name for name in names if name not in hints]
    if missing:
        raise TypeError(f"{function.__module__}.{function.__name__}: {', '.join(missing)} need annotations")
    forms = tuple(
        Form(tuple(part[0] for part in parts), "".join(part[1] for part in parts))
        for parts in itertools.product(*(alternatives(hints[name]) for name in names))
    )
    name = f"{function.__module__}.{function.__name__}"
    return Entry(name, Path(function.__code__.co_filename), kernel, names, forms)


def alternatives(hint: Any) -> list[tuple[Any, str]]:
    """(type of numba's, layout) of an annotation, one for each member of its unions."""
    marks: tuple[str, ...] = ()
    if typing.get_origin(hint) is typing.Annotated:
        hint, *given = typing.get_args(hint)
        marks = tuple(given)
    if isinstance(hint, types.UnionType):
        return [found for member in typing.get_args(hint) for found in alternatives(marked(member, marks))]
    if typing.get_origin(hint) is np.ndarray:
        return [array(hint, marks)]
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        fields = typing.get_type_hints(hint, include_extras=True)
        products = itertools.product(*(alternatives(fields[name]) for name in hint._fields))
        return [
            (
                numba_types.BaseTuple.from_types([part[0] for part in parts], hint),
                "(" + "".join(part[1] for part in parts) + ")",
            )
            for parts in products
        ]
    if isinstance(hint, type) and (hint in (bool, int, float) or issubclass(hint, np.generic)):
        dtype = np.dtype(hint)
        return [(from_dtype(dtype), letter(dtype).upper())]
    if isinstance(hint, type) and issubclass(hint, IntEnum):
        return [(numba_types.int64, "L")]
    raise TypeError(f"{hint} is no type of a kernel's argument")


def marked(hint: Any, marks: tuple[str, ...]) -> Any:
    return typing.Annotated[(hint, *marks)] if marks else hint


def array(hint: Any, marks: tuple[str, ...]) -> tuple[Any, str]:
    dtype = np.dtype(typing.get_args(typing.get_args(hint)[1])[0])
    dimensions = next((int(mark) for mark in marks if mark.isdigit()), 1)
    is_strided, is_readonly = "strided" in marks, "read-only" in marks
    found = numba_types.Array(from_dtype(dtype), dimensions, "A" if is_strided else "C", readonly=is_readonly)
    return found, f"{letter(dtype)}{dimensions}{'s' * is_strided}{'r' * is_readonly}"


def letter(dtype: np.dtype[Any]) -> str:
    return LETTERS[DTYPES.index(dtype.name)]
