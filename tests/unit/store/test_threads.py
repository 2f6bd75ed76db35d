"""The store on the machine's disk, with its threads: what blocks comes back through `post`."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from ariane.clock import SystemClock
from ariane.config import StoreConfig
from ariane.disk import RealDisk
from ariane.errors import StoreError, StoreReadOnly
from ariane.store.background import ThreadLane
from ariane.store.check import check
from ariane.store.store import Store
from ariane.store.timer_store import TimerStore

from .shelf import HOST, append, bodies, config_with


class Loop:
    """A loop that a test turns by hand."""

    def __init__(self) -> None:
        self._posted: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def post(self, callback: Callable[[], None]) -> None:
        self._posted.put(callback)

    def turn_until(self, is_done: Callable[[], bool]) -> None:
        while not is_done():
            try:
                self._posted.get(timeout=10)()
            except Empty:
                pytest.fail("nothing was posted within ten seconds")

    def turn_all(self) -> None:
        while not self._posted.empty():
            self._posted.get()()


@contextmanager
def running(root: Path, loop: Loop, config: StoreConfig) -> Iterator[Store]:
    store = Store.open(config, RealDisk(root), SystemClock(), store_host=HOST, post=loop.post)
    store.start()
    yield store
    store.stop()


FULL_DISK = {"disk_stop_ratio": 1.0, "force_clean_enabled": False}


def test_synchronous_appends_are_flushed_by_another_thread(tmp_path: Path) -> None:
    loop = Loop()
    config = config_with(flush_mode="SYNC_FLUSH", **FULL_DISK)
    with running(tmp_path, loop, config) as store:
        for i in range(50):
            append(store, b"%d" % i)
        loop.turn_until(lambda: store.flushed == store.written)
        assert bodies(store) == [b"%d" % i for i in range(50)]
    assert check(RealDisk(tmp_path), config).is_sound


def test_a_stop_in_the_middle_of_everything_is_clean(tmp_path: Path) -> None:
    loop = Loop()
    for staged in (False, True):
        config = config_with(
            transient_pool_enabled=staged,
            flush_interval_ms=1,
            checkpoint_interval_ms=1,
            transient_pool_commit_interval_ms=1,
            **FULL_DISK,
        )
        with running(tmp_path, loop, config) as store:
            for i in range(200):
                append(store, b"%d" % i, f"T{staged:d}")
                store.tick()
        assert check(RealDisk(tmp_path), config).is_sound
    with running(tmp_path, loop, config_with(**FULL_DISK)) as store:
        assert bodies(store, "T1") == [b"%d" % i for i in range(200)] == bodies(store, "T0")
    assert not (tmp_path / "abort").exists()


def test_a_segment_being_made_is_waited_for(tmp_path: Path) -> None:
    loop = Loop()
    with running(tmp_path, loop, config_with(**FULL_DISK)) as store:
        for i in range(100):
            append(store, b"%d" % i + b"x" * 1000)
            store.prepare()
        assert len(bodies(store)) == 100
    names = sorted(path.name for path in (tmp_path / "commitlog").iterdir())
    assert names == [f"{i * 8192:020d}" for i in range(15)]


def test_no_threads_and_no_maps_are_left(tmp_path: Path) -> None:
    before = threading.active_count()
    with running(tmp_path, Loop(), config_with(**FULL_DISK)) as store:
        append(store, b"1")
        assert threading.active_count() == before + 4
    del store
    assert threading.active_count() == before
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_a_lane_keeps_its_order_and_carries_errors() -> None:
    loop = Loop()
    lane = ThreadLane("test", loop.post)
    done: list[object] = []
    lane.run(lambda: 1, lambda future: done.append(future.result()))
    lane.run(lambda: 1 // 0, lambda future: done.append(type(future.exception())))
    lane.run(os.getpid, lambda future: done.append(future.result()))
    lane.wait()
    assert done == [1, ZeroDivisionError, os.getpid()]
    lane.run(lambda: 2, lambda future: done.append(future.result()))
    loop.turn_until(lambda: len(done) == 4)
    lane.close()
    lane.run(lambda: 3, lambda future: done.append(future.result()))
    assert done[-1] == 3


def test_a_store_that_cannot_be_opened_leaves_no_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object, **__: object) -> None:
        raise OSError(5, "Input/output error", "timerwheel")

    before = threading.active_count()
    with monkeypatch.context() as patch:
        patch.setattr(TimerStore, "recover", unreadable)
        with pytest.raises(StoreError, match="cannot be opened"):
            Store.open(
                config_with(**FULL_DISK),
                RealDisk(tmp_path),
                SystemClock(),
                store_host=HOST,
                post=Loop().post,
            )
    assert threading.active_count() == before


@pytest.mark.parametrize("flush_mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_deleting_topics_syncs_nothing_on_the_loop_and_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flush_mode: str
) -> None:
    loop = Loop()
    config = config_with(flush_mode=flush_mode, segment_bytes=1 << 20, **FULL_DISK)
    gone: list[Exception | None] = []
    with running(tmp_path, loop, config) as store:
        for i in range(50):
            append(store, b"%d" % i)
            append(store, b"%d" % i, "U")
            append(store, b"%d" % i, "kept")
        for name in ("fsync", "fdatasync", "sync"):
            call = getattr(os, name)
            monkeypatch.setattr(os, name, partial(elsewhere, call, threading.get_ident()))
        store.delete_topic("T", gone.append)
        store.delete_topic("U", gone.append)
        assert gone == []
        for i in range(50, 60):
            append(store, b"%d" % i, "kept")
        loop.turn_until(lambda: len(gone) == 2)
        assert gone == [None, None]
        assert store.topics() == {"kept": [0]}
        monkeypatch.undo()
        loop.turn_until(lambda: store.flushed == store.written or flush_mode == "ASYNC_FLUSH")
        assert bodies(store, "kept") == [b"%d" % i for i in range(60)]
        append(store, b"anew")
    assert check(RealDisk(tmp_path), config).is_sound


def test_who_asked_for_a_deletion_is_told_when_the_store_fails_meanwhile(tmp_path: Path) -> None:
    loop = Loop()
    gone: list[Exception | None] = []
    with running(tmp_path, loop, config_with(**FULL_DISK)) as store:
        append(store, b"unclaimed")
        store.delete_topic("T", gone.append)  # its checkpoint waits for the log to be flushed
        store.fail("the disk is broken")
        assert [type(fault) for fault in gone] == [StoreReadOnly]


def test_a_store_that_failed_makes_no_file_once_it_has_stopped(tmp_path: Path) -> None:
    loop = Loop()
    with running(tmp_path, loop, config_with(**FULL_DISK)) as store:
        append(store, b"fresh")
        store.fail("the disk is broken")
    loop.turn_all()
    assert not (tmp_path / "consumequeue" / "T").exists()


def elsewhere(call: Callable[..., object], loop_thread: int, *arguments: int) -> object:
    assert threading.get_ident() != loop_thread, "the loop waits for the disk"
    return call(*arguments)
