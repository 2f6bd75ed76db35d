"""How fast expressions are evaluated on properties as they are stored, by CPU time.

Messages lie in a store like a broker's; reads look at each through a filter that nothing passes. So
the figure holds everything a pull does for a message it does not give out.
"""

import time

from ariane.broker.filters import SQL92, compile_expression
from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import SimulatedDisk
from ariane.store.messages import NewMessage
from ariane.store.store import Store
from benchmarks.figures import Row

MESSAGES = 20_000
SECONDS = 1.0
BAR = 500_000
# All three terms are looked at: the last one decides.
EXPRESSION = "price > 10 AND region = 'eu-west-1' AND grade IS NULL"
PROPERTIES = (
    "UNIQ_KEY\x017F0000010A2B18B4AAC27A1B2C3D0000\x02KEYS\x01order-123456\x02TAGS\x01paid\x02"
    "price\x0142\x02region\x01eu-west-1\x02grade\x01a\x02WAIT\x01true\x02"
    "MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
)


def filters() -> list[Row]:
    """Evaluations of a three-term expression in a second of CPU time."""
    config = StoreConfig(segment_bytes=64 << 20, queue_file_bytes=20 * 30_000, index_enabled=False)
    store = Store.open(config, SimulatedDisk(), ManualClock(), store_host=("127.0.0.1", 10911))
    store.start()
    message = NewMessage(
        topic="T",
        queue_id=0,
        body=b"x" * 128,
        properties=PROPERTIES.encode(),
        born_host=("127.0.0.1", 33632),
        born_at_ms=1_700_000_000_000,
    )
    for _ in range(MESSAGES):
        store.append(message)
    program = compile_expression(EXPRESSION, SQL92)
    count = offset = 0
    began_s = time.process_time()
    while (spent_s := time.process_time() - began_s) < SECONDS:
        found = store.read("T", 0, offset, count_max=32, expression=program)
        assert not found.message_count
        count += found.next_offset - offset
        offset = found.next_offset % MESSAGES
    store.stop()
    rate = count / spent_s
    what = "evaluations per CPU-second"
    return [Row("filters", what, "1/s", rate, None, f">= {BAR:,}", rate >= BAR)]


if __name__ == "__main__":
    print(filters()[0])
