"""`python -m sonde` is the same as `sonde`."""

from __future__ import annotations

from sonde.cli import main

if __name__ == "__main__":
    main(prog_name="sonde")
