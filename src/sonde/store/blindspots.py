"""What no recording shows, whatever is set: told by `sonde doctor`, by every report, and kept true where it is recorded."""

from __future__ import annotations

BLIND_SPOTS = (
    "functions without a span: only what is marked with sonde.span or ai is recorded",
    "single kernels of a GPU: phases have the time of its stream, layers that of the host, which only starts them",
    "the last records of a host that loses power: they survive a kill of the process, not of the machine",
    "uvloop imported before sonde.init(), trio, curio: tasks of one thread share its innermost span",
    "a bare `with` inside an undecorated generator: what its consumer does meanwhile may seem to lie inside",
    "python -I, -E or -S children, and children with a cleaned environment: they do not find the run",
    "torch: persistent loader workers that were there before Sonde looked: only what they deliver is seen",
    "torch: `model.forward(...)` called directly (its children are seen), calls inside of a compiled function",
    "torch: spans in code that torch.compile turns into a graph; with fullgraph=True it refuses a bare span there",
    "torch: optimizers that are no torch.optim.Optimizer; their steps inside of a backward pass on a device",
    "torch: functional collectives (DTensor), `Work.get_future().wait()`, and what the last backward of a DDP model waited for",
)
