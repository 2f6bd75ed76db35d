"""A small store on a simulated disk, and the questions every test asks of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from ariane.clock import ManualClock
from ariane.config import StoreConfig
from ariane.disk import CrashMode, Disk, SimulatedDisk
from ariane.kernel.index import Index
from ariane.kernel.log import Log
from ariane.kernel.queue import Queue
from ariane.protocol.message import StoredMessage, decode_records
from ariane.store.messages import BatchEntry, NewBatch, NewMessage, Placed
from ariane.store.store import Store

HOST = ("127.0.0.1", 10911)
BORN = ("10.0.0.7", 5555)
FOREVER_MS = 1 << 60
SMALL = StoreConfig(
    segment_bytes=8192,
    queue_file_bytes=20 * 30,
    index_slot_count=7,
    index_entry_count=50,
    message_bytes_max=4096,
)


def config_with(**changes: object) -> StoreConfig:
    """The small configuration with some settings changed."""
    values = {name: getattr(SMALL, name) for name in SMALL.__struct_fields__}
    return StoreConfig(**(values | changes))


def open_store(
    disk: Disk | None = None, clock: ManualClock | None = None, config: StoreConfig = SMALL
) -> Store:
    """A store ready for appends, every step of it on the caller's thread."""
    store = Store.open(config, disk or SimulatedDisk(), clock or ManualClock(), store_host=HOST)
    store.start()
    return store


def properties_of(**pairs: str) -> bytes:
    """Encoded properties."""
    return "".join(f"{name}\x01{value}\x02" for name, value in pairs.items()).encode()


def message(
    body: bytes = b"hello", topic: str = "T", queue_id: int = 0, **properties: str
) -> NewMessage:
    """A message to append."""
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=body,
        properties=properties_of(**properties),
        born_at_ms=1_600_000_000_000,
        born_host=BORN,
    )


def batch(bodies: list[bytes], topic: str = "T", queue_id: int = 0) -> NewBatch:
    """Messages to append together, each with its body as unique key."""
    return NewBatch(
        topic=topic,
        queue_id=queue_id,
        entries=[BatchEntry(0, body, properties_of(UNIQ_KEY=body.decode())) for body in bodies],
        born_at_ms=1_600_000_000_000,
        born_host=BORN,
    )


def append(store: Store, body: bytes, topic: str = "T", queue_id: int = 0, **more: str) -> Placed:
    """Append a message that can be found by its body as unique key."""
    more.setdefault("UNIQ_KEY", body[:40].decode())
    return store.append(message(body, topic, queue_id, **more))


def read_all(store: Store, topic: str = "T", queue_id: int = 0) -> list[StoredMessage]:
    """Every message of a queue that can be read."""
    found: list[StoredMessage] = []
    first = store.min_offset(topic, queue_id)
    while first < store.max_offset(topic, queue_id):
        part = store.read(topic, queue_id, first, count_max=32)
        found += decode_records(part.body)
        assert part.next_offset > first
        first = part.next_offset
    return found


def place(log: Log, queue: Queue, body: bytes, index: Index | None = None) -> int:
    """Have the kernel place a record, as its lane does: on the desk, until somebody stores it."""
    return log.append(
        queue,
        index,
        body,
        b"",
        flag=0,
        system_flag=0,
        born_ms=1,
        born_host=bytes(8),
        reconsume_times=0,
        prepared_offset=0,
        now_ms=1,
    )


def bodies(store: Store, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    """The bodies of every message of a queue."""
    return [found.body for found in read_all(store, topic, queue_id)]


def keys_found(store: Store, topic: str, key: str) -> list[int]:
    """Log offsets of the messages a key query finds."""
    found = store.query(topic, key, count_max=64, begin_ms=0, end_ms=FOREVER_MS)
    return [record.log_offset for record in decode_records(found.body)]


def crash_during(
    disk: SimulatedDisk,
    random: Random,
    when: int,
    act: Callable[[], object],
    modes: Sequence[CrashMode] = tuple(CrashMode),
) -> SimulatedDisk | None:
    """Do something, and give the disk as a crash after its `when`-th operation left it."""
    images: list[SimulatedDisk] = []
    seen = 0

    def look(kind: str, path: str) -> None:
        nonlocal seen
        seen += 1
        if seen == when:
            images.append(disk.crash_image(random, random.choice(modes)))

    disk.on_operation = look
    act()
    disk.on_operation = None
    return images[0] if images else None
