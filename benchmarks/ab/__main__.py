"""Record a pool of rounds, and print what the gate makes of it: python -m benchmarks.ab POOL [--rounds N]."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.ab import pool, trials


def main() -> None:
    """Record until the pool has N rounds, and draw the trials."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ab", description=__doc__)
    parser.add_argument("pool", type=Path, help="a folder; rounds that are there already stay")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="record until there are so many")
    options = parser.parse_args()
    pool.record(options.pool, options.rounds)
    found = pool.read(options.pool)
    loads = sorted(one["load"] for one in found)
    print(f"{len(found)} rounds, load {loads[0]:.0f} to {loads[-1]:.0f}, limit {trials.LIMIT:.0%}")
    print(
        f"{'A against':10} {'trials':>7} {'rounds':>7} {'pass':>6} {'fail':>6} {'inconclusive':>13} {'rounds taken':>13}"
    )
    for case in trials.CASES:
        one = trials.outcome(found, case)
        shares = f"{one.passed:6.1%} {one.failed:6.1%} {one.inconclusive:13.1%}"
        print(f"{case.program + ' *' * case.stalls:10} {case.trials:7} {case.rounds:7} {shares} {one.taken:13.1f}")
    print("* with --stalls. Rounds are drawn with replacement where a trial takes more than the pool has.")


if __name__ == "__main__":
    main()
