"""Where a broker could fall off: much of one thing at once, and one loop for all.

Each case starts a broker of its own, does what once held the loop up, and watches a bystander, who
asks for one small thing after the other: how long does he wait at most? A case is a function that
gives rows, marked with `@cliff(name)`; `make bench BENCH="--only members,pollers"` or
`python -m benchmarks.cliffs members pollers` run some.
"""

import contextlib
import json
import select
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Row, table
from benchmarks.measure import LOAD, LoadFailed, Run
from tests.harness.processes import ROOT, Ariane, anonymous_bytes
from tests.harness.wire import MAX_OFFSET, PULL, UPDATE_GROUP, UPDATE_TOPIC, Wire, frame

SCRATCH = ROOT / ".cache/bench/cliffs"
MEMBERS, CHANGES_PER_S, STORM_S = 1_000, 40, 5.0
POLLERS, POLLERS_PER_CONNECTION = 10_000, 100
TOPICS, IN_FLIGHT = 10_000, 16
AWAITED_PER_S, AWAITED_S = 10_000, 5
DEAF, DEAF_S, CUT_OFF_S, POURED_BYTES = 200, 8.0, 90.0, 16 << 10
GROWTH_S, REST_S = 20.0, 35.0  # a registration, samples, saves, checkpoints
HEART_BEAT, LIST_MEMBERS, NOTIFY = 34, 38, 40

Case = Callable[[], list[Row]]
CASES: dict[str, Case] = {}


def cliff(name: str) -> Callable[[Case], Case]:
    """Make the function a case of that name."""

    def register(case: Case) -> Case:
        CASES[name] = case
        return case

    return register


@contextlib.contextmanager
def broker(name: str) -> Iterator[Ariane]:
    directory: Path = SCRATCH / name
    shutil.rmtree(directory, ignore_errors=True)
    with Ariane(directory) as server:
        server.start()
        yield server


@contextlib.contextmanager
def producing(server: Ariane, *arguments: object) -> Iterator[Run]:
    """Unrelated producers meanwhile; their figures are there when they have come to their end."""
    command = load_command(server, "produce", "--topic", "unrelated", *arguments)
    run: Run = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        yield run
        printed, _ = load.communicate()
    if load.returncode:
        raise LoadFailed(f"{' '.join(command)}: {printed}")
    run.update(json.loads(printed))


class Bystander:
    """Asks for the end of a queue, again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._wire = Wire(address)
        self.create("bystander", 1)

    def create(self, topic: str, queues: int) -> None:
        self._wire.write(UPDATE_TOPIC, topic_fields(topic, queues))
        assert self._wire.read().code == 0

    def ask(self) -> float:
        """How long one answer takes, in seconds."""
        began_s = time.perf_counter()
        self._wire.write(MAX_OFFSET, {"topic": "bystander", "queueId": "0"})
        assert self._wire.read().code == 0
        return time.perf_counter() - began_s

    def watch(self, seconds: float) -> list[float]:
        """How long each answer takes for a while."""
        end_s = time.perf_counter() + seconds
        taken = []
        while time.perf_counter() < end_s:
            taken.append(self.ask())
        return taken


def topic_fields(topic: str, queues: int) -> dict[str, str]:
    return {
        "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(queues),
        "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0", "order": "false",
    }  # fmt: skip


def heartbeat(number: int) -> bytes:
    consumer = {
        "groupName": "crowd", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [
            {"topic": "bystander", "subString": "*", "subVersion": 1, "tagsSet": [], "codeSet": []}
        ],
    }  # fmt: skip
    client_id = f"127.0.0.1@{number}#1234567890123456"
    data = {"clientID": client_id, "consumerDataSet": [consumer], "producerDataSet": []}
    return frame(HEART_BEAT, {}, json.dumps(data).encode(), opaque=1)


ASK_MEMBERS = frame(LIST_MEMBERS, {"consumerGroup": "crowd"}, opaque=2)
NOTICE = b'"code":%d,' % NOTIFY


class Crowd:
    """Members of one group that ask who the others are whenever they are told of a change."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self.notices = 0

    def join(self) -> None:
        member = socket.create_connection(self._address)
        member.sendall(heartbeat(member.fileno()))
        self._sockets[member.fileno()] = member
        self._poll.register(member, select.EPOLLIN)

    def leave(self) -> None:
        descriptor, member = next(iter(self._sockets.items()))
        self._poll.unregister(member)
        member.close()
        del self._sockets[descriptor]

    def leave_all(self) -> None:
        while self._sockets:
            self.leave()

    def serve(self) -> None:
        """Read what came, and ask back as clients do."""
        for descriptor, _ in self._poll.poll(0, 100):
            data = self._sockets[descriptor].recv(1 << 18)
            told = data.count(NOTICE)
            self.notices += told
            if told:
                self._sockets[descriptor].sendall(ASK_MEMBERS)


