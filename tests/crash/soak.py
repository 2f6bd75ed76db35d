"""Crash images for as long as told: `python -m tests.crash.soak --minutes 60`.

Each round takes another seed; a round that fails ends the run, and `--seed` with `--kind` plays it
again.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from random import SystemRandom

from .campaign import KINDS, Campaign

IMAGES_PER_ROUND = 2000


def main(minutes: float, seed: int | None = None, kinds: list[str] | None = None) -> int:
    """Rounds until the time is up; 1 as soon as a promise is broken."""
    logging.disable(logging.CRITICAL)
    deadline = time.monotonic() + 60 * minutes
    seed = SystemRandom().randrange(1 << 32) if seed is None else seed
    count = 0
    while True:
        for name in kinds or KINDS:
            try:
                campaign = Campaign(KINDS[name], seed, IMAGES_PER_ROUND).run()
            except AssertionError as violation:
                print(f"--kind {name!r} --seed {seed}: {violation}")
                return 1
            count += campaign.image_count
            print(f"{campaign}; {count:,} in all", flush=True)
            if time.monotonic() >= deadline:
                return 0
        seed += 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Crash a small store again and again.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--kind", choices=KINDS, action="append")
    options = parser.parse_args()
    sys.exit(main(options.minutes, options.seed, options.kind))
