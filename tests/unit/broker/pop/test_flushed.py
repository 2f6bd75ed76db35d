"""Work that waits for the log: never done on the word of a log that could not be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ariane.broker.pop.flushed import Flushed
from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import RealDisk
from ariane.errors import StoreReadOnly
from ariane.store.messages import NewMessage
from ariane.store.store import Store

CONFIG = StoreConfig(
    segment_bytes=8192,
    queue_file_bytes=600,
    index_slot_count=7,
    index_entry_count=50,
    message_bytes_max=4096,
    disk_stop_ratio=1.0,
    force_clean_enabled=False,
)


def note(body: bytes) -> NewMessage:
    return NewMessage(
        topic="T",
        queue_id=0,
        body=body,
        properties=b"",
        born_at_ms=1,
        born_host=("10.0.0.7", 5555),
    )


def test_nothing_is_done_once_a_write_has_failed(tmp_path: Path) -> None:
    host = ("127.0.0.1", 10911)
    store = Store.open(CONFIG, RealDisk(tmp_path), ManualClock(), store_host=host)
    store.start()
    done: list[str] = []
    flushed = Flushed(store)
    store.append(note(b"first"))
    flushed.run(lambda: done.append("while it could be written"))
    store.log.write_by(os.open(tmp_path / f"commitlog/{0:020d}", os.O_RDONLY))
    with pytest.raises(StoreReadOnly):
        store.append(note(b"lost"))
    assert store.flushed == store.written  # what is left of the log is safe, and says nothing
    flushed.run(lambda: done.append("though what it rests on is lost"))
    store.tick()
    store.stop()
    assert done == ["while it could be written"]
