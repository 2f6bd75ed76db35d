"""The key-value table on a disk that can fail and stop."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from ariane.disk import CrashMode, RealDisk, SimulatedDisk
from ariane.errors import CorruptFile, DiskFull, RequestRejected
from ariane.nameserver.key_values import FILE_BYTES_MAX, KeyValues

PATH = "kvConfig.json"


def test_values_survive_a_restart_in_apaches_layout() -> None:
    disk = SimulatedDisk()
    values = KeyValues(disk, PATH)
    values.put("ORDER_TOPIC_CONFIG", "orders", "broker-a:4;broker-b:4")
    values.put("other", "ключ", "значение")
    assert msgspec.json.decode(disk.read(PATH)) == {
        "configTable": {
            "ORDER_TOPIC_CONFIG": {"orders": "broker-a:4;broker-b:4"},
            "other": {"ключ": "значение"},
        }
    }
    again = KeyValues(disk, PATH)
    assert again.get("ORDER_TOPIC_CONFIG", "orders") == "broker-a:4;broker-b:4"
    assert again.namespace("other") == {"ключ": "значение"}


def test_the_directory_is_made_for_the_first_value(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path / "not" / "there" / "yet")
    values = KeyValues(disk, "below/kvConfig.json")
    values.put("n", "k", "v")
    assert KeyValues(disk, "below/kvConfig.json").get("n", "k") == "v"


def test_what_is_not_there() -> None:
    values = KeyValues(SimulatedDisk(), PATH)
    values.put("n", "k", "v")
    assert values.get("n", "other") is None
    assert values.get("other", "k") is None
    assert values.namespace("other") is None
    values.delete("n", "other")
    values.delete("other", "k")
    assert values.namespace("n") == {"k": "v"}


def test_an_emptied_namespace_stays_known() -> None:
    values = KeyValues(SimulatedDisk(), PATH)
    values.put("n", "k", "v")
    values.delete("n", "k")
    assert values.namespace("n") == {}


def test_there_is_a_bound_to_all_values_together() -> None:
    values = KeyValues(SimulatedDisk(), PATH)
    half = "v" * (FILE_BYTES_MAX // 2)
    values.put("n", "one", half)
    with pytest.raises(RequestRejected, match="delete some first"):
        values.put("other", "two", half)
    assert values.namespace("other") is None
    values.put("n", "one", "less")
    values.put("other", "two", half)


@pytest.mark.parametrize("error", [OSError(5, "input/output error"), DiskFull("no room")])
def test_a_change_that_cannot_be_kept_is_not_made(error: Exception) -> None:
    disk = SimulatedDisk()
    values = KeyValues(disk, PATH)
    values.put("n", "k", "old")
    disk.plant("write", error)
    with pytest.raises(type(error)):
        values.put("n", "k", "new")
    assert values.get("n", "k") == "old"
    disk.plant("write", error)
    with pytest.raises(type(error)):
        values.delete("n", "k")
    assert KeyValues(disk, PATH).get("n", "k") == "old"


def test_the_backup_is_read_when_the_file_is_torn() -> None:
    disk = SimulatedDisk()
    values = KeyValues(disk, PATH)
    values.put("n", "k", "old")
    values.put("n", "k", "new")
    disk.write(PATH, b'{"configTable":{"n":{"k"')
    assert KeyValues(disk, PATH).get("n", "k") == "old"


def test_nothing_readable_is_said_clearly() -> None:
    disk = SimulatedDisk()
    disk.write(PATH, b"torn")
    with pytest.raises(CorruptFile, match=r"mend or remove it: kvConfig\.json: "):
        KeyValues(disk, PATH)


def test_a_crash_at_any_moment_leaves_the_old_or_the_new_table() -> None:
    disk = SimulatedDisk()
    values = KeyValues(disk, PATH)
    written = 0
    images: list[tuple[int, SimulatedDisk]] = []

    def take_images(_kind: str, _path: str) -> None:
        for mode in CrashMode:
            images.append((written, disk.crash_image(random.Random(len(images)), mode)))

    disk.on_operation = take_images
    for number in range(1, 6):
        values.put("n", "k", str(number))
        written = number
        take_images("acknowledged", PATH)
    assert len(images) > 50
    for acknowledged, image in images:
        found = int(KeyValues(image, PATH).get("n", "k") or 0)
        assert found in (acknowledged, acknowledged + 1)
