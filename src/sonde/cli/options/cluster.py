"""The options that say where parts are sealed: in processes on this host, or on a Dask cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from sonde import config
from sonde.analysis.sealing.cluster import on_dask
from sonde.analysis.sealing.engines import in_pool
from sonde.analysis.sealing.scheduler import is_local, workers_of
from sonde.errors import SettingError

if TYPE_CHECKING:
    from sonde.analysis.sealing.engines import Engine

LEAST_MEMORY = 256_000_000  # bytes of a worker


def cluster_options(command: Any) -> Any:
    """The options `--dask` and `--workers-memory`."""
    command = click.option(
        "--workers-memory", metavar="SIZE", callback=_memory, help="Memory that each worker may use, such as 2GB."
    )(command)
    return click.option(
        "--dask",
        metavar="ADDRESS|local[:N]",
        callback=_where,
        help="Seal on a Dask cluster: the address of its scheduler, or local:N for N processes on this host.",
    )(command)


def engine_of(dask: str | None, workers: int | None, memory: int | None) -> Engine:
    """Where to seal, by the options."""
    if dask is None:
        return in_pool(workers, memory)
    if workers is not None:
        raise click.UsageError("--workers is for processes on this host without Dask. Use --dask local:N.")
    return on_dask(dask, memory)


def _where(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    if given is not None and is_local(given):
        try:
            workers_of(given)
        except SettingError as error:
            raise click.BadParameter(str(error)) from None
    return given


def _memory(context: click.Context, parameter: click.Parameter, given: str | None) -> int | None:
    try:
        bytes = None if given is None else config.size(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is not a size. Give one such as 2GB.") from None
    if bytes is not None and bytes < LEAST_MEMORY:
        raise click.BadParameter("A worker needs at least 256MB.")
    return bytes