@cliff("members")
def members() -> list[Row]:
    """A thousand members of one group, forty of which come or go each second, then all leave."""
    with broker("members") as server:
        bystander = Bystander(server.broker)
        crowd = Crowd(server.broker)
        for _ in range(MEMBERS):
            crowd.join()
            crowd.serve()
        settle(crowd, 3.0)
        shape = ["-c", 4, "-w", 4, "-t", STORM_S]
        with producing(server, *shape) as quiet:
            bystander.watch(STORM_S)
        crowd.notices = 0
        with producing(server, *shape) as loud:
            taken = storm(crowd, bystander)
        notices = crowd.notices / MEMBERS / STORM_S
        crowd.leave_all()
        leaving = bystander.watch(2.0)
    kept = loud["msgs_per_s"] / quiet["msgs_per_s"]
    return [
        Row("members", "notices a member and second", "", notices, None, "<= 1.2", notices <= 1.2),
        Row("members", "what producers keep", "", kept, None, ">= 0.8", kept >= 0.8),
        at_most("members", "bystander's longest wait", taken, 50),
        at_most("members", "... when all leave at once", leaving, 50),
    ]


def storm(crowd: Crowd, bystander: Bystander) -> list[float]:
    """Members come and go; how long the bystander waits."""
    taken: list[float] = []
    began_s, changes = time.perf_counter(), 0
    while (spent_s := time.perf_counter() - began_s) < STORM_S:
        if changes < spent_s * CHANGES_PER_S:
            crowd.leave() if changes % 2 else crowd.join()
            changes += 1
        crowd.serve()
        taken.append(bystander.ask())
    return taken


