"""All kernels to one library: what is lowered and emitted is kept under a digest of all that it was made of."""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import llvmlite
import numba

from kernel_build import emit, forms, lower
from kernel_build.forms import Entry, Form
from kernel_build.link import Row, link
from ouzel.kernels import jit

FOLDER = jit.PACKAGE.parent.parent / "build" / "kernels"


class Piece(NamedTuple):
    """One form of one kernel, and the name of the files that are kept of it."""

    entry: Entry
    form: Form
    symbol: str
    key: str

    @property
    def bitcode(self) -> Path:
        return FOLDER / f"{self.key}.bc"

    @property
    def results(self) -> Path:
        return FOLDER / f"{self.key}.results"

    def object(self, triple: str, level: str) -> Path:
        return FOLDER / f"{self.key}-{triple}-{level}-{_digest(emit.__file__)[:8]}.o"


def build(
    kernels: Sequence[Entry], triple: str, levels: tuple[str, ...], command: Sequence[str], library: Path
) -> None:
    """Make a library of some kernels, which were imported after `lower.prepare`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pieces = pieces_of(kernels)
    emit_all(pieces, triple, levels)
    rows = [
        Row(
            piece.entry.name, piece.entry.parameters, piece.form.layout, piece.results.read_text(),
            tuple(symbol_of(piece, level) for level in levels),
        )
        for piece in pieces
    ]  # fmt: skip
    objects = [piece.object(triple, level) for piece in pieces for level in levels]
    library.parent.mkdir(parents=True, exist_ok=True)
    link(command, rows, levels, jit.sources_digest(), objects, FOLDER / "table.h", library)
    print(f"{library.name}: {len(pieces)} kernels, {', '.join(levels)}, {library.stat().st_size // 1024} KB")


def versions() -> str:
    return f"{numba.__version__} {llvmlite.__version__}"


def pieces_of(kernels: Sequence[Entry]) -> list[Piece]:
    """Every form of every kernel, those of one name in a row."""
    own = _digest(forms.__file__, lower.__file__)
    pieces = []
    for entry in sorted(kernels, key=lambda entry: entry.name):
        digest = jit.digest_of(jit.sources([entry.file]))
        for number, form in enumerate(entry.forms):
            made_of = f"{entry.name} {form.layout} {digest} {own} {versions()}"
            key = hashlib.sha256(made_of.encode()).hexdigest()[:24]
            symbol = f"{entry.name.replace('.', '_')}_{number}"
            pieces.append(Piece(entry, form, symbol, key))
    return pieces


@functools.cache
def _digest(*files: str) -> str:
    return jit.digest_of({Path(file): Path(file).read_bytes() for file in files})


def symbol_of(piece: Piece, level: str) -> str:
    return f"{piece.symbol}_{re.sub(r'[^a-z0-9]', '_', level)}"


def emit_all(pieces: list[Piece], triple: str, levels: tuple[str, ...]) -> None:
    """Lower and emit what is missing, on all cores.

    A module's kernels are lowered in one process, since they share helpers; objects are made in any.
    """
    global _pieces
    _pieces = pieces
    lowered = [number for number, piece in enumerate(pieces) if piece.results.exists()]
    missing = sorted(set(range(len(pieces))) - set(lowered))
    modules = [list(group) for _, group in groupby(missing, key=lambda number: pieces[number].entry.file)]
    # The longest first, so that no core waits for one at the end.
    modules.sort(key=lambda group: -sum(len(pieces[number].form.layout) for number in group))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("fork")) as pool:

        def emissions(numbers: Sequence[int]) -> dict[Future[str], list[int]]:
            return {
                pool.submit(_emit, number, triple, level): []
                for number in numbers
                for level in levels
                if not pieces[number].object(triple, level).exists()
            }

        waiting = {pool.submit(_lower, group): group for group in modules} | emissions(lowered)
        finished = 0
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                if future.exception() is not None:
                    pool.shutdown(cancel_futures=True)
                finished += 1
                waiting |= emissions(waiting.pop(future))
                print(f"[{finished}/{finished + len(waiting)}] {future.result()}", flush=True)


_pieces: list[Piece] = []


def _lower(numbers: list[int]) -> str:
    for piece in (_pieces[number] for number in numbers):
        lowered = lower.lower(piece.entry.kernel, piece.form, piece.symbol)
        _write(piece.bitcode, lowered.bitcode)
        _write(piece.results, lowered.results.encode())
    return f"{piece.entry.file.stem} lowered"


def _emit(number: int, triple: str, level: str) -> str:
    piece = _pieces[number]
    code = emit.emit(piece.bitcode.read_bytes(), piece.symbol, symbol_of(piece, level), triple, level)
    _write(piece.object(triple, level), code)
    return f"{piece.entry.name} {level}"


def _write(file: Path, content: bytes) -> None:
    unfinished = file.with_suffix(".unfinished")
    unfinished.write_bytes(content)
    unfinished.replace(file)
