"""TraceML's names on top of Sonde: `import sonde.compat.traceml as traceml`.

Events go into a run folder; `docs/howto/traceml.md` says what is the same, what differs and what is not offered.
"""

from __future__ import annotations

from sonde.compat.traceml.decorators import trace_model_instance, trace_step
from sonde.compat.traceml.start import TraceMLInitConfig, init, start
from sonde.version import __version__

__all__ = ["TraceMLInitConfig", "__version__", "init", "start", "trace_model_instance", "trace_step"]
