"""Compilation: cached kernels, and family functions called through typed pointers.

Solvers are compiled once and call a family's functions by address.  So a new family, including a
user's own outside this package, runs in every solver at full speed, and nothing is recompiled for
it.  A call by address costs a few nanoseconds, and is made for a *block* of clusters, never for a
single one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import pickle
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

import llvmlite.ir as ir
import numba
import numpy as np
from numba import types
from numba.core import cgutils, event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.ccallback import CFunc
from numba.core.errors import NumbaError
from numba.extending import intrinsic, lower_builtin, type_callable, typeof_impl
from numba.np.arrayobj import load_item, populate_array

from dpsearch._clock import compiling
from dpsearch._linking import LINKED, KernelCompiler, LinkedCompiler

F = TypeVar("F", bound=Callable[..., Any])

# Reassociation and fused multiply-add let LLVM vectorise sums.  NaN and infinity keep their
# meaning: -inf is a legitimate log density.
FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
# The number of functions that the first fit of a numeric table compiles.
_USUAL_COUNT = 58


def _source_stamp() -> str:
    """Return a hash of the source files of this package that define kernels.

    Numba checks only the file that defines a kernel, so its cached kernel would be stale after a
    change of a helper in another file.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        text = path.read_bytes()
        if b"_jit" in text or path.name in ("_jit.py", "_linking.py"):
            digest.update(text)
    return digest.hexdigest()


_STAMP = _source_stamp()
_PACKAGE = __name__.partition(".")[0]


def _stamp_of(function: Any) -> str:
    """Return a hash of the sources of a compiled function: this package, and all that it refers to.

    A user's family may use constants and functions of other files.
    """
    if function.__module__.partition(".")[0] == _PACKAGE:
        return _STAMP
    digest, seen = hashlib.sha256(_STAMP.encode()), set[Any]()

    def add(value: Any, names: tuple[str, ...]) -> None:
        code = getattr(getattr(value, "py_func", value), "__code__", None)
        if isinstance(value, ModuleType):
            if value.__name__.partition(".")[0] not in ("math", "numpy", "numba", _PACKAGE):
                for name in names:
                    add(getattr(value, name, None), ())
        elif code is None:
            if isinstance(value, int | float | str | tuple | np.ndarray):
                digest.update(repr(np.asarray(value).tolist()).encode())
        elif code not in seen:
            seen.add(code)
            digest.update(repr((code.co_code, code.co_names)).encode())
            digest.update(repr([c for c in code.co_consts if not hasattr(c, "co_code")]).encode())
            refers = inspect.getclosurevars(getattr(value, "py_func", value))
            for found in (*refers.globals.values(), *refers.nonlocals.values()):
                add(found, code.co_names)

    add(function, ())
    return digest.hexdigest()


_DIGEST_SIZE = hashlib.sha256().digest_size


class KernelCacheFile(IndexDataCacheFile):  # type: ignore[misc]
    """The compiled forms of one function on disk, in files with a checksum, a stamp and their key.

    In Numba's own files a truncation raises an error of `pickle`, a wrong byte may crash the
    process, and of two processes that write at the same time one may load the other's kernel in
    place of its own.  `stamp` identifies the sources: kernels with another stamp are ignored.
    """

    def __init__(self, file: IndexDataCacheFile, stamp: str) -> None:
        name = file._index_name.removesuffix(".nbi") + ".checked"
        super().__init__(file._cache_path, name, (file._version, file._source_stamp, stamp))

    def save(self, key: Any, data: Any) -> None:
        super().save(key, (self._source_stamp, key, data))

    def load(self, key: Any) -> Any:
        found = super().load(key)
        if found is None or found[:2] != (self._source_stamp, key):
            return None
        return found[2]

    def _dump(self, obj: Any) -> bytes:
        content: bytes = super()._dump(obj)
        return hashlib.sha256(content).digest() + content

    def _save_index(self, overloads: Any) -> None:
        with self._open_for_write(self._index_path) as file:
            file.write(self._dump((self._source_stamp, overloads)))

    def _load_index(self) -> Any:
        try:
            stamp, overloads = self._read(self._index_path) or (None, {})
        except FileNotFoundError:
            return {}
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return self._read(self._data_path(name))

    def _read(self, path: str) -> Any:
        """Return the object after the checksum of a file; None, with a warning, if damaged."""
        content = Path(path).read_bytes()
        digest, packed = content[:_DIGEST_SIZE], content[_DIGEST_SIZE:]
        if hashlib.sha256(packed).digest() == digest:
            return pickle.loads(packed)
        warnings.warn(
            f"the file {path} of compiled kernels is damaged: the kernel is compiled again",
            RuntimeWarning,
            stacklevel=2,
        )
        return None


