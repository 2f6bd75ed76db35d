"""Both disks keep the same contract; the simulated one also forgets and fails as told."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from ariane.disk import CrashMode, Disk, RealDisk, SimulatedDisk
from ariane.errors import DiskFull, StoreLocked

PAGE = 4096
IO_ERROR = OSError(errno.EIO, "planted")


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return RealDisk(tmp_path / "root") if request.param == "real" else SimulatedDisk()


class TestEitherDisk:
    def test_a_mapped_file_is_zeros_and_keeps_what_is_written(self, disk: Disk) -> None:
        disk.make_directory("a/b")
        file = disk.mapped("a/b/f", 3 * PAGE, create=True)
        file.reserve(0, file.size)
        assert (file.size, file.path, bytes(file.buffer)) == (3 * PAGE, "a/b/f", bytes(3 * PAGE))
        file.buffer[5:10] = b"hello"
        file.write(PAGE, memoryview(b"there"))
        file.populate(0, file.size)
        file.sync(0, file.size)
        assert disk.read("a/b/f")[5:10] == b"hello"
        assert disk.mapped("a/b/f", 3 * PAGE).buffer[PAGE : PAGE + 5] == b"there"

    def test_zero_clears_a_range_and_nothing_else(self, disk: Disk) -> None:
        disk.make_directory("")
        file = disk.mapped("f", 4 * PAGE, create=True)
        file.buffer[:] = b"x" * file.size
        file.zero(100, 3 * PAGE + 7)
        file.zero(50, 50)
        expected = b"x" * 100 + bytes(3 * PAGE - 93) + b"x" * (PAGE - 7)
        assert bytes(file.buffer) == expected == disk.read("f")

    def test_a_private_map_keeps_writes_to_itself(self, disk: Disk) -> None:
        disk.make_directory("")
        disk.write("f", b"a" * PAGE)
        private = disk.mapped("f", PAGE, private=True)
        private.buffer[0:3] = b"zzz"
        assert disk.read("f") == b"a" * PAGE

    def test_a_view_outlives_the_file(self, disk: Disk) -> None:
        disk.make_directory("")
        file = disk.mapped("f", PAGE, create=True)
        file.buffer[:4] = b"data"
        view = file.buffer[:4]
        file.close()
        disk.remove("f")
        assert bytes(view) == b"data"

    def test_names_and_directories(self, disk: Disk) -> None:
        assert disk.names("nowhere") == [] == disk.directories("nowhere")
        disk.make_directory("d/sub")
        disk.write("d/2", b"22")
        disk.write("d/1", b"1")
        assert disk.names("d") == [("1", 1), ("2", 2)]
        assert disk.directories("d") == ["sub"]
        assert disk.exists("d/1") and disk.exists("d/sub") and not disk.exists("d/3")
        disk.rename("d/1", "d/3")
        disk.remove("d/2")
        disk.remove("d/2")
        assert disk.names("d") == [("3", 1)]
        disk.remove_tree("d")
        disk.remove_tree("d")
        assert not disk.exists("d")

    def test_atomic_writes_keep_the_one_before(self, disk: Disk) -> None:
        disk.make_directory("config")
        disk.write_atomic("config/x", b"first, and longer")
        assert disk.names("config") == [("x", 17)]
        disk.write_atomic("config/x", b"second")
        assert disk.read("config/x") == b"second"
        assert disk.read("config/x.bak") == b"first, and longer"
        assert [name for name, _ in disk.names("config")] == ["x", "x.bak"]

    def test_missing_files_are_told(self, disk: Disk) -> None:
        disk.make_directory("")
        with pytest.raises(FileNotFoundError):
            disk.read("f")
        with pytest.raises(FileNotFoundError):
            disk.mapped("f", PAGE)
        with pytest.raises(FileNotFoundError):
            disk.mapped("no/directory", PAGE, create=True)

    def test_sync_many_skips_what_is_gone(self, disk: Disk) -> None:
        disk.make_directory("d")
        files = [disk.mapped(f"d/{i}", PAGE, create=True) for i in range(3)]
        disk.remove("d/1")
        disk.sync_many([(file, 0, PAGE) for file in files], ["d", "gone"])
        assert disk.names("d") == [("0", PAGE), ("2", PAGE)]  # and made nothing anew

    def test_the_lock_lets_one_in(self, disk: Disk) -> None:
        disk.make_directory("")
        held = disk.lock("lock")
        with pytest.raises(StoreLocked):
            disk.lock("lock")
        held.release()
        disk.lock("lock").release()
        assert disk.read("lock") == b"lock"

    def test_usage_is_a_ratio_and_free_bytes(self, disk: Disk) -> None:
        disk.make_directory("")
        ratio, free = disk.usage()
        assert 0 <= ratio <= 1 and free > 0


class TestRealDisk:
    def test_a_file_that_cannot_be_made_leaves_nothing(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        disk.write("there", b"before")
        for path in ("new", "there"):
            with pytest.raises(DiskFull):
                disk.mapped(path, 1 << 62, create=True)
        assert disk.names("") == [("there", 6)]

    def test_maps_hold_no_descriptors(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        before = len(list(Path("/proc/self/fd").iterdir()))
        files = [disk.mapped(f"{i}", PAGE, create=True) for i in range(100)]
        for file in files:
            file.reserve(0, PAGE)
            file.sync(0, PAGE)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_maps_go_with_their_last_view(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        file = disk.mapped("f", PAGE, create=True)
        view = file.buffer[1:2]
        mapped_as = str(tmp_path / "f")
        assert mapped_as in Path("/proc/self/maps").read_text()
        file.close()
        assert mapped_as in Path("/proc/self/maps").read_text()
        del view, file
        assert mapped_as not in Path("/proc/self/maps").read_text()

    def test_many_files_are_synced_at_once(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        before = len(list(Path("/proc/self/fd").iterdir()))
        files = [disk.mapped(f"{i}", PAGE, create=True) for i in range(70)]
        disk.sync_many([(file, 0, PAGE) for file in files], [""])
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    @pytest.mark.parametrize(
        ("number", "says"),
        [
            (errno.ENOSPC, "disk is full"),
            (errno.EDQUOT, "quota"),
            (errno.EFBIG, "ulimit -f"),
            (errno.EIO, "log of the system"),
        ],
    )
    def test_a_full_disk_is_told_as_such(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
    ) -> None:
        def full(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        file = RealDisk(tmp_path).mapped("f", PAGE, create=True)
        monkeypatch.setattr(os, "posix_fallocate", full)
        monkeypatch.setattr(os, "ftruncate", full)
        with pytest.raises(DiskFull, match=says):
            file.reserve(0, PAGE)
        with pytest.raises(DiskFull, match=says):
            RealDisk(tmp_path).mapped("g", PAGE, create=True)

    def test_the_lock_and_a_java_process_exclude_each_other(self, tmp_path: Path) -> None:
        """A JVM takes a process-wide record lock on byte 0, as `lockf` does here."""
        take = (
            "import fcntl, sys; f = open(sys.argv[1], 'r+');"
            "fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
        )
        disk = RealDisk(tmp_path)
        held = disk.lock("lock")
        run = [sys.executable, "-c", take, str(tmp_path / "lock")]
        assert subprocess.run(run, capture_output=True, check=False).returncode != 0
        held.release()
        assert subprocess.run(run, capture_output=True, check=False).returncode == 0
        hold = subprocess.Popen(
            [*run[:2], take + "; print(1, flush=True); sys.stdin.read()", run[3]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert hold.stdout is not None
        hold.stdout.readline()
        with pytest.raises(StoreLocked, match="another broker"):
            disk.lock("lock")
        assert disk.is_locked("lock")
        hold.communicate(b"")
        assert fcntl.F_OFD_SETLK

    def test_whether_it_is_locked_is_found_by_reading(self, tmp_path: Path) -> None:
        disk = RealDisk(tmp_path)
        assert not disk.is_locked("lock")
        assert disk.names("") == []
        held = disk.lock("lock")
        assert disk.is_locked("lock")
        held.release()
        (tmp_path / "lock").write_bytes(b"")
        assert not disk.is_locked("lock")
        assert disk.read("lock") == b""


class TestSimulatedDisk:
    def make(self) -> tuple[SimulatedDisk, memoryview]:
        disk = SimulatedDisk()
        file = disk.mapped("f", 4 * PAGE, create=True)
        disk.sync_directory("")
        file.sync(0, 4 * PAGE)
        file.buffer[:] = b"x" * 4 * PAGE
        return disk, file.buffer

    def test_a_kill_keeps_everything(self) -> None:
        disk, _ = self.make()
        image = disk.crash_image(Random(1), CrashMode.KILL)
        assert image.read("f") == b"x" * 4 * PAGE

    def test_a_kill_leaves_unsynced_what_was_not_synced(self) -> None:
        disk, _ = self.make()
        disk.make_directory("d")
        disk.write("d/g", b"data")
        disk.rename("f", "h")
        killed = disk.crash_image(Random(1), CrashMode.KILL)
        assert (killed.read("h"), killed.read("d/g")) == (b"x" * 4 * PAGE, b"data")
        image = killed.crash_image(Random(1), CrashMode.DROP)
        assert image.read("f") == bytes(4 * PAGE)
        assert not image.exists("h") and not image.exists("d")
        killed.mapped("h", 4 * PAGE).sync(0, 4 * PAGE)
        killed.sync_directory("")
        assert killed.crash_image(Random(1), CrashMode.DROP).read("h") == b"x" * 4 * PAGE
        assert disk.crash_image(Random(1), CrashMode.DROP).read("f") == bytes(4 * PAGE)

    def test_a_power_cut_drops_what_was_not_synced(self) -> None:
        disk, _ = self.make()
        disk.mapped("f", 4 * PAGE).sync(PAGE, 2 * PAGE)
        image = disk.crash_image(Random(1), CrashMode.DROP)
        assert image.read("f") == bytes(PAGE) + b"x" * PAGE + bytes(2 * PAGE)

    def test_a_mixed_image_keeps_drops_and_tears_pages(self) -> None:
        disk, _ = self.make()
        seen = set()
        for seed in range(200):
            content = disk.crash_image(Random(seed), CrashMode.MIXED).read("f")
            sectors = [content[at : at + 512] for at in range(0, 4 * PAGE, 512)]
            assert all(sector in (bytes(512), b"x" * 512) for sector in sectors)
            seen.add(content)
        assert bytes(4 * PAGE) in seen and b"x" * 4 * PAGE in seen and len(seen) > 20

    def test_names_survive_once_their_directory_is_synced(self) -> None:
        disk = SimulatedDisk()
        disk.make_directory("d")
        disk.write("d/f", b"data")
        assert not disk.crash_image(Random(1), CrashMode.DROP).exists("d")
        disk.sync_directory("")
        assert not disk.crash_image(Random(1), CrashMode.DROP).exists("d/f")
        disk.sync_directory("d")
        image = disk.crash_image(Random(1), CrashMode.DROP)
        assert image.names("d") == [("f", 0)]  # the name is durable, the bytes are not
        disk.remove("d/f")
        assert disk.crash_image(Random(1), CrashMode.DROP).exists("d/f")

    def test_atomic_writes_leave_the_old_or_the_new_at_every_step(self) -> None:
        disk = SimulatedDisk()
        disk.write_atomic("x", b"old" * 1000)
        images: list[SimulatedDisk] = []
        disk.on_operation = lambda kind, path: images.extend(
            disk.crash_image(Random(seed), mode) for seed in range(20) for mode in CrashMode
        )
        disk.write_atomic("x", b"new")
        assert len(images) > 200
        for image in images:
            found = [image.read(name) for name in ("x", "x.bak") if image.exists(name)]
            assert found and found[0] in (b"old" * 1000, b"new")

    def test_a_failed_sync_loses_its_pages_for_good(self) -> None:
        disk, buffer = self.make()
        disk.plant("sync", IO_ERROR, after=1)
        file = disk.mapped("f", 4 * PAGE)
        file.sync(0, PAGE)
        with pytest.raises(OSError, match="planted"):
            file.sync(0, 4 * PAGE)
        file.sync(0, 4 * PAGE)  # says yes, as Linux does, but the pages were marked clean
        assert disk.crash_image(Random(1), CrashMode.DROP).read("f") == b"x" * PAGE + bytes(
            3 * PAGE
        )
        assert bytes(buffer) == b"x" * 4 * PAGE

    def test_pages_a_failed_sync_lost_are_synced_once_written_again(self) -> None:
        disk, _ = self.make()
        disk.plant("sync", IO_ERROR)
        file = disk.mapped("f", 4 * PAGE)
        with pytest.raises(OSError, match="planted"):
            file.sync(0, 4 * PAGE)
        killed = disk.crash_image(Random(1), CrashMode.KILL)  # the next process sees them as clean
        again = killed.mapped("f", 4 * PAGE)
        again.write(0, memoryview(b"x" * PAGE))  # the same bytes, but written
        again.buffer[PAGE] = ord("y")
        again.sync(0, 4 * PAGE)
        content = killed.crash_image(Random(1), CrashMode.DROP).read("f")
        assert content == b"x" * PAGE + b"y" + b"x" * (PAGE - 1) + bytes(2 * PAGE)

    def test_room_runs_out(self) -> None:
        disk = SimulatedDisk(capacity_bytes=3 * PAGE)
        file = disk.mapped("f", 8 * PAGE, create=True)
        file.reserve(0, 2 * PAGE)
        file.reserve(100, PAGE)
        with pytest.raises(DiskFull):
            file.reserve(2 * PAGE, 4 * PAGE)
        assert disk.usage() == (pytest.approx(2 / 3), PAGE)
        disk.remove("f")
        assert disk.free_bytes() == 3 * PAGE

    def test_writes_without_blocks_are_found(self) -> None:
        disk = SimulatedDisk()
        file = disk.mapped("f", 4 * PAGE, create=True)
        file.reserve(0, PAGE)
        file.buffer[1] = 1
        assert disk.unreserved_writes() == []
        file.buffer[2 * PAGE] = 1
        assert disk.unreserved_writes() == [("f", 2)]

    def test_write_back_makes_some_pages_stable(self) -> None:
        disk, _ = self.make()
        disk.write_back(Random(3))
        content = disk.crash_image(Random(1), CrashMode.DROP).read("f")
        assert content not in (bytes(4 * PAGE), b"x" * 4 * PAGE)
