"""Run the measurements, or one of them: `python -m bench [--only NAME]`."""

import argparse
import asyncio

from bench import rollout

BENCHES = {"rollout": rollout.main}


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measurements on a real control plane.")
    parser.add_argument("--only", choices=sorted(BENCHES), help="run this one alone")
    chosen = parser.parse_args().only
    for name, run in BENCHES.items():
        if chosen in (None, name):
            asyncio.run(run())


if __name__ == "__main__":
    main()