def _check_cache(compiled: Any) -> None:
    """Make the on-disk cache of a kernel depend on the whole package, and check its files."""
    cache = getattr(compiled, "_cache", None)
    if isinstance(cache, FunctionCache):
        function = getattr(compiled, "py_func", None) or compiled._pyfunc
        cache._cache_file = KernelCacheFile(cache._cache_file, _stamp_of(function))


def kernel(function: F) -> F:
    """Compile a solver's loop, without the GIL and cached on disk."""
    return _compile(function)


def inner(function: F) -> F:
    """Compile a function that allocates no arrays into the kernels that call it.

    It is compiled without Numba's memory manager, since counting references to slices would take
    half the time of a loop of a few nanoseconds.
    """
    return Inner(function)  # type: ignore[return-value]


class Inner:
    """A function inside kernels, which is compiled by itself only if Python calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function
        options = _OPTIONS | LINKED | {"_nrt": False, "pipeline_class": LinkedCompiler}
        self.linked: Any = numba.njit(**options)(function)
        self._entry: Any = None
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any) -> Any:
        if self._entry is None:
            self._entry = _compile(self.py_func, _nrt=False)
        return self._entry(*args)


@typeof_impl.register(Inner)
def _typeof_inner(value: Inner, context: Any) -> Any:
    return types.Dispatcher(value.linked)


def inline(function: F) -> F:
    """Compile a one-line function into its callers, so that it may return a slice to `inner`."""
    return _compile(function, inline="always")


def _compile(function: F, **options: Any) -> F:
    options = _OPTIONS | {"cache": True, "pipeline_class": KernelCompiler} | options
    compiled = numba.njit(**options)(function)
    _check_cache(compiled)
    return compiled  # type: ignore[no-any-return]


class Compiling(NamedTuple):
    """A function that is about to be compiled."""

    name: str
    number: int  # 1, 2, … since the listening began
    expected: int  # about how many there will be


@contextlib.contextmanager
def on_compile(callback: Callable[[Compiling], None]) -> Iterator[None]:
    """Call `callback` before each compilation of a function that is not in the cache."""

    class Listener(event.Listener):  # type: ignore[misc]
        number = 0

        def on_start(self, event: Any) -> None:
            self.number += 1
            name = event.data["dispatcher"].py_func.__name__
            callback(Compiling(name, self.number, max(_USUAL_COUNT, self.number)))

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Listener()):
        yield


_f8 = types.float64
_vector = types.Array(_f8, 1, "C")
_ints = types.Array(types.int64, 1, "C")
_ids = types.Array(types.int32, 1, "C")
_void = types.none

# The signatures of a family's functions.  `params` is its flat parameter vector, `row` one
# cluster's statistics, `pool` all rows end to end with `starts` the first element of those
# meant, and (`ids`, `values`) one data row: `ids` is empty for dense data and holds the column
# numbers of `values` for sparse data.
SIGNATURES = {
    "update": _void(_vector, _vector, _ids, _vector, _f8),  # (params, row, ids, values, weight)
    "merge": _void(_vector, _vector, _vector, _f8),  # (params, row, other, sign)
    # (params, pool, starts, ids, values, out)
    "score_rows": _void(_vector, _vector, _ints, _ids, _vector, _vector),
    "log_marginal": _f8(_vector, _vector),  # (params, row)
    "score_member": _f8(_vector, _vector, _ids, _vector),  # (params, row, ids, values)
    # (params, pool, starts, offsets, skipped, ids, values, out)
    "score_best": _void(_vector, _vector, _ints, _vector, types.int64, _ids, _vector, _vector),
    # (params, pool, starts, dots, square, out)
    "score_dots": _void(_vector, _vector, _ints, _vector, _f8, _vector),
    # (params, pool, starts, dots, square, offsets, skipped, floor, out)
    "best_dots": _void(_vector, _vector, _ints, _vector, _f8, _vector, types.int64, _f8, _vector),
    "features": _void(_vector, _ids, _vector, _vector),  # (params, ids, values, out)
    # (params, row, helpers, low, high, ids, values)
    "bound": _f8(_vector, _vector, types.int64, _vector, _vector, _ids, _vector),
}


class Pointer:
    """A function that is compiled to a fixed signature when its address is first used."""

    def __init__(self, function: Callable[..., Any], signature: Any, allocates: bool) -> None:
        self.function = function
        self.signature = signature
        self.allocates = allocates
        self._compiled: Any = None

    @property
    def address(self) -> int:
        if self._compiled is None:
            # CFunc, not the decorator numba.cfunc, which compiles before its cache can be replaced.
            compiled = CFunc(
                self.function,
                (self.signature.args, self.signature.return_type),
                locals={},
                options={"fastmath": FASTMATH, "error_model": "numpy", "_nrt": self.allocates},
                pipeline_class=KernelCompiler,  # type: ignore[arg-type]
            )
            with contextlib.suppress(RuntimeError):  # a function typed at a prompt has no file
                compiled.enable_caching()
            _check_cache(compiled)
            try:
                with compiling():
                    compiled.compile()
            except NumbaError as error:
                if not self.allocates:
                    error.add_note(
                        f"{self.function.__name__} must not create arrays, not even by assigning to"
                        " a slice; if it has to, mark it @pointer(…, allocates=True)"
                    )
                raise
            self._compiled = compiled
        return int(self._compiled.address)

    def __call__(self, *args: Any) -> Any:
        """Run the plain Python function: for reading, debugging and oracles."""
        return self.function(*args)


def pointer(name: str, *, allocates: bool = False) -> Callable[[Callable[..., Any]], Pointer]:
    """Mark a family's function of this name, one of `SIGNATURES`, to be called by its address.

    It is compiled without Numba's memory manager, like an `inner` one, unless it allocates.
    """
    return lambda function: Pointer(function, SIGNATURES[name], allocates)


def emits(result: Callable[..., Any], codegen: Callable[..., Any]) -> Callable[[F], F]:
    """Mark a function that is plain Python outside kernels and a few instructions inside.

    Numba would compile even one line through dozens of steps, for each of its callers.  `result`
    returns the type of the result from those of the arguments, `codegen` emits the instructions.
    """

    def mark(function: F) -> F:
        type_callable(function)(lambda context: result)
        lower_builtin(function, types.VarArg(types.Any))(codegen)
        return function

    return mark


def as_integer(context: Any, builder: Any, value: Any, kind: Any) -> Any:
    """Emit the conversion of a number to an integer, by which kernels index."""
    return context.cast(builder, value, kind, types.intp)


def emit_view(context: Any, builder: Any, kind: Any, vector: Any, first: Any, n: Any) -> Any:
    """Emit ``vector[first : first + n]`` as two instructions; Numba's slice needs a hundred.

    Nothing is checked unless NUMBA_BOUNDSCHECK is set, and no reference is counted, so the vector
    must outlive the view, like an argument of a kernel.
    """
    source = context.make_array(kind)(context, builder, vector)
    if numba.config.BOUNDSCHECK:  # type: ignore[attr-defined]
        end, size = builder.add(first, n), builder.extract_value(source.shape, 0)
        below = builder.icmp_signed("<", first, first.type(0))
        beyond = builder.or_(below, builder.icmp_signed(">", end, size))
        filled = builder.icmp_signed(">", n, n.type(0))
        with builder.if_then(builder.and_(filled, beyond), likely=False):
            message = ("a view reaches beyond its vector",)
            context.call_conv.return_user_exc(builder, IndexError, message)
    out = context.make_array(kind)(context, builder)
    populate_array(
        out, data=builder.gep(source.data, [first]), shape=[n], strides=[source.itemsize],
        itemsize=source.itemsize, meminfo=None,
    )  # fmt: skip
    return out._getvalue()


def emit_entry(context: Any, builder: Any, kind: Any, vector: Any, index: Any) -> Any:
    """Emit ``vector[index]``."""
    source = context.make_array(kind)(context, builder, vector)
    return load_item(context, builder, kind, builder.gep(source.data, [index]))


def _emit_view(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    kinds = signature.args
    first, n = (as_integer(context, builder, arguments[i], kinds[i]) for i in (1, 2))
    return emit_view(context, builder, kinds[0], arguments[0], first, n)


@emits(lambda values, start, length: values, _emit_view)
def view(values: Any, start: Any, length: Any) -> Any:
    """Return ``values[start : start + length]`` of a vector: see `emit_view`."""
    return values[start : start + length]


def _emit_next(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    counter = context.make_array(signature.args[0])(context, builder, arguments[0])
    return builder.atomic_rmw("add", counter.data, ir.Constant(ir.IntType(64), 1), "monotonic")


@emits(lambda counter: types.int64, _emit_next)
def take_next(counter: Any) -> Any:
    """Return counter[0], an int64, and add one to it; no two threads get the same number."""
    counter[0] += 1
    return counter[0] - 1


def _caller(signature: Any) -> Any:
    """An intrinsic `call(address, (arguments…))` for functions of one signature."""

    @intrinsic  # type: ignore[untyped-decorator]
    def call(typing_context: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            target, packed = values
            unpacked = cgutils.unpack_tuple(builder, packed)
            cast = [
                context.cast(builder, value, given, wanted)
                for value, given, wanted in zip(unpacked, sig.args[1], signature.args, strict=True)
            ]
            kind = ir.FunctionType(
                context.get_value_type(signature.return_type),
                [context.get_value_type(argument) for argument in signature.args],
            )
            result = builder.call(builder.inttoptr(target, kind.as_pointer()), cast)
            return context.get_dummy_value() if signature.return_type == types.none else result

        return signature.return_type(types.intp, arguments), codegen

    return call


call_update = _caller(SIGNATURES["update"])
call_merge = _caller(SIGNATURES["merge"])
call_score_rows = _caller(SIGNATURES["score_rows"])
call_log_marginal = _caller(SIGNATURES["log_marginal"])
call_score_member = _caller(SIGNATURES["score_member"])
call_score_best = _caller(SIGNATURES["score_best"])
call_score_dots = _caller(SIGNATURES["score_dots"])
call_best_dots = _caller(SIGNATURES["best_dots"])
call_features = _caller(SIGNATURES["features"])
call_bound = _caller(SIGNATURES["bound"])


@intrinsic  # type: ignore[untyped-decorator]
def stack_vector(typing_context: Any) -> Any:
    """Return a vector of 64 numbers on the stack of the calling function."""

    def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        data = cgutils.alloca_once(builder, context.get_value_type(types.float64), size=64)
        array = context.make_array(_vector)(context, builder)
        word = context.get_constant(types.intp, 8)
        populate_array(
            array,
            data=data,
            shape=[context.get_constant(types.intp, 64)],
            strides=[word],
            itemsize=word,
            meminfo=None,
        )
        return array._getvalue()

    return _vector(), codegen
