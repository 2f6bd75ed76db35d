"""Java's client and ours on one broker: each reads what the other wrote, and answers it."""

import asyncio
import contextlib
import subprocess
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ariane import Client, ReceivedMessage, Start
from ariane.protocol.compression import COMPRESSIONS
from tests.harness.apache import JARS
from tests.harness.processes import Ariane
from tests.harness.wire import Wire
from tests.interop.messaging import HASTE, JAVA

pytestmark = pytest.mark.interop

PATIENCE_S = 40
SETTINGS: dict[str, object] = {"transactionTimeOut": 500, "transactionCheckInterval": 500}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """One broker for all."""
    with Ariane(tmp_path_factory.mktemp("together")).start(**SETTINGS) as started:
        yield started


class Peer:
    """A program with Apache's Java client that does what it is told."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.lines: list[str] = []

    def tell(self, *words: object) -> None:
        """Have something done."""
        assert self._process.stdin is not None
        self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    async def said(self, start: str) -> str:
        """The rest of the first line that starts so."""
        await until(lambda: any(line.startswith((start, "FAILED")) for line in self.lines), start)
        [line] = [line for line in self.lines if line.startswith((start, "FAILED"))][:1]
        assert not line.startswith("FAILED"), line
        return line.removeprefix(start).strip()

    async def read(self) -> None:
        """Listen until it ends."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            self.lines.append(line.decode().strip())


@contextlib.asynccontextmanager
async def peer_of(server: Ariane, home: Path) -> AsyncIterator[Peer]:
    """The program, until the block ends."""
    process = await asyncio.create_subprocess_exec(
        "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-Duser.home={home}", *HASTE, "-cp", f"{JAVA / 'target'}:{JAVA}:{JARS}/*",
        "Peer", server.namesrv_address,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home,
    )  # fmt: skip
    peer = Peer(process)
    reading = asyncio.create_task(peer.read())
    try:
        yield peer
    finally:
        process.kill()
        await process.wait()
        await reading


async def until(condition: Callable[[], object], what: str) -> None:
    for _ in range(PATIENCE_S * 50):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"waited {PATIENCE_S} s in vain for {what}")


@contextlib.asynccontextmanager
async def taking(client: Client, topic: str, group: str) -> AsyncIterator[dict[str, bytes]]:
    """The bodies that come, by tag."""
    bodies: dict[str, bytes] = {}

    async def note(message: ReceivedMessage) -> None:
        bodies[message.tags or ""] = message.body

    consumer = client.push_consumer(group, note, start=Start.FIRST)
    consumer.subscribe(topic)
    async with consumer:
        yield bodies


async def test_java_and_python_understand_each_other(server: Ariane, tmp_path: Path) -> None:
    with Wire(server.broker) as wire:
        for topic in ("asked-of-java", "asked-of-python", "for-java", "for-python", "halves"):
            wire.create_topic(topic, 2)
    async with peer_of(server, tmp_path) as java, Client(server.namesrv_address) as client:
        java.tell("answer", "asked-of-java", "java-repliers")
        java.tell("take", "for-java", "java-takers")
        java.tell("check", "shop")
        await requests_both_ways(java, client)
        await bodies_both_ways(java, client, server)
        await a_check_of_ours_is_answered_by_java(java, client)


async def requests_both_ways(java: Peer, client: Client) -> None:
    async def reply(message: ReceivedMessage) -> None:
        await client.reply(message, b"python: " + message.body)

    consumer = client.push_consumer("python-repliers", reply, start=Start.FIRST)
    consumer.subscribe("asked-of-python")
    async with consumer:
        java.tell("ask", "asked-of-python", "who?")
        assert await java.said("REPLY") == "python: who?"
    await java.said("READY answer")
    answer = await client.request("asked-of-java", b"who?", timeout=20)
    assert answer.body == b"java: who?"


async def bodies_both_ways(java: Peer, client: Client, server: Ariane) -> None:
    body = b"0123456789" * 5_000
    for kind in COMPRESSIONS:
        async with Client(server.namesrv_address, compression=kind) as sender:
            await sender.send("for-java", body, tags=kind)
        java.tell("send", kind.upper(), "for-python", 5_000)
    for kind in COMPRESSIONS:
        assert await java.said(f"GOT {kind} ") == f"{len(body)} {zlib.crc32(body)}"
    async with taking(client, "for-python", "python-takers") as bodies:
        await until(lambda: len(bodies) == len(COMPRESSIONS), "what Java compressed")
    assert bodies == {kind.upper(): body for kind in COMPRESSIONS}


async def a_check_of_ours_is_answered_by_java(java: Peer, client: Client) -> None:
    await java.said("READY check")
    client.checked_elsewhere("shop")
    async with client.transaction("halves", b"half", group="shop", tags="T") as transaction:
        transaction.unknown()
    async with taking(client, "halves", "half-takers") as bodies:
        await until(lambda: bodies, "the half message that Java commits")
    assert await java.said("CHECKED") == "half"
    assert bodies == {"T": b"half"}
