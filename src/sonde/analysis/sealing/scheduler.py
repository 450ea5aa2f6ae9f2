"""Connects to an existing Dask cluster, or starts one on this host for as long as it is needed."""

from __future__ import annotations

import logging
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from sonde.analysis.sealing.engines import cores
from sonde.errors import ClusterError, MissingExtra, SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL = "local"
CONNECT_S = 30.0
_NOISY = ("distributed", "tornado.application", "asyncio")


@contextmanager
def client_of(where: Any, memory: int | None, most: int) -> Iterator[Any]:
    """A client for `where`: a Client, which stays open, an address, or `local[:N]`. `most`: more workers would have nothing to do."""
    try:
        import distributed
    except ImportError:
        raise MissingExtra.of("distributed", "cluster", "Sealing on Dask") from None
    if not isinstance(where, str):
        yield where
    elif is_local(where):
        with _local(distributed, min(workers_of(where), most), memory) as client:
            yield client
    else:
        with _quiet(), _connected(distributed, where) as client:
            yield client


def is_local(where: str) -> bool:
    """Whether the cluster is to be made on this host."""
    return where == LOCAL or where.startswith(f"{LOCAL}:")


def workers_of(where: str) -> int:
    """How many processes `local[:N]` means. Raises SettingError if it has another form."""
    count = where.removeprefix(LOCAL).removeprefix(":")
    if count and not (count.isdecimal() and 0 < int(count) < 10_000):
        raise SettingError(
            f"{where!r} is not a cluster. Give the address of a Dask scheduler, or local:4 for four processes."
        )
    return int(count) if count else cores()


@contextmanager
def _local(distributed: Any, workers: int, memory: int | None) -> Iterator[Any]:
    """A cluster of processes on this host, which takes no task from anyone else: its connections are encrypted."""
    try:
        security = distributed.Security.temporary()
    except ImportError:
        raise MissingExtra.of("cryptography", "cluster", "A Dask cluster on this host") from None
    with (
        _unprofiled(),
        tempfile.TemporaryDirectory(prefix="sonde-dask-", ignore_cleanup_errors=True) as scratch,
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1",
            memory_limit="auto" if memory is None else memory, local_directory=scratch, security=security,
            silence_logs=logging.CRITICAL,
        ) as cluster,
        _quiet(),
        distributed.Client(cluster, set_as_default=False) as client,
    ):  # fmt: skip
        yield client


@contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout=CONNECT_S, set_as_default=False)
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise ClusterError(f"No Dask scheduler answers at {address}: {reason}.") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


@contextmanager
def _unprofiled() -> Iterator[None]:
    """Workers that start meanwhile do not sample their own stacks a hundred times a second."""
    import dask

    with dask.config.set({"distributed.worker.profile.enabled": False}):
        yield


@contextmanager
def _quiet() -> Iterator[None]:
    """What Dask logs of lost connections is reported by errors of ours."""
    loggers = [logging.getLogger(name) for name in _NOISY]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
