"""Bytes that changed on the disk: reads stay within bounds, and the rest stays readable."""

from __future__ import annotations

import struct
from random import Random

import pytest

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.store.check import check

from .shelf import SMALL, append, bodies, keys_found, message, open_store

LOG = f"commitlog/{0:020d}"
QUEUE = f"consumequeue/T/0/{0:020d}"
COUNT = 10
QUEUE_ID_AT, QUEUE_OFFSET_AT = 12, 20


def killed(*, is_claimed: bool) -> tuple[SimulatedDisk, list[int]]:
    """The disk of a killed store and where its records begin."""
    disk = SimulatedDisk()
    store = open_store(disk)
    placed = [append(store, b"%d" % i, a="1") for i in range(COUNT)]
    if is_claimed:
        store.checkpoint()
    return disk.crash_image(Random(1), CrashMode.KILL), [each.log_offset for each in placed]


def change(disk: SimulatedDisk, path: str, position: int, data: bytes) -> None:
    file = disk.mapped(path, len(disk.read(path)))
    file.buffer[position : position + len(data)] = data
    file.sync(0, file.size)
    file.close()


@pytest.mark.parametrize("size", [-1, 1, 5000, 0x40000000, 0x7FFFFFFE])
def test_the_size_in_a_queue_entry_is_not_believed(size: int) -> None:
    disk, _ = killed(is_claimed=True)
    change(disk, QUEUE, 3 * 20 + 8, struct.pack(">i", size))
    store = open_store(disk, ManualClock())
    assert bodies(store) == [b"%d" % i for i in range(COUNT)]


@pytest.mark.parametrize("is_claimed", [True, False], ids=["claimed", "walked"])
@pytest.mark.parametrize("number", [-1, 0x4000, 1 << 40, 1 << 62, 2])
def test_a_record_with_a_number_that_cannot_be_is_left_out(number: int, is_claimed: bool) -> None:
    """Padding a queue up to it would fill the disk; stepping back to it would hide others."""
    disk, offsets = killed(is_claimed=is_claimed)
    change(disk, LOG, offsets[5] + QUEUE_OFFSET_AT, struct.pack(">q", number))
    if is_claimed:
        disk.remove_tree("consumequeue")  # have it rebuilt
    report = check(disk, SMALL)
    assert not report.is_sound
    store = open_store(disk, ManualClock())
    assert bodies(store) == [b"%d" % i for i in range(COUNT) if i != 5]
    assert append(store, b"next").queue_offset == COUNT


def test_a_record_of_a_topic_that_cannot_be_is_left_out() -> None:
    disk, offsets = killed(is_claimed=False)
    at = disk.read(LOG).index(b"\x01T", offsets[5]) + 1
    change(disk, LOG, at, b"\xff")
    store = open_store(disk, ManualClock())
    assert bodies(store) == [b"%d" % i for i in range(COUNT) if i != 5]
    assert store.topics() == {"T": [0]}


def test_a_record_of_a_queue_that_cannot_be_is_left_out() -> None:
    disk, offsets = killed(is_claimed=False)
    change(disk, LOG, offsets[5] + QUEUE_ID_AT, struct.pack(">i", -7))
    store = open_store(disk, ManualClock())
    assert bodies(store) == [b"%d" % i for i in range(COUNT) if i != 5]


@pytest.mark.parametrize("width", [1, 3000, 9000], ids=["a byte", "records", "a segment"])
def test_a_rebuilding_steps_over_what_was_damaged(width: int) -> None:
    """Queues are read from the log again; one bad byte in it must not take the rest along."""
    disk = SimulatedDisk()
    store = open_store(disk)
    placed = [append(store, b"%03d" % i + bytes(200), KEYS=f"k{i}") for i in range(200)]
    store.stop()
    first = placed[50].log_offset + 100
    lost = {i for i in range(200) if first < placed[i].end_offset}
    lost -= {i for i in range(200) if placed[i].log_offset >= first + width}
    for at in range(first, first + width):
        change(
            disk, f"commitlog/{at - at % SMALL.segment_bytes:020d}", at % SMALL.segment_bytes, b"?"
        )
    disk.remove_tree("consumequeue")
    report = check(disk, SMALL)
    assert any(f"damaged from {placed[50].log_offset}" in problem for problem in report.problems)
    assert report.record_count == 200 - len(lost)
    for _ in range(2):
        images: list[SimulatedDisk] = []
        disk.on_operation = lambda kind, path, disk=disk, images=images: images.append(
            disk.crash_image(Random(len(images)), CrashMode.MIXED)
        )
        store = open_store(disk)
        disk.on_operation = None
        expected = [b"%03d" % i + bytes(200) for i in range(200) if i not in lost]
        assert bodies(store) == expected
        assert store.written == placed[-1].end_offset
        for image in images[:: len(images) // 10]:
            assert bodies(open_store(image)) == expected
        disk = disk.crash_image(Random(1), CrashMode.KILL)
        disk.remove_tree("consumequeue")


@pytest.mark.parametrize("was_killed", [True, False], ids=["killed", "stopped"])
@pytest.mark.parametrize("has_claim", [True, False], ids=["claimed", "unclaimed"])
@pytest.mark.parametrize("place", [0, 1, -2, -1])
def test_keys_of_an_index_file_that_is_missing_are_read_from_the_log_again(
    place: int, has_claim: bool, was_killed: bool
) -> None:
    disk = SimulatedDisk()
    store = open_store(disk)
    for i in range(100):
        append(store, b"%d" % i, KEYS=f"k{i}")
        store.append(message(b"without a key"))
    store.checkpoint()
    if not was_killed:
        store.stop()
    image = disk.crash_image(Random(1), CrashMode.KILL)
    names = [name for name, _ in image.names("index")]
    assert len(names) > 4
    image.remove(f"index/{names[place]}")
    if not has_claim:
        image.remove("checkpoint")
    again = open_store(image)
    assert all(len(keys_found(again, "T", f"k{i}")) == 1 for i in range(100))
    assert check(image, SMALL).is_sound
