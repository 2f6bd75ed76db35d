"""Configuration files: written whole and atomically, read with their backup behind them.

`X` is the file, `X.bak` the one before it. A crash at any step of a write leaves one of the two
readable, and neither is ever overwritten in place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from ariane.disk import Disk
from ariane.errors import CorruptFile

logger: Final = logging.getLogger("ariane.store")

T = TypeVar("T")


def load(disk: Disk, path: str, decode: Callable[[bytes], T]) -> T | None:
    """The file's value, or its backup's; None when there is neither.

    `decode` raises ValueError for bytes it cannot read. A damaged file is set aside as `.damaged`,
    so that the next write does not push it over the good backup.
    """
    found, fault = _read(disk, path, decode)
    if found is not None:
        return found
    backup, backup_fault = _read(disk, f"{path}.bak", decode)
    if fault is not None and backup is None:
        raise CorruptFile(
            f"{path} cannot be read ({fault}), and its backup {path}.bak"
            f" {'is missing' if backup_fault is None else f'neither ({backup_fault})'};"
            " restore one of them, or remove both to start with an empty table"
        )
    if backup_fault is not None:
        raise CorruptFile(
            f"{path} is missing and {path}.bak cannot be read ({backup_fault});"
            " restore one of them, or remove both to start with an empty table"
        )
    if fault is not None:
        logger.warning("configuration damaged, backup used path=%s reason=%s", path, fault)
        disk.rename(path, f"{path}.damaged")
    return backup


def persist(disk: Disk, path: str, data: bytes) -> None:
    """Replace the file; a crash leaves the old content or the new."""
    directory = path.rpartition("/")[0]
    if directory:
        disk.make_directory(directory)
        disk.sync_directory(directory.rpartition("/")[0])  # the name of a directory just made
    disk.write_atomic(path, data)


def _read(disk: Disk, path: str, decode: Callable[[bytes], T]) -> tuple[T | None, str | None]:
    """The value, or why there is none; neither when the file is missing or empty."""
    try:
        data = disk.read(path)
    except FileNotFoundError:
        return None, None
    if not data.strip():
        return None, None
    try:
        return decode(data), None
    except ValueError as error:
        return None, str(error)
