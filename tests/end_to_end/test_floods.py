"""Connections without end: those who were there before go on, and the store keeps its files."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from pathlib import Path

from tests.harness.processes import Ariane, wait_until
from tests.harness.wire import Wire

DESCRIPTORS = 200


class FewDescriptors(Ariane):
    """`ariane up` where the system allows it next to nothing."""

    def spawn(
        self, name: str, command: Sequence[str | Path], environment: dict[str, str] | None = None
    ) -> Path:
        limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS}; exec "$@"', "sh", *command]
        return super().spawn(name, limited, environment)


def test_a_flood_of_connections_leaves_the_store_its_descriptors(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": 1 << 16}
    with FewDescriptors(tmp_path) as server, contextlib.ExitStack() as flood:
        server.start(**settings)
        good = flood.enter_context(Wire(server.broker))
        good.create_topic("T", 8)
        for _ in range(2 * DESCRIPTORS):
            flood.enter_context(socket.create_connection(server.broker))
        for i in range(400):  # new queues, new segments: each is a file to be opened
            good.send("T", i % 8, bytes(1000), key=str(i))
        good.create_topic("U")
        assert sum(len(good.read_queue("T", queue_id)) for queue_id in range(8)) == 400
        flood.close()
        wait_until(lambda: serves_newcomers(server), "room for others once the flood is over")
        server.stop()
        server.check_store(**settings)


def serves_newcomers(server: Ariane) -> bool:
    """Whether somebody who was not there before can send."""
    try:
        with Wire(server.broker) as late:
            late.send("U", 0, b"here I am", key="late")
    except OSError:
        return False
    return True
