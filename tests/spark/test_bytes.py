"""The ways to the bytes against real servers: rows are the same by each, also from the files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ariane.errors import AccessImpossible
from ariane.protocol.compression import Compression
from ariane.spark.bytes import read_batches
from ariane.spark.bytes.contract import (
    AccessOptions,
    AccessWay,
    QueueBounds,
    QueueRange,
    ReadFilter,
)
from ariane.spark.bytes.direct import store_metadata
from ariane.spark.schema import COLUMNS
from ariane.sync import Client
from tests.harness.apache import Apache
from tests.harness.processes import Ariane, Server, wait_until
from tests.spark.topics import topic_of

COUNT = 3000
KINDS: Sequence[Compression] = ("zlib", "lz4", "zstd")


def read(options: AccessOptions, topic: str, columns: Sequence[str], **more: Any) -> pa.Table:
    queues = [QueueRange(topic, "broker-a", queue_id, 0, COUNT) for queue_id in (0, 1)]
    return pa.Table.from_batches(read_batches(options, queues, columns, **more))


def check(server: Server, store: Path, topic_name: str, ways: Sequence[AccessWay]) -> None:
    """Fill a topic, and read it by each way while its broker runs."""
    nameserver = server.namesrv_address
    direct = AccessOptions((nameserver,), AccessWay.DIRECT, str(store), check_crc=True)
    with topic_of(nameserver, topic_name) as topic, Client(nameserver) as client:
        for queue in topic.queues()[:2]:
            small = [f"{queue.queue_id} {i}" for i in range(COUNT - len(KINDS))]
            topic.fill(queue.queue_id, small, tags="a", keys="k1 k2", properties={"name": "ä"})
            for kind in KINDS:
                body = f"{queue.queue_id} {kind} ".encode() * 1000
                client.producer("g", compression=kind).send(topic.name, body, queue=queue, tags="b")
        (files,) = store_metadata(direct)
        # Apache's broker enters messages into queues a little later than it answers.
        wait_until(
            lambda: [files.bounds(topic.name, i) for i in (0, 1)] == [QueueBounds(0, COUNT)] * 2,
            "all entries to be there",
        )
        expected = read(direct, topic.name, list(COLUMNS))
        expected.validate(full=True)
        assert expected.column("queueOffset").to_pylist() == [*range(COUNT)] * 2
        bodies = expected.column("body").to_pylist()
        assert bodies[:3] == [b"0 0", b"0 1", b"0 2"]
        assert bodies[COUNT - 3 : COUNT] == [f"0 {kind} ".encode() * 1000 for kind in KINDS]
        for way in ways:
            options = AccessOptions((nameserver,), way, check_crc=True)
            assert read(options, topic.name, list(COLUMNS)).equals(expected), way
            tagged = read(options, topic.name, ["tags"], message_filter=ReadFilter("b || c"))
            assert tagged.column(0).to_pylist() == ["b"] * 6
        at_ms = expected.column("storeTimestamp")[1000].value // 1000
        offset = files.offset_at(topic.name, 0, at_ms)
        assert expected.column("storeTimestamp")[offset].value // 1000 == at_ms
        assert offset == 0 or expected.column("storeTimestamp")[offset - 1].value // 1000 < at_ms


def test_ariane(cluster: Ariane) -> None:
    check(cluster, cluster.store, "bytes", [AccessWay.WIRE, AccessWay.BULK])


@pytest.mark.interop
def test_apache(apache: Apache) -> None:
    check(apache, apache.store, "bytes", [AccessWay.WIRE, AccessWay.AUTO])
    options = AccessOptions((apache.namesrv_address,), AccessWay.BULK)
    with pytest.raises(AccessImpossible, match="knows no bulk reads"):
        read(options, "bytes", ["body"])
