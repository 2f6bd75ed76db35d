"""A log whose bytes come from another one is followed exactly, by `append_raw` and `dispatch`.

The twin is the store that placed the messages, which writes entries and keys along with each.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ariane.clock import ManualClock
from ariane.disk import CrashMode, SimulatedDisk
from ariane.kernel.queue import Queue
from ariane.store.check import check
from ariane.store.dispatching import Dispatcher
from ariane.store.store import Store
from tests.unit.store.shelf import append, batch, config_with, message, open_store

CONFIG = config_with(index_entry_count=60)
# A batch whose keys do not fit into an index file goes to the next whole, and record by record when
# it is followed: here there is one file for all.
ONE_INDEX = config_with(index_entry_count=5000)
TRANSACTION_COMMIT = 0x8


def fill(store: Store, random: Random, count: int, *, batches: bool = True) -> None:
    """Messages of all kinds, over some segments, queue files and index files."""
    for number in range(count):
        kind = random.random()
        topic, queue_id = random.choice(["T", "Other", "SCHEDULE_TOPIC_XXXX"]), random.randrange(3)
        if kind < 0.2 and batches:
            bodies = [b"%d-%d" % (number, i) for i in range(random.randint(1, 9))]
            store.append_batch(batch(bodies, topic, queue_id))
        elif kind < 0.3:
            half = message(b"half %d" % number, topic, queue_id, KEYS="h")
            store.append(replace(half, system_flag=TRANSACTION_COMMIT, prepared_offset=number))
        else:
            body = b"%d" % number + b"x" * random.choice([1, 40, 700])
            keys = " ".join(f"k{number}-{i}" for i in range(random.randrange(12)))
            append(store, body, topic, queue_id, KEYS=keys, TAGS="A", DELAY="2")


def runs(disk: SimulatedDisk, store: Store, first: int, random: Random) -> list[tuple[int, bytes]]:
    """The log from an offset on, in runs of whole records that stay within a segment."""
    log, found, start, at = store.log, [], first, first
    while at < log.end:
        record = log.next_record(at, log.end)
        at = log.end if record is None else sum(record)
        base = start - start % log.file_bytes
        if record is not None and record[0] >= base + log.file_bytes:  # behind a blank
            found.append((start, bytes_of(disk, start, base + log.file_bytes)))
            start = base + log.file_bytes
        if at == log.end or random.random() < 0.2:
            found.append((start, bytes_of(disk, start, at)))
            start = at
    return [(where, data) for where, data in found if data]


def bytes_of(disk: SimulatedDisk, first: int, end: int) -> bytes:
    base = first - first % CONFIG.segment_bytes
    return disk.read(f"commitlog/{base:020d}")[first - base : end - base]


def follow(store: Store, given: list[tuple[int, bytes]]) -> list[Queue]:
    """What a replica does; the queues that had arrivals."""
    arrivals: list[Queue] = []
    dispatcher = Dispatcher(store.log, store._queues, store._indexes)
    for log_offset, data in given:
        store._appender.append_raw(log_offset, data)
        dispatcher.run(store.log.dispatched, store.log.end, arrivals=arrivals)
        assert store.log.dispatched == store.log.stored == log_offset + len(data)
        store.advance()
    return arrivals


def files(disk: SimulatedDisk) -> dict[str, bytes]:
    directories = ["commitlog", "index"]
    for topic in disk.directories("consumequeue"):
        for number in disk.directories(f"consumequeue/{topic}"):
            directories.append(f"consumequeue/{topic}/{number}")
    return {
        f"{directory}/{name}": disk.read(f"{directory}/{name}")
        for directory in directories
        for name, _ in disk.names(directory)
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 70), st.booleans())
def test_a_log_that_is_followed_has_the_files_of_the_one_that_was_written(
    seed: int, count: int, batches: bool
) -> None:
    random, placed, followed = Random(seed), SimulatedDisk(), SimulatedDisk()
    config = ONE_INDEX if batches else CONFIG
    store, replica = (open_store(disk, ManualClock(), config) for disk in (placed, followed))
    fill(store, random, count, batches=batches)
    waiting = replica.queue("T", 1)
    waiting.is_waiting = True
    arrivals = follow(replica, runs(placed, store, 0, random))
    assert replica.log.last_store_ms == store.log.last_store_ms
    assert set(arrivals) == ({waiting} if waiting.end else set())
    assert [waiting.assigned, waiting.end] == [store.queue("T", 1).end] * 2
    store.stop()
    replica.stop()
    assert files(followed) == files(placed)
    assert check(followed, config).problems == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 70), st.sampled_from(list(CrashMode)))
def test_a_log_that_is_followed_goes_on_after_a_crash(
    seed: int, count: int, mode: CrashMode
) -> None:
    random, placed, followed = Random(seed), SimulatedDisk(), SimulatedDisk()
    store, replica = (open_store(disk, ManualClock(), CONFIG) for disk in (placed, followed))
    fill(store, random, count)
    given = runs(placed, store, 0, random)
    done = random.randint(0, len(given))
    follow(replica, given[: done // 2])
    if random.random() < 0.5:
        replica.checkpoint()
    follow(replica, given[done // 2 : done])
    if done < len(given) and random.random() < 0.5:  # a kill between the record and its entries
        replica._appender.append_raw(*given[done])
    end, flushed = replica.log.end, replica.flushed
    image = followed.crash_image(random, mode)
    again = open_store(image, ManualClock(), CONFIG)
    assert flushed <= again.written <= end
    if mode is CrashMode.KILL:
        assert again.written == end
    follow(again, runs(placed, store, again.written, random))
    store.stop()
    again.stop()
    ours, theirs = files(image), files(placed)
    assert {path: data for path, data in ours.items() if not path.startswith("index")} == {
        path: data for path, data in theirs.items() if not path.startswith("index")
    }
    assert check(image, CONFIG).problems == []
