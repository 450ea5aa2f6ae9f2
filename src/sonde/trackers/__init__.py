"""Steps, verdict and report page of a run in an experiment tracker, sent while it runs by a process of its own.

In a script, one line of `sonde.trackers.wandb`, `.mlflow` or `.tensorboard`; without an edit, `sonde run --to-wandb`, `--to-mlflow`,
`--to-tensorboard DIR`. The program only starts that process: it reads the run folder, and whatever fails there stays there.
"""
