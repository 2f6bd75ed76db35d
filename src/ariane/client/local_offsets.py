"""Where a member that reads everything by itself keeps its progress: a file, in Java's layout."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

from ariane.disk import Disk, RealDisk
from ariane.errors import ProtocolError
from ariane.protocol import fastjson
from ariane.protocol.bodies import MessageQueue, ResetOffsets
from ariane.store import config_files

DIRECTORY: Final = ".rocketmq_offsets"  # in the user's home, as for Java's clients
FILE_NAME: Final = "offsets.json"
FILE_BYTES_MAX: Final = 16 << 20


class LocalOffsets:
    """In a file in Java's layout, for a group whose every member reads everything."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._offsets: dict[MessageQueue, int] | None = None
        self._kept: dict[MessageQueue, int] = {}
        self._lock = asyncio.Lock()

    async def read(self, queue: MessageQueue) -> int | None:
        """What was kept for the queue."""
        return (await self._load()).get(queue)

    async def write(self, offsets: Mapping[MessageQueue, int], *, wait: bool = False) -> None:
        """Write the file anew if anything changed."""
        known = await self._load()
        known.update(offsets)
        async with self._lock:
            if known == self._kept:
                return
            current = dict(known)
            await asyncio.to_thread(
                config_files.persist, self._disk, self._path, encode_offsets(current)
            )
            self._kept = current

    async def _load(self) -> dict[MessageQueue, int]:
        async with self._lock:
            if self._offsets is None:
                self._offsets = await asyncio.to_thread(
                    config_files.load, self._disk, self._path, decode_offsets
                )
                self._offsets = self._offsets or {}
                self._kept = dict(self._offsets)
        return self._offsets


def local_offsets(group: str, directory: Path | None = None) -> LocalOffsets:
    """The file that a Java member of the group on this machine would use."""
    root = Path.home() / DIRECTORY if directory is None else directory
    return LocalOffsets(RealDisk(root), f"{local_address()}@DEFAULT/{group}/{FILE_NAME}")


def local_address() -> str:
    """The address of this machine that others see, as far as it can be told without asking."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent; the system only picks a route
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def encode_offsets(offsets: Mapping[MessageQueue, int]) -> bytes:
    """The file's text."""
    table: fastjson.Writable = {queue: offset for queue, offset in offsets.items()}
    return fastjson.dumps_pretty({"offsetTable": table})


def decode_offsets(data: bytes) -> dict[MessageQueue, int]:
    """What the file's text says; raises ValueError."""
    try:
        return dict(fastjson.decode(data, ResetOffsets, size_max=FILE_BYTES_MAX).offsets)
    except ProtocolError as error:
        raise ValueError(str(error)) from error
