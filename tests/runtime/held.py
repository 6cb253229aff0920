"""How much a session holds: the bytes of every array that it leads to, and the lengths of its collections."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def held_bytes(root: object) -> dict[str, int]:
    """Bytes by the path of attributes that leads to them; eight for each element of a collection."""
    found: dict[str, int] = {}
    seen: dict[int, Any] = {}
    ahead: list[tuple[str, Any]] = [("", root)]
    while ahead:
        path, one = ahead.pop()
        if isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, np.ndarray | pa.Table | pa.ChunkedArray | pa.Array):
            found[path] = found.get(path, 0) + int(one.nbytes)
        elif isinstance(one, str | bytes):
            found[path] = found.get(path, 0) + len(one)
        elif isinstance(one, dict):
            found[path] = found.get(path, 0) + 8 * len(one)
            ahead += [(f"{path}.*", value) for value in (*one, *one.values())]
        elif isinstance(one, list | tuple | set | frozenset):
            found[path] = found.get(path, 0) + 8 * len(one)
            names = getattr(one, "_fields", ("*",) * len(one))
            ahead += [(f"{path}.{name}", value) for name, value in zip(names, one, strict=True)]
        elif type(one).__module__.startswith("ouzel"):
            slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
            names = [*getattr(one, "__dict__", {}), *slots]
            ahead += [(f"{path}.{name}", getattr(one, name)) for name in names if hasattr(one, name)]
    return found
