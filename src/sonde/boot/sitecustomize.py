"""Loads Sonde into each Python that a recorded program starts, then runs the program's own sitecustomize.

Any Python may meet this file, also an old one and one without Sonde: then nothing is recorded, and nothing is said here;
`sonde run` tells of it. So this file is plain enough for all of them, and imports nothing that they lack.
"""

import sys

HERE = __file__.replace("\\", "/").rpartition("/")[0]
OLDEST = (3, 11)


def pass_on():  # type: () -> None  # noqa: ANN201  old Pythons know no annotations
    """Run the sitecustomize that Python would have found without ours. Its exceptions are its own."""
    sys.path[:] = [path for path in sys.path if path.replace("\\", "/").rstrip("/") != HERE]
    try:
        from importlib.machinery import PathFinder
        from importlib.util import module_from_spec
    except ImportError:  # Python 2
        return
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    module = sys.modules["sitecustomize"] = module_from_spec(spec)
    spec.loader.exec_module(module)


try:
    if sys.version_info >= OLDEST:
        import sonde  # noqa: F401  the import alone starts to record, if the environment asks for it
except ImportError:
    pass
finally:
    pass_on()
