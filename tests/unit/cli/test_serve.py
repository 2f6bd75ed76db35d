"""Servers that cannot start say why, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ariane.cli.serve import up
from ariane.disk import RealDisk
from ariane.errors import ConfigError


def test_data_that_cannot_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot use .*file.* Not a directory; .*--data"):
        up(data=tmp_path / "file", namesrv_port=0, broker_port=0)


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RealDisk, "lock", full)
    with pytest.raises(ConfigError, match=r"no room on the disk; free some space, or .*--data"):
        up(data=tmp_path, namesrv_port=0, broker_port=0)