def settle(crowd: Crowd, seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        crowd.serve()


@cliff("pollers")
def pollers() -> list[Row]:
    """Ten thousand pulls that wait for one queue: one message for all, then no message for all."""
    with broker("pollers") as server:
        bystander = Bystander(server.broker)
        bystander.create("awaited", 1)
        waiting = [
            Wire(server.broker, timeout_s=30) for _ in range(POLLERS // POLLERS_PER_CONNECTION)
        ]
        poll(waiting, wait_ms=60_000)
        bystander.watch(1.0)
        with Wire(server.broker) as sender:
            sender.send("awaited", 0, b"x", key="k")
        woken = bystander.watch(2.0)
        answered = drained(waiting)
        poll(waiting, wait_ms=4_000, queue_offset=1)
        bystander.watch(1.0)
        ended = bystander.watch(5.0)
        answered += drained(waiting)
    return [
        Row(
            "pollers", "answered", "", answered, None, f"= {2 * POLLERS:,}", answered == 2 * POLLERS
        ),
        at_most("pollers", "bystander's wait, one message for all", woken, 10),
        at_most("pollers", "... all ending at once", ended, 10),
    ]


def poll(waiting: list[Wire], *, wait_ms: int, queue_offset: int = 0) -> None:
    fields = {
        "consumerGroup": "pollers", "topic": "awaited", "queueId": "0", "maxMsgNums": "32",
        "queueOffset": str(queue_offset), "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms), "subscription": "*", "subVersion": "1",
        "expressionType": "TAG",
    }  # fmt: skip
    for wire in waiting:
        for _ in range(POLLERS_PER_CONNECTION):
            wire.write(PULL, fields)


def drained(waiting: list[Wire]) -> int:
    """How many answers there are; each of them must come."""
    answers = {
        (number, wire.read().opaque)
        for number, wire in enumerate(waiting)
        for _ in range(POLLERS_PER_CONNECTION)
    }
    return len(answers)


@cliff("creations")
def creations() -> list[Row]:
    """Ten thousand topics, then as many groups, sixteen requests in flight; watched at rest."""
    with broker("creations") as server:
        bystander = Bystander(server.broker)
        topics_s = created(
            server,
            [frame(UPDATE_TOPIC, topic_fields(f"topic-{n}", 4), opaque=n) for n in range(TOPICS)],
        )
        groups_s = created(
            server,
            [
                frame(UPDATE_GROUP, {}, json.dumps({"groupName": f"group-{n}"}).encode(), opaque=n)
                for n in range(TOPICS)
            ],
        )
        resting = bystander.watch(REST_S)
    return [
        Row("creations", f"{TOPICS:,} topics", "s", topics_s, None, "<= 5 s", topics_s <= 5),
        Row("creations", f"{TOPICS:,} groups", "s", groups_s, None, "<= 5 s", groups_s <= 5),
        at_most("creations", "bystander's longest wait, at rest", resting, 50),
    ]


@cliff("first sends")
def first_sends() -> list[Row]:
    """One message to each of forty thousand queues that have no file yet."""
    with broker("first-sends") as server:
        bystander = Bystander(server.broker)
        names = ["--topic", "many", "--topics", str(TOPICS)]
        subprocess.run(load_command(server, "topic", *names), check=True)
        words = load_command(server, "produce", *names, "--no-create", "-w", 16)
        taken: list[float] = []
        with subprocess.Popen(
            [*words, "-n", str(4 * TOPICS)], stdout=subprocess.PIPE, text=True
        ) as load:
            while load.poll() is None:
                taken.append(bystander.ask())
            printed, _ = load.communicate()
        taken += bystander.watch(REST_S)  # in which the files are made
    run: Run = json.loads(printed)
    rate, refused = run["msgs_per_s"], run["not_ok"]
    return [
        Row("first sends", "rate", "msg/s", rate, None, ">= 50,000", rate >= 50_000),
        Row("first sends", "refused", "", refused, None, "= 0", refused == 0),
        at_most("first sends", "bystander's longest wait", taken, 50),
    ]


@cliff("queues")
def queues() -> list[Row]:
    """Forty thousand queues that grow, then rest."""
    with broker("queues") as server:
        bystander = Bystander(server.broker)
        names = ["--topic", "many", "--topics", str(TOPICS)]
        subprocess.run(load_command(server, "topic", *names), check=True)
        words = load_command(server, "produce", *names, "--no-create", "-w", 16)
        subprocess.run([*words, "-n", str(4 * TOPICS)], capture_output=True, check=False)
        bystander.watch(2.0)
        with subprocess.Popen([*words, "-t", str(GROWTH_S)], stdout=subprocess.PIPE) as growth:
            growing = bystander.watch(GROWTH_S)
            growth.communicate()
        resting = bystander.watch(REST_S)
    return [
        at_most("queues", "bystander's longest wait, growing", growing, 50),
        at_most("queues", "... at rest", resting, 50),
    ]


@cliff("awaited")
def awaited() -> list[Row]:
    """Ten thousand messages a second, each awaited by a pull: what that costs the broker."""
    with broker("awaited") as server:
        words = ["--topic", "awaited", "-r", AWAITED_PER_S, "-t", AWAITED_S]
        process_id = server.broker_process.pid
        command = load_command(server, "e2e", *words, "--server-pid", process_id)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LoadFailed(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        run: Run = json.loads(done.stdout)
    cores = run["server_cpu_s_per_m"] * run["msgs_per_s"] / 1e6
    p50, p99 = run["p50_us"], run["p99_us"]
    return [
        Row("awaited", "broker, 10,000/s", "cores", cores, None, "<= 0.25", cores <= 0.25),
        Row("awaited", "produce to receive, p50", "us", p50, None, "<= 220", p50 <= 220),
        Row("awaited", "produce to receive, p99", "us", p99, None, "<= 1,500", p99 <= 1500),
    ]


class Deaf:
    """Peers that ask and ask, and never read an answer."""

    def __init__(self, address: tuple[str, int], asked: bytes) -> None:
        self._asked = memoryview(asked)
        self._poll = select.epoll()
        self._sockets: dict[int, tuple[socket.socket, int]] = {}
        for _ in range(DEAF):
            peer = socket.create_connection(address)
            peer.setblocking(False)
            self._sockets[peer.fileno()] = (peer, 0)
            self._poll.register(peer, select.EPOLLOUT)

    def pour(self) -> None:
        """Ask for as much as the sockets take, a few of them at a time."""
        for descriptor, mask in self._poll.poll(0, 4):
            peer, at = self._sockets[descriptor]
            if mask & select.EPOLLHUP:
                self._poll.unregister(peer)
                peer.close()
                del self._sockets[descriptor]
                continue
            with contextlib.suppress(OSError):
                at = (at + peer.send(self._asked[at : at + POURED_BYTES])) % len(self._asked)
            self._sockets[descriptor] = (peer, at)

    @property
    def count(self) -> int:
        """How many are still connected."""
        return len(self._sockets)


def poured(wire: Wire, deaf: Deaf | None) -> float:
    """How many pulls a second somebody gets who reads, while the deaf do as they do."""
    asked = pulls("poured", 1)
    began_s, count = time.perf_counter(), 0
    while time.perf_counter() - began_s < DEAF_S:
        if deaf is not None:
            deaf.pour()
        wire.socket.sendall(asked)
        count += wire.read().code == 0
    return count / DEAF_S


def pulls(topic: str, count: int) -> bytes:
    fields = {
        "consumerGroup": "pourers", "topic": topic, "queueId": "0", "maxMsgNums": "32",
        "queueOffset": "0", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "subVersion": "0", "expressionType": "TAG",
    }  # fmt: skip
    return b"".join(frame(PULL, fields, opaque=opaque) for opaque in range(count))


@cliff("deaf")
def deaf() -> list[Row]:
    """Two hundred peers that pour in pulls and never read, beside producers and a consumer."""
    with broker("deaf") as server:
        words = ["--topic", "poured", "--queues", 1, "-n", 10_000, "-b", 1000, "-w", 16]
        subprocess.run(load_command(server, "produce", *words), check=True, capture_output=True)
        wire = Wire(server.broker)
        shape = ["-c", 4, "-w", 64, "-t", DEAF_S]
        with producing(server, *shape) as quiet:
            pulls_quiet = poured(wire, None)
        before = anonymous_bytes(server.broker_process.pid)
        peers = Deaf(server.broker, pulls("poured", 400))
        with producing(server, *shape) as loud:
            pulls_loud = poured(wire, peers)
        grown_mb = (anonymous_bytes(server.broker_process.pid) - before) / 1e6
        end_s = time.perf_counter() + CUT_OFF_S
        while peers.count and time.perf_counter() < end_s:
            peers.pour()
            time.sleep(0.01)
        said = server.outputs[-1].read_text().count("does not read its answers")
    kept, got = loud["msgs_per_s"] / quiet["msgs_per_s"], pulls_loud / pulls_quiet
    return [
        Row("deaf", "what producers keep", "", kept, None, ">= 0.8", kept >= 0.8),
        Row("deaf", "what a consumer keeps", "", got, None, ">= 0.8", got >= 0.8),
        Row("deaf", "memory", "MB", grown_mb, None, "<= 100 MB", grown_mb <= 100),
        Row("deaf", "cut off and named", "", said, None, f"= {DEAF}", said == DEAF),
    ]


def load_command(server: Ariane, mode: str, *arguments: object) -> list[str]:
    return [str(word) for word in (LOAD, mode, "--port", server.broker[1], "--json", *arguments)]


def created(server: Ariane, frames: list[bytes]) -> float:
    """How long it takes to have all requests carried out."""
    with Wire(server.broker, timeout_s=60) as wire:
        began_s = time.perf_counter()
        for number, sent in enumerate(frames):
            wire.socket.sendall(sent)
            if number >= IN_FLIGHT:
                assert wire.read().code == 0
        for _ in range(min(IN_FLIGHT, len(frames))):
            assert wire.read().code == 0
        return time.perf_counter() - began_s


def at_most(case: str, what: str, taken: list[float], bar_ms: float) -> Row:
    longest_ms = max(taken) * 1000
    return Row(case, what, "ms", longest_ms, None, f"<= {bar_ms:g} ms", longest_ms <= bar_ms)


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(table(CASES[name]()), flush=True)
