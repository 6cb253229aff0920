"""Puts a library of kernels into the wheel, and its platform into the wheel's name.

Without OUZEL_WHEEL_LIBRARY the wheel has no compiled code: it is for any platform, and numba compiles the kernels.
"""

from __future__ import annotations

import os
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class WheelHook(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        library = os.environ.get("OUZEL_WHEEL_LIBRARY")
        if library and version != "editable":
            build_data["pure_python"] = False
            build_data["tag"] = f"cp311-abi3-{os.environ['OUZEL_WHEEL_PLATFORM']}"
            build_data["force_include"][os.path.abspath(library)] = "ouzel/kernels/_library.abi3.so"
