"""Kernels to LLVM's language: numba types and lowers them, optimises nothing and emits no machine code.

For each form a function `int32 symbol(int64 *words)` is added. It makes numba's values from words, calls the kernel,
stores the results into words and returns a status. An array is its data and its shape, with strides if they are free; a
scalar is one word. Everything else in the module becomes internal, so that LLVM may inline and drop it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.ir as ir
import numba
from numba.core import cgutils, codegen, types
from numba.core.callconv import CPUCallConv
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import nrtdynmod
from numba.core.runtime.nrt import rtsys
from numba.np import arrayobj

from kernel_build.forms import DTYPES, LETTERS, Form
from ouzel.kernels import numba_jit

WORDS_MAX = 512  # as in glue.c
I32, I64 = ir.IntType(32), ir.IntType(64)


class _Lowered(codegen.AOTCodeLibrary):
    """What numba lowered, linked with what it calls."""

    def _optimize_functions(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout

    def _optimize_final_module(self) -> None:
        pass


class _Codegen(codegen.AOTCPUCodegen):
    _library_class = _Lowered

    def set_env(self, name: str, env: Any) -> None:
        pass


@global_compiler_lock
def prepare() -> None:
    """From here on numba only lowers in this process. Comes before kernels are imported."""
    numba_jit.cache_folder = lambda: None
    numba.njit(lambda value: value + 1)(1)  # sets up the target
    context = cpu_target.target_context
    context._internal_codegen = _Codegen("ouzel", cpu_name="generic")
    # The runtime's own functions were optimised for this machine; other targets need them as they were lowered.
    rtsys._library = nrtdynmod.compile_nrt_functions(context)
    kind = type(context)
    # Numba finds compiled functions by their entry point, so each needs one of its own.
    kind.get_executable = lambda self, library, fndesc, env: [].append
    kind.create_cpython_wrapper = kind.create_cfunc_wrapper = lambda *args, **kwargs: None
    # The text of an exception, without paths of this machine, and without values that only Python can write.
    with_place = CPUCallConv.build_excinfo_struct
    CPUCallConv.build_excinfo_struct = lambda self, exc, exc_args, loc, func_name: with_place(
        self, exc, exc_args, None, func_name
    )
    CPUCallConv.return_dynamic_user_exc = lambda self, builder, exc, exc_args, nb_types, loc=None, func_name=None: (
        self.return_user_exc(builder, exc, (f"raised by {func_name}",))
    )


class Lowered(NamedTuple):
    bitcode: bytes
    results: str  # their layout


@global_compiler_lock
def lower(kernel: Any, form: Form, symbol: str) -> Lowered:
    kernel.compile(form.types)
    result = kernel.overloads[form.types]
    context = cpu_target.target_context
    library = context.codegen().create_library(symbol)
    library.add_linking_library(result.library)
    module, results = _Wrapper(context, result.fndesc, symbol).build()
    library.add_ir_module(module)
    library.finalize()
    final = library._final_module
    for value in [*final.functions, *final.global_variables]:
        if not value.is_declaration and value.name != symbol and value.linkage.name not in ("internal", "private"):
            value.linkage = "internal"
    return Lowered(final.as_bitcode(), results)


class _Wrapper:
    """The function that is called with words."""

    def __init__(self, context: Any, fndesc: Any, symbol: str) -> None:
        self._context, self._fndesc = context, fndesc
        self._module = context.create_module("wrapper")
        wrapper = ir.Function(self._module, ir.FunctionType(I32, [I64.as_pointer()]), symbol)
        self._builder = ir.IRBuilder(wrapper.append_basic_block("entry"))
        self._words = wrapper.args[0]
        self._read = self._written = 0

    def build(self) -> tuple[Any, str]:
        context, fndesc, builder = self._context, self._fndesc, self._builder
        kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
        callee = ir.Function(self._module, kind, fndesc.llvm_func_name)
        arguments = [self._argument(each) for each in fndesc.argtypes]
        assert self._read <= WORDS_MAX, f"{fndesc.qualname} has too many arguments"
        status, result = context.call_conv.call_function(builder, callee, fndesc.restype, fndesc.argtypes, arguments)
        with builder.if_then(status.is_error, likely=False):
            # Where the pickled exception is, and how long.
            record = builder.load(status.excinfoptr)
            self._store(builder.ptrtoint(builder.extract_value(record, 0), I64))
            self._store(builder.sext(builder.extract_value(record, 1), I64))
            builder.ret(status.code)
        self._written = 0
        results = self._result(fndesc.restype, result)
        builder.ret(I32(0))
        return self._module, results

    def _next(self) -> Any:
        self._read += 1
        return self._builder.load(self._builder.gep(self._words, [I64(self._read - 1)]))

    def _argument(self, each: Any) -> Any:
        context, builder = self._context, self._builder
        if isinstance(each, types.BaseTuple):
            return context.make_tuple(builder, each, [self._argument(part) for part in each.types])
        if isinstance(each, types.Array):
            kind = context.get_data_type(each.dtype)
            data = builder.inttoptr(self._next(), kind.as_pointer())
            shape = [self._next() for _ in range(each.ndim)]
            itemsize = context.get_constant(types.intp, context.get_abi_sizeof(kind))
            if each.layout == "A":
                strides = [self._next() for _ in range(each.ndim)]
            else:
                strides, step = [], itemsize
                for size in reversed(shape):
                    strides.insert(0, step)
                    step = builder.mul(step, size)
            array = context.make_array(each)(context, builder)
            shape, strides = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides)
            arrayobj.populate_array(array, data=data, shape=shape, strides=strides, itemsize=itemsize, meminfo=None)
            return array._getvalue()
        value = self._next()
        if each == types.float64:
            return builder.bitcast(value, ir.DoubleType())
        kind = context.get_value_type(each)
        return value if kind == I64 else builder.trunc(value, kind)

    def _store(self, value: Any) -> None:
        self._builder.store(value, self._builder.gep(self._words, [I64(self._written)]))
        self._written += 1

    def _result(self, each: Any, value: Any) -> str:
        context, builder = self._context, self._builder
        if each == types.none:
            return ""
        if isinstance(each, types.BaseTuple):
            parts = [self._result(part, builder.extract_value(value, k)) for k, part in enumerate(each.types)]
            return f"({''.join(parts)})"
        if isinstance(each, types.Array):
            # `glue.c` makes an array that owns the memory block: block, data, shape, strides.
            array = context.make_array(each)(context, builder, value)
            self._store(builder.ptrtoint(array.meminfo, I64))
            self._store(builder.ptrtoint(array.data, I64))
            for part in cgutils.unpack_tuple(builder, array.shape) + cgutils.unpack_tuple(builder, array.strides):
                self._store(part)
            return f"{_letter(each.dtype)}{each.ndim}"
        if isinstance(each, types.Float):
            self._store(builder.bitcast(value, I64))
        elif value.type == I64:
            self._store(value)
        else:
            self._store(builder.sext(value, I64) if getattr(each, "signed", False) else builder.zext(value, I64))
        return _letter(each).upper()


def _letter(each: Any) -> str:
    each = each.dtype if isinstance(each, types.IntEnumMember) else types.unliteral(each)
    return LETTERS[DTYPES.index(str(each))]
