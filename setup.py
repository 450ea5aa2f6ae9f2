"""Builds the C parts where that is possible; without them Sonde works with Python and NumPy, slower."""

from __future__ import annotations

import os
import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

WITHOUT = """\
sonde: the C core was not built ({reason}).
sonde: Sonde works all the same: events are then recorded by Python code, about ten times the cost for each span, and
sonde: statistics of values are made by NumPy. To get the C parts, install a C compiler and the headers of Python, then
sonde: install Sonde again. `sonde doctor` says which core is in use.
"""

NATIVE = "src/sonde/native"


def extension() -> Extension:
    """The C parts, against the stable ABI; a build without them goes on."""
    return Extension(
        "sonde.native._sonde",
        sources=sorted(glob(f"{NATIVE}/**/*.c", recursive=True)),
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        depends=sorted(glob(f"{NATIVE}/**/*.h", recursive=True)),
        py_limited_api=True,
        optional=True,
        extra_compile_args=[
            *([] if "-fsanitize" in os.environ.get("CFLAGS", "") else ["-O2", "-g0"]),
            "-Wall",
            "-fvisibility=hidden",
            *(["-fno-plt"] if sys.platform == "linux" else []),
        ],
    )


class build_core(build_ext):  # noqa: N801  named like the command that it is
    """Builds the core, or says clearly that it could not."""

    def build_extension(self, ext: Extension) -> None:
        """Build; a failure ends in a message instead of an error."""
        try:
            super().build_extension(ext)
        except (BaseError, CCompilerError, OSError) as error:
            sys.stderr.write(WITHOUT.format(reason=error))


def extensions() -> list[Extension]:
    """The C parts, unless this Python cannot load them."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.stderr.write(WITHOUT.format(reason="this Python has no GIL, and no stable ABI"))
        return []
    return [extension()]


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": build_core},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
