"""How this process was started, and how others are: the only place that reads and sets environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

OFF = ("0", "false", "no", "off")


def variable(name: str) -> str:
    """The variable, or an empty text: a variable that is set to nothing counts as not set."""
    return os.environ.get(name, "")


def number(name: str) -> int | None:
    """The whole number in a variable; None: there is none."""
    text = variable(name).strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def is_set(name: str) -> bool:
    """Is there such a variable, be it an empty one?"""
    return name in os.environ


def publish(variables: Mapping[str, str]) -> dict[str, str | None]:
    """Set these for child processes. Returns what stood there, for `restore`."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    return before


def restore(before: Mapping[str, str | None]) -> None:
    """Undo `publish`."""
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def wanted_at_import() -> bool:
    """Does the environment ask that recording starts when sonde is imported? `SONDE=0` says no in any case."""
    word = variable("SONDE").strip().lower()
    return word not in OFF and bool(word or variable("SONDE_RUN"))


def publish_run(path: str | os.PathLike[str] | None) -> None:
    """Tell child processes which run to join; None: none."""
    restore({"SONDE_RUN": None if path is None else os.path.abspath(path)})


def of_program(run: str, boot: str, variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a program that is recorded into `run`, with these variables.

    `boot` is the folder with the file that brings Sonde into each Python of it.
    """
    paths = [boot, *(path for path in variable("PYTHONPATH").split(os.pathsep) if path != boot)]
    path = os.pathsep.join(paths if variable("PYTHONPATH") else [boot])
    return {**os.environ, "PYTHONPATH": path, "SONDE_RUN": run, **variables}


def unrecorded() -> dict[str, str]:
    """The environment of a program that is not recorded."""
    return {**os.environ, "SONDE": "0"}


def alone_in_trackers() -> None:
    """Keep trackers in this process from joining the program's own run, and from reporting on themselves."""
    joined = ("WANDB_SERVICE", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_SWEEP_ID", "WANDB_NAME", "WANDB_JOB_TYPE")
    restore({**dict.fromkeys(joined), "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true"})


def without_run() -> dict[str, str]:
    """The environment without a run that this process may be part of, for a program with a run of its own."""
    return {name: value for name, value in os.environ.items() if name not in ("SONDE", "SONDE_RUN")}


def script_name() -> str:
    """What the running program is called: its script or package, "notebook", or "python"."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    stem = os.path.splitext(os.path.basename(script))[0]
    if stem == "__main__":
        stem = os.path.basename(os.path.dirname(script))
    if stem in ("ipykernel_launcher", "colab_kernel_launcher"):
        return "notebook"
    return stem if stem.strip("-") and stem not in ("-c", "-m") else "python"


def cache_folder() -> str:
    """The user's own folder for what can be fetched or made again."""
    return os.path.join(variable("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"), "sonde")


def temporary_folder() -> str:
    """Where temporary files go on this machine."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        if variable(name):
            return os.path.abspath(variable(name))
    return "/var/tmp" if os.path.isdir("/var/tmp") else "/tmp"  # noqa: S108  the store makes its own private folder in it


def dftracer_enabled() -> bool:
    """Is DFTracer's own switch on? Its names record nothing without it."""
    return variable("DFTRACER_ENABLE").strip() == "1"


def traceml_disabled() -> bool:
    """Has the user switched TraceML's names off, by its own variable?"""
    return variable("TRACEML_DISABLED").strip() == "1"


def otlp_endpoint() -> str:
    """The collector that OpenTelemetry's own variable names, or an empty text."""
    return variable("OTEL_EXPORTER_OTLP_ENDPOINT").strip()


def otlp_headers() -> dict[str, str]:
    """The headers that OpenTelemetry's own variable has, such as a token: `name=value,name=value`, percent-encoded."""
    from urllib.parse import unquote

    pairs = (one.partition("=") for one in variable("OTEL_EXPORTER_OTLP_HEADERS").split(",") if "=" in one)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs if name.strip()}


def over_ssh() -> bool:
    """Is this a session on another machine than the user's?"""
    return bool(variable("SSH_CONNECTION"))


def ssh_target() -> str:
    """USER@HOST, as the user's own machine would name this one."""
    words = variable("SSH_CONNECTION").split()
    return f"{variable('USER') or 'USER'}@{words[2] if len(words) == 4 else 'HOST'}"


def dumb_terminal() -> bool:
    """Does the terminal say that it can only print?"""
    return variable("TERM") in ("dumb", "")
