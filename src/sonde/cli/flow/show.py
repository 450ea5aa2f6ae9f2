"""`sonde flow show`: captured values stage by stage, as text, JSON or a page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from sonde.capture.encode import pack_note
from sonde.capture.result import TraceResult, load
from sonde.cli.flow.files import one_trace, trace_files
from sonde.cli.options.choose import directory
from sonde.cli.output.outputfile import in_a_folder
from sonde.errors import FolderRefused

WHEN = ("seq", "parent", "start_ns", "duration_ns", "epoch", "step", "loader", "batch")
WHERE = ("func_name", "pid", "thread", "worker", "error")


@click.command(
    epilog="""\b
Example: sonde flow show                         the traces of the newest run
Example: sonde flow show train-3f2a --item 8412
Example: sonde flow show t.sonde --html t.html   a page for a browser
Example: sonde flow show t.sonde --json | jq .traces[0].findings"""
)
@click.argument("source", required=False, metavar="[FILE_OR_RUN]")
@directory
@click.option("--html", metavar="FILE", help="Write an HTML page instead of printing text.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: descriptions and findings, no arrays.")
@click.option("--item", metavar="INDEX", help="Show one item's path through the stages, by index or id.")
@click.option("--force", is_flag=True, help="Overwrite an existing page.")
def show(source: str | None, dir: str | None, html: str | None, as_json: bool, item: str | None, force: bool) -> None:
    """Show captured values stage by stage, and what is wrong with them.

    FILE_OR_RUN is a file written by trace.save(), or a run: a path, a run folder's name or any unique part of it.
    Default: the newest run.
    """
    if sum((html is not None, as_json, item is not None)) > 1:
        raise click.UsageError("Use only one of --html, --json and --item.")
    files = trace_files(source, dir)
    if html is not None:
        _write_page(one_trace(files), Path(html), force)
        return
    traces = [(file, load(file)) for file in files]
    if as_json:
        document = {"traces": [{"file": str(file), **_packed(trace)} for file, trace in traces]}
        click.echo(json.dumps(document, indent=1, allow_nan=False))
        return
    for file, trace in traces:
        if len(traces) > 1:
            click.echo(f"{file}:")
        click.echo(str(trace) if item is None else str(_item(trace, item)))


def _write_page(file: Path, target: Path, force: bool) -> None:
    if in_a_folder(target).exists() and not force:
        raise FolderRefused(f"{target} exists. Overwrite it with --force, or choose another name with --html.")
    load(file).to_html(target)
    click.echo(f"Wrote {target}.")


def _item(trace: TraceResult, name: str) -> Any:
    """One item, by index where there is such an index, else by id."""
    known = {str(one.index): one.index for one in trace.known_items() if one.index is not None}
    return trace.item(index=known[name]) if name in known else trace.item(id=name)


def _packed(trace: TraceResult) -> dict[str, Any]:
    """A trace as JSON has it."""
    return {
        "items": trace.items,
        "notes": trace.notes,
        "findings": [finding._asdict() for finding in trace.findings()],
        "stages": {name: [_call(call.about) for call in stage.calls] for name, stage in trace.stages.items()},
    }


def _call(call: Any) -> dict[str, Any]:
    values = {kept.name: pack_note(kept.note) for kept in call.inputs}
    output = None if call.output is None else {call.output.name: pack_note(call.output.note)}
    items = [one._asdict() for one in call.items]
    return {"function": call.disp_name, "items": items, "inputs": values, "output": output} | {
        name: getattr(call, name) for name in (*WHEN, *WHERE)
    }
