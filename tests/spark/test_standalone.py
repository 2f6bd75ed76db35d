"""A job on a Spark cluster whose driver and executors share nothing but the network."""

import json
import sys
from pathlib import Path

from ariane.sync import Client
from tests.harness import topics
from tests.harness.processes import Ariane
from tests.harness.spark import Standalone, run_quietly

PROGRAM = Path(__file__).parent / "programs/relay.py"
ROWS_A_QUEUE = 500
QUEUES = 4
SOURCE, TARGET = "standalone_in", "standalone_out"


def test_a_topic_is_relayed_by_two_workers(cluster: Ariane, tmp_path: Path) -> None:
    with Client(cluster.namesrv_address) as client:
        for queue in topics.create(client, SOURCE, QUEUES):
            bodies = (b"%d %d" % (queue.queue_id, number) for number in range(ROWS_A_QUEUE))
            topics.fill(client, queue, bodies)
        topics.create(client, TARGET, QUEUES)

        with Standalone(tmp_path / "spark").start() as spark:
            place = [spark.master, cluster.namesrv_address, SOURCE, TARGET, tmp_path / "checkpoint"]
            done = run_quietly([sys.executable, PROGRAM, *place], {})

        assert done.returncode == 0, done.stderr[-4000:]
        rows = QUEUES * ROWS_A_QUEUE
        assert json.loads(done.stdout.splitlines()[-1]) == {"rows": rows, "lost": 0, "executors": 2}
        assert topics.bodies_of(client, TARGET) == topics.bodies_of(client, SOURCE)
