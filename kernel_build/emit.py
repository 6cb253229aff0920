"""LLVM's language to machine code, for one target."""

from __future__ import annotations

import functools
from typing import Any

import llvmlite.binding as llvm

# What the objects may ask of libc, libm and runtime.c.
EXTERNAL = {
    "memset", "memcpy", "memmove", "fmod", "sqrt", "NRT_MemInfo_alloc", "NRT_MemInfo_alloc_aligned",
    "NRT_MemInfo_call_dtor", "NRT_MemInfo_new_varsize_dtor", "NRT_Allocate", "NRT_Free", "numba_attempt_nocopy_reshape",
}  # fmt: skip
X86_LEVELS = ("x86-64-v4", "x86-64-v3", "x86-64-v2")  # the most demanding one first
_BASE = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
_V2 = ("crc32", "cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_V4 = (*_V3, "avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl")
_NEEDS = {"x86-64-v4": _V4, "x86-64-v3": _V3, "x86-64-v2": _V2}


def host_level() -> str:
    """The level of this machine with its processor's name, `x86-64-v3@znver2`: the code is for all processors of the
    level, and its instructions are chosen and ordered as this one runs them best."""
    if not llvm.get_default_triple().startswith("x86_64"):
        return "generic"
    features = llvm.get_host_cpu_features()
    level = next(level for level in X86_LEVELS if all(features.get(need, True) for need in _NEEDS[level]))
    return f"{level}@{llvm.get_host_cpu_name()}"


@functools.cache
def _machine(triple: str, level: str) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    level, _, processor = level.partition("@")
    features = ""
    if processor:
        allowed = {*_BASE, *_NEEDS[level], "evex512"}
        further = [name for name, has in llvm.get_host_cpu_features().items() if has and name not in allowed]
        features = ",".join([*(f"+{name}" for name in _NEEDS[level]), *(f"-{name}" for name in further)])
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor or level, features=features, opt=3, reloc="pic", codemodel="default"
    )


def emit(bitcode: bytes, symbol: str, name: str, triple: str, level: str) -> bytes:
    """The object file of a module; its function `symbol` gets another name."""
    module = llvm.parse_bitcode(bitcode)
    machine = _machine(triple, level)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.get_function(symbol).name = name
    # As numba does it: cheap passes first, so that its pairs of counting references up and down are next to each other.
    for speed in (0, 3):
        options = llvm.create_pipeline_tuning_options(speed_level=speed)
        options.loop_vectorization = options.loop_unrolling = speed > 0
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getModulePassManager()
        if speed == 0:
            passes.add_loop_rotate_pass()
            passes.add_instruction_combine_pass()
            passes.add_jump_threading_pass()
        passes.add_refprune_pass()
        passes.run(module, builder)
    unknown = {each.name for each in module.functions if each.is_declaration and not each.name.startswith("llvm.")}
    unknown |= {each.name for each in module.global_variables if each.is_declaration or "dynamic" in each.name}
    if not unknown <= EXTERNAL:
        raise RuntimeError(f"{symbol} needs {', '.join(sorted(unknown - EXTERNAL))}, which the library has not")
    return bytes(machine.emit_object(module))
