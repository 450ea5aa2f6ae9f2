"""Builds the C event core where that is possible; without it Sonde records with the Python twin."""

from __future__ import annotations

import sys
import sysconfig
from glob import glob

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

WITHOUT = """\
sonde: the C event core was not built ({reason}).
sonde: Sonde works all the same, with the event core in Python: about five times the cost for each span.
sonde: to get the C core, install a C compiler and the headers of Python, then install Sonde again. `sonde doctor`
sonde: says which core is in use.
"""

CORE = Extension(
    "sonde.events._core",
    sources=["src/sonde/events/_core.c"],
    define_macros=[("Py_LIMITED_API", "0x030B0000")],
    depends=sorted(glob("src/sonde/events/native/*.h")),
    py_limited_api=True,
    optional=True,
    extra_compile_args=["-O2", "-g0", "-Wall"],
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
    """The C core, unless this Python cannot load it."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        sys.stderr.write(WITHOUT.format(reason="this Python has no GIL, and no stable ABI"))
        return []
    return [CORE]


setup(
    ext_modules=extensions(),
    cmdclass={"build_ext": build_core},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
