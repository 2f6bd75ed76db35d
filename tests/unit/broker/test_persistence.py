"""Files that follow tables: coalesced, retried after failure, and told when safe."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ariane.broker.persistence import SavedFile, Saver
from ariane.errors import DiskFull


class Disk:
    """Keeps what is written, and runs jobs only when told."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.fault: Exception | None = None
        self.jobs: list[Callable[[], None]] = []
        self.saver = Saver(self.write, run=self.jobs.append)

    def write(self, path: str, data: bytes) -> None:
        assert path == "config/table.json"
        if self.fault is not None:
            raise self.fault
        self.written.append(data)

    def run(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()


class Table:
    """A number and its file."""

    def __init__(self, disk: Disk) -> None:
        self.value = 0
        self.file = SavedFile("config/table.json", lambda: b"%d" % self.value, disk.saver)
        self.heard: list[Exception | None] = []

    def set(self, value: int) -> None:
        self.value = value
        self.file.changed()
        self.file.when_saved(self.heard.append)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def table(disk: Disk) -> Table:
    return Table(disk)


def test_a_burst_of_changes_costs_two_writes(disk: Disk, table: Table) -> None:
    for value in range(1, 100):
        table.set(value)
    assert table.heard == []
    disk.run()
    assert disk.written == [b"1", b"99"]
    assert table.heard == [None] * 99


def test_nothing_is_written_when_nothing_changed(disk: Disk, table: Table) -> None:
    table.file.save()
    table.file.when_saved(table.heard.append)
    assert disk.jobs == []
    assert table.heard == [None]


def test_a_mark_waits_for_the_next_save(disk: Disk, table: Table) -> None:
    table.file.mark()
    disk.run()
    assert disk.written == []
    table.file.save()
    disk.run()
    assert disk.written == [b"0"]


@pytest.mark.parametrize("fault", [OSError("input/output error"), DiskFull("no room")])
def test_a_failed_write_is_told_and_tried_again(disk: Disk, table: Table, fault: Exception) -> None:
    disk.fault = fault
    table.set(5)
    disk.run()
    assert table.heard == [fault]
    assert disk.jobs == []  # not at once: a full disk stays full for a while
    disk.fault = None
    table.file.save()
    disk.run()
    assert disk.written == [b"5"]


def test_who_asks_during_a_write_hears_of_its_end(disk: Disk, table: Table) -> None:
    table.file.changed()
    table.file.when_saved(table.heard.append)
    assert table.heard == []
    disk.run()
    assert table.heard == [None]
    assert disk.written == [b"0"]


def test_the_last_save_does_not_wait_for_the_loop(disk: Disk, table: Table) -> None:
    posted: list[Callable[[], None]] = []
    disk.saver.post = posted.append
    table.set(1)
    disk.run()  # written, but the loop has not heard of it
    table.set(2)
    disk.saver.close()
    table.file.save_now()
    assert disk.written == [b"1", b"2"]
    assert table.heard == [None, None]


@pytest.mark.provokes("configuration cannot be written down")
def test_a_table_that_cannot_be_encoded_jams_nothing(disk: Disk) -> None:
    contents: list[bytes | Exception] = [RecursionError("too deep"), b"sound"]

    def encode() -> bytes:
        content = contents.pop(0)
        if isinstance(content, Exception):
            raise content
        return content

    file = SavedFile("config/table.json", encode, disk.saver)
    heard: list[Exception | None] = []
    file.mark()
    file.when_saved(heard.append)
    assert [type(fault) for fault in heard] == [RecursionError]
    file.changed()
    file.when_saved(heard.append)
    disk.run()
    assert disk.written == [b"sound"]
    assert heard[1:] == [None]


@pytest.mark.provokes("configuration not saved", "callback of a saved file failed")
def test_an_exception_nobody_foresaw_is_told_to_all_who_wait(disk: Disk, table: Table) -> None:
    def broken(_: Exception | None) -> None:
        raise RuntimeError("a bug")

    disk.fault = ZeroDivisionError("a bug")
    table.value = 1
    table.file.mark()
    table.file.when_saved(broken)
    table.file.when_saved(table.heard.append)
    disk.run()
    assert [type(fault) for fault in table.heard] == [ZeroDivisionError]
    disk.fault = None
    table.set(2)
    disk.run()
    assert disk.written == [b"2"]
