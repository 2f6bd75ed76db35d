"""The kernel's store against obvious Python twins: records, queues, index, reading, scanning."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.disk import SimulatedDisk
from ariane.kernel import log as kernel
from ariane.kernel.dispatch import dispatch
from ariane.kernel.hashing import java_hash
from ariane.kernel.index import Index, index_file_bytes
from ariane.kernel.queue import Queue
from ariane.kernel.reading import Tags, end_below, read
from ariane.protocol.message import decode_properties

HOST = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
HOST_V6 = bytes(range(16)) + struct.pack(">i", 10911)
BORN = bytes([10, 0, 0, 7]) + struct.pack(">i", 5555)
SLOTS, ENTRIES = 7, 400
NOW_MS = 1_700_000_000_000
LIMITS = {
    "bytes_max": 1 << 27,
    "memory_count_max": 32,
    "memory_bytes_max": 1 << 18,
    "disk_count_max": 8,
    "disk_bytes_max": 1 << 16,
    "memory_window": 1 << 40,
    "scan_count_max": 800,
}


@dataclass
class Bench:
    """A log of a few small segments with one queue per (topic, id) and an index."""

    segment_bytes: int = 4096
    host: bytes = HOST
    buffers: list[memoryview] = field(default_factory=list)
    queues: dict[tuple[bytes, int], Queue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = SimulatedDisk()
        self.log = kernel.Log(self.segment_bytes, self.host, delays_ms=[1000, 5000])
        self.index = Index(bytearray(index_file_bytes(SLOTS, ENTRIES)), SLOTS, ENTRIES)
        self.add_segment()

    def add_segment(self) -> None:
        position = len(self.buffers) * self.segment_bytes
        file = self.disk.mapped(f"{position}", self.segment_bytes, create=True)
        self.buffers.append(file.buffer)
        self.log.add(position, file.buffer)
        self.log.write_by(file.open_descriptor())

    def queue(self, topic: bytes, queue_id: int) -> Queue:
        if (topic, queue_id) not in self.queues:
            queue = Queue(topic, queue_id, 20 * 500, is_schedule=topic.startswith(b"SCHEDULE"))
            queue.add(0, bytearray(20 * 500))
            queue.reserved_end = 500
            self.queues[topic, queue_id] = queue
        return self.queues[topic, queue_id]

    def append(
        self, topic: bytes, queue_id: int, body: bytes, properties: bytes, now_ms: int = NOW_MS
    ) -> int:
        queue = self.queue(topic, queue_id)
        for _ in range(2):
            placed = self.log.append(
                queue,
                self.index,
                body,
                properties,
                flag=3,
                system_flag=0,
                born_ms=77,
                born_host=BORN,
                reconsume_times=2,
                prepared_offset=0,
                now_ms=now_ms,
            )
            if placed != kernel.SEGMENT_NEEDED:
                break
            self.log.seal()
            self.add_segment()
        self.log.store()
        self.log.visible = self.log.stored
        return placed

    def read(self, topic: bytes, first: int, tags: Tags | None = None) -> tuple[bytes, int, int]:
        return read(self.log, self.queue(topic, 0), first, tags, count_max=32, **LIMITS)


def obvious_record(
    topic: bytes, body: bytes, properties: bytes, *, queue_offset: int, log_offset: int, host: bytes
) -> bytes:
    is_v2 = len(topic) > 127
    rest = (
        struct.pack(">iI", 0, 0xDAA320AB if is_v2 else 0xDAA320A7)
        + struct.pack(">iii", zlib.crc32(body) & 0x7FFFFFFF, 0, 3)
        + struct.pack(">qqiq", queue_offset, log_offset, 0x20 if len(host) == 20 else 0, 77)
        + BORN
        + struct.pack(">q", NOW_MS)
        + host
        + struct.pack(">iqi", 2, 0, len(body))
        + body
        + (struct.pack(">H", len(topic)) if is_v2 else bytes([len(topic)]))
        + topic
        + struct.pack(">h", len(properties))
        + properties
    )
    return struct.pack(">i", len(rest)) + rest[4:]


@pytest.mark.parametrize("host", [HOST, HOST_V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("topic", [b"T", b"%RETRY%" + b"g" * 130], ids=["V1", "V2"])
def test_record_bytes(host: bytes, topic: bytes) -> None:
    bench = Bench(host=host)
    properties = b"KEYS\x01k1 k2\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1\x02"
    assert bench.append(topic, 0, b"hello", properties) == 0
    expected = obvious_record(topic, b"hello", properties, queue_offset=0, log_offset=0, host=host)
    assert bytes(bench.buffers[0][: bench.log.end]) == expected
    assert bench.log.record(0, bench.log.end) == expected
    assert bench.queue(topic, 0).entry(0) == (0, len(expected), 2598919)
    for key in (b"k1", b"k2", b"U1"):
        assert bench.index.query(topic, key, 0, 1 << 62, 10) == [0]
    assert bench.index.query(topic, b"k3", 0, 1 << 62, 10) == []


NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "TAG", "KEYSX", "color", "", "a" * 70])
VALUES = st.text(alphabet="ab 01\0", max_size=90)
PIECES = st.one_of(
    st.builds("{}\x01{}\x02".format, NAMES, VALUES),
    st.sampled_from(["\x01", "\x02", "TAGS\x01", "KEYS\x02", "x\x01y", "\x02\x01\x01"]),
)


@given(st.lists(PIECES, max_size=12).map("".join))
def test_tags_and_keys_are_those_the_protocol_finds(text: str) -> None:
    """However long, and wherever its marks lie."""
    bench = Bench(segment_bytes=1 << 16)
    found = decode_properties(text)
    keys = [key for key in found.get("KEYS", "").split(" ") if key]
    if "UNIQ_KEY" in found:
        keys.append(found["UNIQ_KEY"])
    assert bench.append(b"T", 0, b"body", text.encode()) == 0
    entry = bench.queue(b"T", 0).entry(0)
    assert entry is not None and entry[2] == java_hash(found.get("TAGS", ""))
    assert bench.index.next - 1 == len(keys)
    for key in keys:
        assert set(bench.index.query(b"T", key.encode(), 0, 1 << 62, 100)) == {0}


def test_smallest_record_has_92_bytes() -> None:
    bench = Bench()
    bench.append(b"T", 0, b"", b"")
    assert bench.log.end == 92


def test_a_segment_ends_in_a_blank_record_and_the_next_one_follows() -> None:
    bench = Bench(segment_bytes=512)
    offsets = [bench.append(b"T", 0, b"x" * 100, b"") for _ in range(3)]
    assert offsets == [0, 192, 512]
    assert struct.unpack_from(">iI", bench.buffers[0], 384) == (128, 0xCBD43194)


def test_nothing_is_written_without_room() -> None:
    bench = Bench()
    queue = bench.queue(b"T", 0)
    queue.reserved_end = 1
    assert bench.append(b"T", 0, b"a", b"") == 0
    end = bench.log.end
    assert bench.append(b"T", 0, b"b", b"") == kernel.QUEUE_ROOM_NEEDED
    queue.reserved_end = 10
    bench.index.reserved_end = 1
    assert bench.append(b"T", 0, b"b", b"KEYS\x01k\x02") == kernel.INDEX_ROOM_NEEDED
    assert bench.append(b"T", 0, b"b" * 5000, b"") == kernel.RECORD_TOO_LARGE
    assert bench.append(b"T", 0, b"b", b"k\x01v\x02" * 9000) == kernel.RECORD_TOO_LARGE
    assert (bench.log.end, queue.end, bench.index.next) == (end, 1, 1)
    assert queue.entry(1) is None
    assert not any(bench.buffers[0][end:])


def test_store_time_never_goes_back() -> None:
    bench = Bench()
    first = bench.append(b"T", 0, b"a", b"", NOW_MS)
    second = bench.append(b"T", 0, b"b", b"", NOW_MS - 5000)
    assert bench.log.store_ms_of(first) == bench.log.store_ms_of(second) == NOW_MS


def test_a_delayed_message_carries_its_deliver_time() -> None:
    bench = Bench()
    bench.append(b"SCHEDULE_TOPIC_XXXX", 1, b"a", b"DELAY\x012\x02TAGS\x01TagA\x02")
    bench.append(b"SCHEDULE_TOPIC_XXXX", 1, b"a", b"DELAY\x0199\x02")
    queue = bench.queue(b"SCHEDULE_TOPIC_XXXX", 1)
    assert [queue.entry(0)[2], queue.entry(1)[2]] == [NOW_MS + 5000, NOW_MS + 5000]


def test_reading_stops_at_what_is_visible_and_at_its_limits() -> None:
    bench = Bench(segment_bytes=1 << 16)
    for number in range(40):
        bench.append(b"T", 0, b"%d" % number, b"TAGS\x01%s\x02" % (b"A" if number % 2 else b"B"))
    assert bench.read(b"T", 0)[1:] == (32, 32)
    assert bench.read(b"T", 36)[1:] == (4, 40)
    only_a = Tags([java_hash("A")])
    assert bench.read(b"T", 0, only_a)[1:] == (20, 40)
    assert bench.read(b"T", 0, Tags([5]))[1:] == (0, 40)
    bench.log.visible = bench.queue(b"T", 0).entry(10)[0]
    assert bench.log.visible_end(bench.queue(b"T", 0)) == 10
    assert bench.read(b"T", 8)[1:] == (2, 10)


def damage(buffer: bytearray, position: int, value: bytes) -> None:
    buffer[position : position + len(value)] = value


DAMAGE = {
    "size": (0, b"\x00\x00\x00\x05"),
    "magic": (4, b"\x00"),
    "body CRC": (8, b"\x00\x00\x00\x01"),
    "own offset": (28, b"\x00\x00\x00\x00\x00\x00\x00\x01"),
    "store time": (56, bytes(8)),
    "body length": (84, b"\x7f"),
    "topic": (88 + 5 + 1, b"\x00"),
    "properties length": (88 + 5 + 2, b"\xff\xff"),
}


@pytest.mark.parametrize(("position", "value"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_record_ends_the_log(position: int, value: bytes) -> None:
    bench = Bench()
    bench.append(b"T", 0, b"first", b"")
    second = bench.append(b"T", 0, b"again", b"")
    bench.append(b"T", 0, b"third", b"")
    damage(bench.buffers[0], second + position, value)
    assert scan_into_new_queues(bench)[0] == second


def test_a_lost_sector_in_the_properties_ends_the_log() -> None:
    bench = Bench()
    bench.append(b"T", 0, b"a", b"k\x01" + b"v" * 1500 + b"\x02")
    bench.buffers[0][512:1024] = bytes(512)
    assert scan_into_new_queues(bench)[0] == 0


def scan_into_new_queues(bench: Bench) -> tuple[int, int, int]:
    bench.queues = {}
    bench.index = Index(bytearray(index_file_bytes(SLOTS, ENTRIES)), SLOTS, ENTRIES)

    def pad(queue: Queue, queue_offset: int) -> bool:
        queue.pad(queue.end, queue_offset)
        queue.end = queue_offset
        return True

    return dispatch(
        bench.log,
        0,
        check_crc=True,
        queue_of=bench.queue,
        make_room=pad,
        index_of=lambda _key_count: bench.index,
        index_from=0,
    )


words = st.text("abcXYZ019", min_size=1, max_size=6)
messages = st.tuples(
    st.sampled_from([b"T", b"Other"]),
    st.integers(0, 1),
    st.binary(max_size=200),
    st.one_of(st.none(), words),
    st.lists(words, max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(messages, max_size=60))
def test_a_scan_rebuilds_exactly_what_appends_wrote(
    sent: list[tuple[bytes, int, bytes, str | None, list[str]]],
) -> None:
    bench = Bench()
    for number, (topic, queue_id, body, tag, keys) in enumerate(sent):
        pairs = {"UNIQ_KEY": f"U{number}", "TAGS": tag or "", "KEYS": " ".join(keys)}
        text = "".join(f"{key}\x01{value}\x02" for key, value in pairs.items() if value)
        assert bench.append(topic, queue_id, body, text.encode(), NOW_MS + number) >= 0
    written = {key: queue_entries(queue) for key, queue in bench.queues.items()}
    index = [bench.index.entry(number) for number in range(1, bench.index.next)]
    end, last_ms, count = scan_into_new_queues(bench)
    assert (end, count) == (bench.log.end, len(sent))
    assert last_ms == (NOW_MS + len(sent) - 1 if sent else 0)
    assert {key: queue_entries(queue) for key, queue in bench.queues.items()} == written
    assert [bench.index.entry(number) for number in range(1, bench.index.next)] == index


def queue_entries(queue: Queue) -> list[tuple[int, int, int] | None]:
    return [queue.entry(number) for number in range(queue.end)]


def test_a_topic_made_anew_supersedes_the_entries_of_its_former_life() -> None:
    bench = Bench()
    for body in (b"old0", b"old1", b"old2"):
        bench.append(b"T", 0, body, b"")
    del bench.queues[b"T", 0]
    new = bench.append(b"T", 0, b"new0", b"")
    scan_into_new_queues(bench)
    assert bench.queue(b"T", 0).end == 1
    assert bench.queue(b"T", 0).entry(0)[0] == new


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.data())
def test_index_repair_keeps_every_key_before_the_damage(count: int, data: st.DataObject) -> None:
    bench = Bench(segment_bytes=1 << 16)
    for number in range(count):
        bench.append(b"T", 0, b"x", b"UNIQ_KEY\x01U%d\x02KEYS\x01k%d\x02" % (number, number))
    size = index_file_bytes(SLOTS, ENTRIES)
    lost_from = data.draw(st.integers(1, bench.index.next), label="first lost entry")
    rebuilt = Index(bytearray(size), SLOTS, ENTRIES)
    for entry in range(1, lost_from):
        log_offset = bench.index.entry(entry)[1]
        key = b"U%d" if entry % 2 else b"k%d"
        rebuilt.put_key(b"T", key % ((entry - 1) // 2), log_offset, NOW_MS)
    trusted = rebuilt.repair(bench.log.end, NOW_MS)
    whole_records = (lost_from - 1) // 2 if lost_from <= ENTRIES else count
    assert trusted >= max(0, 2 * (whole_records - 1))
    for number in range(trusted // 2):
        expected = [bench.queue(b"T", 0).entry(number)[0]]
        assert rebuilt.query(b"T", b"U%d" % number, 0, 1 << 62, 8)[-1:] == expected
        assert rebuilt.query(b"T", b"k%d" % number, 0, 1 << 62, 8)[-1:] == expected


def test_index_repair_ends_at_an_entry_whose_first_sector_was_lost() -> None:
    buffer = bytearray(index_file_bytes(SLOTS, ENTRIES))
    index = Index(buffer, SLOTS, ENTRIES)
    for number in range(10):
        index.put_key(b"T", b"k%d" % number, 100 * number, NOW_MS)
    torn_at = 40 + SLOTS * 4 + 20 * 6
    buffer[torn_at : torn_at + 4] = bytes(4)  # its hash; the log offset lies in the next sector
    assert index.repair(1000, NOW_MS) == 4  # nor the record before it, which may be incomplete


def test_queue_end_is_found_behind_torn_entries() -> None:
    bench = Bench(segment_bytes=1 << 16)
    for number in range(100):
        bench.append(b"T", 0, b"%d" % number, b"")
    queue = bench.queue(b"T", 0)
    synced = queue.entry(60)[0]
    for number in (61, 62, 63, 80):
        queue.clear(number, number + 1)
    assert end_below(bench.log, queue, synced) == 60
    assert queue.first_from(synced) == 60


def test_a_chain_that_leads_nowhere_ends_the_query() -> None:
    buffer = bytearray(index_file_bytes(SLOTS, ENTRIES))
    index = Index(buffer, SLOTS, ENTRIES)
    index.put_key(b"T", b"k", 5, NOW_MS)
    at = 40 + SLOTS * 4 + 20 + 16
    buffer[at : at + 4] = struct.pack(">i", 1)  # the entry names itself as its predecessor
    assert index.query(b"T", b"k", 0, 1 << 62, 10) == [5]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 30)), max_size=ENTRIES - 1))
def test_slots_on_the_table_say_what_slots_in_the_file_do(steps: list[tuple[bool, int]]) -> None:
    """Taken and put back at any time, with keys between; the file is the same in the end."""
    size = index_file_bytes(SLOTS, ENTRIES)
    plain, taken = bytearray(size), bytearray(size)
    by_file, by_table = (
        Index(plain, SLOTS, ENTRIES),
        Index(taken, SLOTS, ENTRIES),
    )
    for number, (takes, key) in enumerate(steps):
        if takes:
            by_table.take_slots()
        else:
            by_table.put_slots_back()
        for index in (by_file, by_table):
            assert index.put_key(b"T", b"%d" % key, number * 100, 1000 + number)
        for index in (by_file, by_table):
            found = index.query(b"T", b"%d" % key, 0, 1 << 60, ENTRIES)
            assert found[0] == number * 100
        slots = slice(40, 40 + 4 * SLOTS)
        if takes:
            assert taken[slots] != plain[slots], "no key has touched the file's slots"
        else:
            assert taken[slots] == plain[slots]
    by_table.release()
    by_file.release()
    assert taken == plain


def test_slots_on_the_table_are_rebuilt_there() -> None:
    size = index_file_bytes(SLOTS, ENTRIES)
    data = bytearray(size)
    index = Index(data, SLOTS, ENTRIES)
    index.take_slots()
    for number in range(10):
        index.put_key(b"T", b"%d" % number, number * 100, 1000)
    index.cut(6)
    found = [index.query(b"T", b"%d" % number, 0, 1 << 60, 9) for number in range(10)]
    assert found == [[0], [100], [200], [300], [400], [], [], [], [], []]
    index.put_slots_back()
    fresh = Index(data, SLOTS, ENTRIES)
    assert [fresh.query(b"T", b"%d" % number, 0, 1 << 60, 9) for number in range(10)] == found
