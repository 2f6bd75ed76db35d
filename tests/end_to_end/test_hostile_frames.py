"""A live broker under attack: 100,000 hostile frames, while a good client loses nothing."""

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.harness.hostile import BREAKING, NONSENSE
from tests.harness.processes import Ariane, anonymous_bytes, wait_until
from tests.harness.wire import PULL, SEND_V2, Sent, Wire, frame, send_header, sent_of

FRAMES = 100_000
BUNDLE = 60  # nonsense frames on one connection, sent at once
MEMORY_MAX = 512 << 20
ANSWER_S = 20  # a server that takes longer hangs
SYSTEM_BUSY = 2


class GoodClient(threading.Thread):
    """Sends one message after another and reads each back; anything amiss ends it."""

    def __init__(self, address: tuple[str, int], topic: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.topic = topic
        self.sent = 0
        self.busy = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None
        self.stopping = threading.Event()

    def run(self) -> None:
        try:
            with Wire(self.address, timeout_s=ANSWER_S) as wire:
                while not self.stopping.wait(0.002):
                    start = time.monotonic()
                    body = f"good-{self.sent}".encode()
                    place = self._send(wire, body)
                    (record, *_) = wire.pull(self.topic, place.queue_id, place.queue_offset, 1)
                    assert record.body == body
                    self.sent += 1
                    self.slowest_s = max(self.slowest_s, time.monotonic() - start)
        except BaseException as failure:  # told to the test, which raises it
            self.failure = failure

    def _send(self, wire: Wire, body: bytes) -> Sent:
        """Send, and again while the broker says that it is busy, as every client does."""
        header = send_header(self.topic, self.sent % 4, key=body.decode(), tag="T")
        while (answer := wire.call(SEND_V2, header, body, check=False)).code == SYSTEM_BUSY:
            self.busy += 1
        assert answer.code == 0, answer
        return sent_of(answer)


@dataclass
class Attack:
    """What the attackers did and what the server did about it."""

    address: tuple[str, int]
    seed: int
    frames: Counter[str] = field(default_factory=Counter)
    replies: Counter[int] = field(default_factory=Counter)

    def broken_streams(self, count: int) -> None:
        """One frame a connection, which the server must close."""
        dice = random.Random(self.seed)
        for _ in range(count):
            hostile = dice.choice(BREAKING)(dice)
            with self._connection() as peer:
                self._send(peer, hostile.data, and_leave=not hostile.breaks)
                self._read_replies(peer, hostile.kind)
            self.frames[hostile.kind] += 1

    def nonsense(self, count: int) -> None:
        """Well-framed nonsense, which must be answered."""
        dice = random.Random(self.seed)
        while count > 0:
            bundle = [dice.choice(NONSENSE)(dice) for _ in range(min(BUNDLE, count))]
            with self._connection() as peer:
                self._send(peer, b"".join(hostile.data for hostile in bundle), and_leave=True)
                self._read_replies(peer, bundle[-1].kind)
            self.frames.update(hostile.kind for hostile in bundle)
            count -= len(bundle)

    def _read_replies(self, peer: socket.socket, kind: str) -> None:
        data = b""
        while more := self._receive(peer, kind):
            data += more
        while len(data) >= 8:
            size, word = struct.unpack_from(">ii", data)
            header = data[8 : 8 + (word & 0xFFFFFF)]
            start = header.find(b'"code":') + 7
            self.replies[int(header[start:].split(b",")[0].rstrip(b"}"))] += 1
            data = data[4 + size :]

    @contextlib.contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(self.address, timeout=ANSWER_S) as peer:
            yield peer

    def _send(self, peer: socket.socket, data: bytes, *, and_leave: bool) -> None:
        with contextlib.suppress(OSError):  # closed before we had said everything
            peer.sendall(data)
            if and_leave:
                peer.shutdown(socket.SHUT_WR)

    def _receive(self, peer: socket.socket, kind: str) -> bytes:
        try:
            return peer.recv(1 << 16)
        except TimeoutError:
            raise AssertionError(f"neither an answer nor a close for {kind}") from None
        except ConnectionError:
            return b""


def half_open(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Peers that announce a frame and never finish it, some after megabytes."""
    peers = []
    for number in range(count):
        peer = socket.create_connection(address, timeout=ANSWER_S)
        data = struct.pack(">II", 15 << 20, 100) + b'{"code":310'
        with contextlib.suppress(ConnectionError):
            peer.sendall(data if number % 20 else data + bytes(8 << 20))
        peers.append(peer)
    return peers


def never_reading(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Peers that ask for messages over and over and take none of the answers."""
    ext = {
        "consumerGroup": "deaf", "topic": "GoodTopic", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    asking = frame(PULL, ext, opaque=7) * 200
    peers = []
    for _ in range(count):
        peer = socket.create_connection(address, timeout=ANSWER_S)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        with contextlib.suppress(OSError):
            for _ in range(400):
                peer.send(asking)
        peers.append(peer)
    return peers


def flood(address: tuple[str, int], count: int) -> None:
    """Connections opened and dropped, some with a reset."""
    for number in range(count):
        with contextlib.suppress(OSError), socket.create_connection(address, timeout=5) as peer:
            if number % 2:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.slow
def test_broker_survives_hostile_frames_while_a_good_client_loses_nothing(tmp_path: Path) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    with Ariane(tmp_path / "data").start() as server:
        with Wire(server.broker) as wire:
            wire.create_topic("GoodTopic")
            wire.create_topic("HostileTopic")
        at_rest = anonymous_bytes(server.broker_process.pid)
        good = GoodClient(server.broker, "GoodTopic")
        good.start()
        wait_until(lambda: good.sent >= 100 or good.failure, "the good client to be under way")
        deaf = never_reading(server.broker, 8)
        stuck = half_open(server.broker, 200)
        attacks = [Attack(server.broker, seed), Attack(server.broker, seed + 1)]
        attacks.append(Attack(server.namesrv, seed + 2))
        workers = [
            threading.Thread(target=attack, args=(count,))
            for attack, count in [
                (attacks[0].broken_streams, FRAMES * 12 // 100),
                (attacks[1].nonsense, FRAMES * 78 // 100),
                (attacks[2].nonsense, FRAMES * 10 // 100),
            ]
        ]
        failures = run_all(workers)
        peak = 0
        while attacking := [worker for worker in workers if worker.is_alive()]:
            peak = max(peak, anonymous_bytes(server.broker_process.pid))
            flood(server.broker, 20)
            attacking[0].join(0.02)  # a thousand a second; more would starve the attackers
            assert server.broker_process.poll() is None, "the broker has died"
        assert failures == []
        for peer in [*deaf, *stuck]:
            peer.close()
        good.stopping.set()
        good.join(ANSWER_S)
        for attack in attacks:
            print(f"frames {dict(attack.frames)}, replies by code {dict(attack.replies)}")
        print(
            f"good client: {good.sent} sent, {good.busy} refusals, {good.slowest_s:.2f} s at most"
        )
        print(f"anonymous memory: {at_rest >> 20} MB at rest, {peak >> 20} MB at most")
        if good.failure:
            raise good.failure
        assert sum(attack.frames.total() for attack in attacks) >= FRAMES
        for attack in attacks[1:]:  # all but the few pulls that were held when their sender left
            assert attack.replies.total() > attack.frames.total() * 0.98
        assert good.sent > 500
        assert good.busy < good.sent
        assert good.slowest_s < ANSWER_S / 2
        assert peak < MEMORY_MAX
        with Wire(server.broker) as wire:
            found = [wire.read_queue("GoodTopic", queue_id) for queue_id in range(4)]
        assert sum(map(len, found)) == good.sent
        check_nothing_escaped(tmp_path)
        server.stop()
    server.check_store()


def run_all(workers: list[threading.Thread]) -> list[str]:
    """Start the attackers; what goes wrong in one of them is put into the list."""
    failures: list[str] = []
    threading.excepthook = lambda told: failures.append(f"{told.exc_type}: {told.exc_value}")
    for worker in workers:
        worker.start()
    return failures


def check_nothing_escaped(directory: Path) -> None:
    """Names with slashes and dots have made no file outside the store, nor odd ones inside."""
    assert {path.name for path in directory.iterdir()} == {"data"}
    assert not Path("/tmp/escaped").exists()
    for queue in (directory / "data/store/consumequeue").iterdir():
        assert queue.name not in (".", "..")
        assert all(character.isalnum() or character in "%|-_" for character in queue.name), queue
