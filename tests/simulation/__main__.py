"""`python -m tests.simulation`: many random histories, or one of them again."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import time

import looptime
import structlog

from tests.simulation.history import History, play


def run(seed: int) -> History:
    """Play one seed on a loop of its own, whose time is virtual."""
    loop = looptime.new_event_loop(start=0)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(play(seed))


def main() -> int:
    """Read the arguments, play, and print one line at the end."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many histories to play")
    parser.add_argument("--seed", type=int, help="play this one alone, with its log")
    chosen = parser.parse_args()
    level = logging.DEBUG if chosen.seed is not None else logging.CRITICAL
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    seeds = [chosen.seed] if chosen.seed is not None else list(range(chosen.seeds))
    began = time.monotonic()
    writes = faults = violations = 0
    virtual = 0.0
    for seed in seeds:
        try:
            history = run(seed)
        except AssertionError as error:
            violations += 1
            sys.stdout.write(f"seed {seed}: {error}\n")
            continue
        writes += history.writes
        faults += history.faults
        virtual += history.virtual_seconds
        violations += len(history.violations)
        for text in history.violations:
            sys.stdout.write(f"seed {seed}: {text}\n")
    sys.stdout.write(
        f"scenarios={len(seeds)} writes={writes} faults={faults} virtual={virtual:.0f}s"
        f" seconds={time.monotonic() - began:.1f} violations={violations}\n"
    )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
