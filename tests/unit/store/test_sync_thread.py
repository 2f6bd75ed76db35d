"""Syncing on the kernel's thread: in order, told by the loop, never a failure told as success."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ariane.clock import SystemClock
from ariane.disk import RealDisk
from ariane.store.check import check
from ariane.store.flush import ThreadSyncing
from ariane.store.store import Store

from .shelf import HOST, append, bodies, config_with, place

CONFIG = config_with(flush_mode="SYNC_FLUSH", disk_stop_ratio=1.0, force_clean_enabled=False)


class File:
    """As much of a mapped file as a sync by descriptor needs."""

    size = 100

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self.has_descriptor = True
        self.opened: list[int] = []
        self._descriptor = descriptor

    def open_descriptor(self) -> int:
        if self._descriptor < 0:
            raise OSError(24, "too many open files")
        self.opened.append(os.dup(self._descriptor))
        return self.opened[-1]


@asynccontextmanager
async def running(root: Path) -> AsyncIterator[Store]:
    loop = asyncio.get_running_loop()
    store = Store.open(
        CONFIG,
        RealDisk(root),
        SystemClock(),
        store_host=HOST,
        post=loop.call_soon_threadsafe,
        loop=loop,
    )
    store.start()
    yield store
    store.stop()


async def flushed(store: Store) -> None:
    moved = asyncio.Event()
    store.on_advance.append(moved.set)
    async with asyncio.timeout(10):
        while store.flushed < store.written and store.read_only_reason is None:
            moved.clear()
            await moved.wait()


async def synced(*files: File) -> tuple[list[str], Exception | None]:
    """What was done in which order, and the outcome."""
    happened: list[str] = []
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    syncing = ThreadSyncing(asyncio.get_running_loop(), lambda: happened.append("marked"))
    syncing.begin([(file, 0, file.size) for file in files], ended.set_result)  # type: ignore[misc]
    error = await asyncio.wait_for(ended, 10)
    syncing.close()
    return happened, error


def test_messages_are_flushed_and_shown_without_a_python_thread(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as store:
            for i in range(200):
                append(store, b"%d" % i)
                if i % 7 == 0:
                    await flushed(store)
            await flushed(store)
            assert bodies(store) == [b"%d" % i for i in range(200)]

    asyncio.run(run())
    assert check(RealDisk(tmp_path), CONFIG).is_sound


def test_stopping_waits_for_the_sync_under_way(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as store:
            append(store, b"last")
            await asyncio.sleep(0)  # the sync begins

    asyncio.run(run())
    store = Store.open(CONFIG, RealDisk(tmp_path), SystemClock(), store_host=HOST)
    assert bodies(store) == [b"last"]
    store.stop()


def test_files_are_synced_in_order_and_full_ones_let_go(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"x")
        files.append(File(name, os.open(tmp_path / name, os.O_RDWR)))
    happened, error = asyncio.run(synced(*files))
    assert (happened, error) == ([], None)
    for file in files:
        (descriptor,) = file.opened
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
        os.close(file._descriptor)


def test_a_sync_claims_only_what_was_in_the_file_when_it_began(tmp_path: Path) -> None:
    """The sync before may end within a round, while records of that round lie on the desk."""

    async def run() -> None:
        async with running(tmp_path) as store:
            append(store, b"first")
            placed = place(store.log, store.queue("T", 0), b"on the desk", store.index)
            assert store.log.stored == placed  # as the lane leaves it until its round ends
            store.flushed_on()
            assert store.log.stored == store.log.end
            await flushed(store)
            segment = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
            assert b"on the desk" in segment[placed : store.flushed]

    asyncio.run(run())


def test_a_sync_beyond_what_is_in_the_file_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with running(tmp_path) as store:
            append(store, b"first")
            with pytest.raises(AssertionError, match="not in the file"):
                store._flusher.flush(store.log.end + 1)

    asyncio.run(run())


def test_a_failed_sync_is_marked_before_anybody_hears_of_it() -> None:
    reading, writing = os.pipe()  # cannot be synced
    try:
        happened, error = asyncio.run(synced(File("pipe", writing), File("never", -1)))
    finally:
        os.close(reading)
        os.close(writing)
    assert happened == ["marked"]
    assert isinstance(error, OSError)
    assert error.filename == "pipe"


def test_a_file_that_cannot_be_opened_for_now_is_told_and_nothing_is_lost_by_it() -> None:
    happened, error = asyncio.run(synced(File("gone", -1)))
    assert happened == []
    assert isinstance(error, OSError)


def test_a_failed_sync_turns_the_store_read_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()

    async def run() -> None:
        async with running(tmp_path) as store:
            append(store, b"safe")
            await flushed(store)
            monkeypatch.setattr(ThreadSyncing, "_descriptor_of", lambda self, file: writing)
            append(store, b"not safe")
            await flushed(store)
            assert store.read_only_reason is not None
            assert bodies(store) == [b"safe"]  # what may be lost is never shown

    try:
        asyncio.run(run())
    finally:
        os.close(reading)
        os.close(writing)
