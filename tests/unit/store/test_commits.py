"""Records that name their half message, against a walk that decodes every record."""

from __future__ import annotations

from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.codes import SystemFlag
from ariane.config import StoreConfig
from ariane.disk import SimulatedDisk
from ariane.kernel.reading import commits_between
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import NewMessage
from ariane.store.store import Store

SMALL = StoreConfig(
    segment_bytes=4096, queue_file_bytes=20 * 100, index_slot_count=10, index_entry_count=100
)
COMMIT = int(SystemFlag.TRANSACTION_COMMIT)


def store_with(random: Random, store_host: str) -> tuple[Store, list[StoredMessage]]:
    """A few segments of all kinds of records, and the records."""
    store = Store.open(SMALL, SimulatedDisk(), ManualClock(), store_host=(store_host, 1))
    store.start()
    records = []
    for _ in range(60):
        placed = store.append(
            NewMessage(
                topic=random.choice(["T", "t" * 127, "%RETRY%" + "g" * 200]),
                queue_id=0,
                body=bytes(random.randrange(1, 900)),
                properties=b"",
                born_host=(random.choice(["127.0.0.1", "::1"]), 2),
                born_at_ms=3,
                system_flag=random.choice([0, 0x1, COMMIT, 0x4, 0xC]),
                prepared_offset=random.choice([0, 0, 1, 2**40]),
            )
        )
        record = store.record_at(placed.log_offset)
        assert record is not None
        records += decode_records(record)
    return store, records


@pytest.mark.parametrize("store_host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("seed", range(5))
def test_every_record_that_names_one_is_found(store_host: str, seed: int) -> None:
    random = Random(seed)
    store, records = store_with(random, store_host)
    for first in (0, *(random.choice(records).log_offset for _ in range(5))):
        end = random.choice([store.written, 2**60, random.choice(records).log_offset])
        assert commits_between(store.log, first, end) == [
            (record.log_offset, record.prepared_offset)
            for record in records
            if first <= record.log_offset < end
            and (record.prepared_offset or record.system_flag & 0xC == COMMIT)
        ]


def test_what_is_no_record_ends_the_walk() -> None:
    store, records = store_with(Random(1), "127.0.0.1")
    assert commits_between(store.log, records[3].log_offset + 1, store.written) == []
    assert commits_between(store.log, store.written, 2**60) == []
    assert commits_between(store.log, 2**60, 2**61) == []
    assert commits_between(store.log, 10, 5) == []
