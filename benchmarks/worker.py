"""One subject in a process of its own: measures a round whenever a line comes in, and answers with a line of JSON."""

from __future__ import annotations

import json
import os
import sys

from benchmarks import loops
from benchmarks.subjects import CALL, SUBJECTS, Case, scratch


def measure(cases: list[Case]) -> dict[str, float]:
    """CPU ns that each case adds to its base, the base measured in the same round."""
    bases = {"call": loops.calling(loops.empty), "loop": loops.nothing()}
    round_: dict[str, float] = {}
    for case in cases:
        base = bases[case.base](case.times)
        round_[case.label] = case.loop(case.times) - base
    round_[CALL] = bases["call"](20_000) - bases["loop"](20_000)
    return round_


def main() -> None:
    """Answer until the other side closes the pipe."""
    subject = SUBJECTS[int(sys.argv[1])]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints must not mix with the answers
    with scratch() as folder:
        try:
            cases = subject.make(folder)
            measure(cases)
        except Exception as error:
            print(json.dumps({"missing": f"{type(error).__name__}: {error}"}), file=answers, flush=True)
            return
        print(json.dumps({"ready": True}), file=answers, flush=True)
        for _ in sys.stdin:
            print(json.dumps(measure(cases)), file=answers, flush=True)
    answers.close()
    os._exit(0)  # without the peers' long farewells


if __name__ == "__main__":
    main()
