"""What no recording shows, whatever is set: listed by `sonde doctor` and by every report, and kept true where it is recorded."""

from __future__ import annotations

BLIND_SPOTS = (
    "functions without a span: only code marked with sonde.span or ai is recorded",
    "single GPU kernels: phases have stream times; layers have host times, which only cover the launch",
    "the last records of a host that loses power: they survive a killed process, but not a crashed machine",
    "uvloop imported before sonde.init(), trio, curio: tasks of one thread share its innermost span",
    "a bare `with` inside an undecorated generator: the consumer's work may appear inside it",
    "child processes started with python -I, -E or -S, or with a cleared environment: they do not find the run",
    "torch: persistent loader workers started before Sonde: only the batches they deliver are seen",
    "torch: direct calls of `model.forward(...)` (their children are seen), and calls inside a compiled function",
    "torch: spans in code that torch.compile traces; with fullgraph=True it rejects a bare span there",
    "torch: optimizers that are not a torch.optim.Optimizer, and optimizer steps inside a backward pass on a device",
    "torch: functional collectives (DTensor), `Work.get_future().wait()`, and waits in a DDP model's last backward",
)
