"""Every message type and every way to consume, with our own client; several features at a time.

Usage: messaging.py NAME_SERVER BROKER ariane|apache [FEATURE...]
"""

import asyncio
import gc
import logging
import sys
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from tests.harness.watching import Watch, complaint  # noqa: E402
from tests.interop.python import consuming, message_types, taking  # noqa: E402,F401 - they register
from tests.interop.python.cluster import FEATURES, Cluster, Feature, NotThere  # noqa: E402

AT_ONCE = 8


async def passes(name: str, check: Feature, cluster: Cluster) -> bool:
    """Check one feature and print the verdict."""
    start_s = time.monotonic()
    try:
        await check(cluster)
    except NotThere as reason:
        print(f"SKIP {name} {reason}", flush=True)
    except Exception as error:
        traceback.print_exc(file=sys.stdout)
        print(f"FAIL {name} {type(error).__name__}: {error}".replace("\n", " "), flush=True)
        return False
    else:
        print(f"PASS {name} ({time.monotonic() - start_s:.1f} s)", flush=True)
    return True


async def main(name_server: str, broker: str, kind: str, *wanted: str) -> int:
    """Check all features, or those named."""
    places = asyncio.Semaphore(AT_ONCE)

    async def in_turn(name: str, check: Feature) -> bool:
        async with places:
            return await passes(name, check, cluster)

    async with Cluster(name_server, broker, kind) as cluster:
        chosen = {name: FEATURES[name] for name in wanted} if wanted else FEATURES
        passed = await asyncio.gather(*(in_turn(*each) for each in chosen.items()))
    return 0 if all(passed) else 1


def watched(status: int, watch: Watch) -> int:
    """The status, or 1 when something went wrong that no feature was told of."""
    gc.collect()  # a task whose exception nobody asked for says so when it goes
    if (fault := complaint(watch.taken(), ())) is None:
        return status
    print(fault, flush=True)
    return 1


if __name__ == "__main__":
    WATCH = Watch()
    logging.basicConfig(level=logging.ERROR, stream=sys.stdout)
    logging.getLogger().addHandler(WATCH)
    sys.exit(watched(asyncio.run(main(*sys.argv[1:])), WATCH))
