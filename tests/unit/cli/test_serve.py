"""Servers that cannot start say why, and what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ariane.cli.serve import broker, up
from ariane.config import BrokerConfig, StoreConfig
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


REFUSED = {
    "access control": (
        "aclEnable=true",
        "aclEnable=true cannot be used: there is no access control",
    ),
    "replicas": ("enableDLegerCommitLog=TRUE", "there are no replicas here"),
    "another store": ("storeType=defaultRocksDB", "it may be default"),
    "a log elsewhere": ("storePathCommitLog=/elsewhere", "it is always .*commitlog"),
    "an unknown host": ("brokerIP1=no.such.host.invalid", "brokerIP1='no.such.host.invalid'"),
}


@pytest.mark.parametrize(("line", "words"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_had_is_not_passed_over(tmp_path: Path, line: str, words: str) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(f"listenPort=0\nstorePathRootDir={tmp_path}/store\n{line}\n")
    with pytest.raises(ConfigError, match=words):
        broker(config=file)
    assert not (tmp_path / "store").exists()


def test_what_is_as_it_always_is_may_be_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also that a file may begin with a mark of its encoding, as some editors write it."""
    started: list[BrokerConfig] = []

    async def start(config: BrokerConfig, store_config: StoreConfig) -> None:
        started.append(config)

    monkeypatch.setattr("ariane.cli.serve._broker", start)
    file = tmp_path / "broker.conf"
    file.write_text(
        f"brokerName=b\nstorePathRootDir={tmp_path}\nstorePathCommitLog={tmp_path}/commitlog/\n"
        "aclEnable=false\nstoreType=default\n",
        encoding="utf-8-sig",
    )
    broker(config=file)
    assert [config.name for config in started] == ["b"]
    assert capsys.readouterr().err == ""
