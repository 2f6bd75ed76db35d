"""The command line as real processes: what scripts and people rely on."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness.processes import ARIANE, Ariane, Server, free_port, wait_until
from tests.harness.watching import refuse_tracebacks
from tests.harness.wire import Wire


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ariane]:
    """One `ariane up` for the tests that only use it."""
    with Ariane(tmp_path_factory.mktemp("up")).start() as server:
        yield server


def ariane(*words: object, namesrv: str = "", code: int = 0, stdin: bytes = b"") -> str:
    """What the command prints; it must leave with `code`."""
    ended = subprocess.run(
        [str(ARIANE), *map(str, words)],
        input=stdin,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "ARIANE_NAMESRV": namesrv},
    )
    said = ended.stdout.decode() if code == 0 else ended.stderr.decode()
    assert ended.returncode == code, (words, ended.returncode, ended.stdout, ended.stderr)
    refuse_tracebacks(ended.stderr, by=words)
    return said


def read_json(*words: object, namesrv: str) -> Any:
    return json.loads(ariane(*words, "--output", "json", namesrv=namesrv))


@pytest.fixture(autouse=True)
def _signals_are_heard() -> Iterator[None]:
    """By processes that a test starts, though we may ignore them: `nohup make test &`."""
    ignored = [n for n in (signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_up_says_it_is_ready_and_stops_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with Ariane(tmp_path).start() as server:
        process = server.broker_process
        lines = (tmp_path / "ariane.out").read_text().splitlines()
        ready = next(number for number, line in enumerate(lines) if line.startswith("ready "))
        assert lines[ready] == (
            f"ready namesrv={server.namesrv_address} broker={server.broker[0]}:{server.broker[1]}"
        )
        wait_until(lambda: "Ctrl-C" in (tmp_path / "ariane.out").read_text(), "the commands to try")
        printed = (tmp_path / "ariane.out").read_text().splitlines()
        tried = printed[printed.index("try:") + 1 : -1]
        assert len(tried) == 3
        subprocess.run(tried[0], shell=True, check=True, timeout=60)  # works as it is printed
        assert all(server.namesrv_address in line for line in tried)
        assert (tmp_path / "store" / "commitlog").is_dir()
        process.send_signal(number)
        assert process.wait(30) == 0
        assert not (tmp_path / "store" / "abort").exists()  # it was a clean stop


@pytest.mark.parametrize("how", ["a pipe that nobody reads", "closed"])
def test_up_goes_on_when_nobody_hears_it(tmp_path: Path, how: str) -> None:
    port = free_port()
    words = [ARIANE, "up", "--data", tmp_path, "--namesrv-port", port, "--broker-port", 0]
    command = list(map(str, words))
    if how == "closed":
        command = ["sh", "-c", 'exec "$0" "$@" >&-', *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    try:
        create = [str(ARIANE), "topic", "create", "unheard", "--namesrv", f"127.0.0.1:{port}"]
        wait_until(
            lambda: subprocess.run(create, capture_output=True, check=False).returncode == 0,
            "a topic to be created",
        )
        process.terminate()
        _, said = process.communicate(timeout=30)
        assert (process.returncode, said) == (0, b"")
    finally:
        process.kill()
        process.wait()


def test_topics(server: Ariane) -> None:
    at = server.namesrv_address
    assert "2 queues on broker-a" in ariane("topic", "create", "t1", "--queues", 2, namesrv=at)
    assert "t1" in read_json("topic", "list", namesrv=at)
    assert "t1" in ariane("topic", "list", namesrv=at).splitlines()
    assert "TBW102" not in ariane("topic", "list", namesrv=at)
    assert "TBW102" in ariane("topic", "list", "--all", namesrv=at)
    shown = read_json("topic", "show", "t1", namesrv=at)
    assert [(queue["queue_id"], queue["max_offset"]) for queue in shown] == [(0, 0), (1, 0)]
    assert ariane("topic", "show", "t1", namesrv=at).startswith("BROKER")
    ariane("topic", "delete", "t1", "--yes", namesrv=at)
    assert "t1" not in read_json("topic", "list", namesrv=at)
    assert "ariane topic create t1" in ariane("topic", "show", "t1", namesrv=at, code=1)


def test_a_message_there_and_back(server: Ariane) -> None:
    at = server.namesrv_address
    ariane("topic", "create", "t2", namesrv=at)
    sent = read_json(
        "send", "t2", "grüße", "--tags", "A", "--key", "k1", "--property", "a=b", namesrv=at
    )
    assert sent["status"] == "SEND_OK"
    message = read_json("message", "get", sent["offset_message_id"], namesrv=at)
    assert (message["body"], message["tags"], message["keys"]) == ("grüße", "A", ["k1"])
    assert message["properties"]["a"] == "b"
    again = read_json("message", "get", sent["message_id"], "--topic", "t2", namesrv=at)
    assert again == message
    assert read_json("message", "find", "t2", "k1", namesrv=at) == [message]
    assert "grüße" in ariane("message", "find", "t2", "k1", namesrv=at)
    assert read_json("message", "find", "t2", "none", namesrv=at) == []


def test_words_that_are_not_text(server: Ariane) -> None:
    at = server.namesrv_address
    sent = read_json("send", "t_bytes", os.fsdecode(b"\xff\xfe"), namesrv=at)
    assert read_json("message", "get", sent["offset_message_id"], namesrv=at)["body_base64"]
    assert "None" not in ariane("message", "get", sent["offset_message_id"], namesrv=at)
    assert "Unicode" in ariane(
        "send", "t_bytes", "x", "--key", os.fsdecode(b"\xff"), namesrv=at, code=1
    )


def test_a_message_id_without_its_topic_is_told_from_an_offset_id(server: Ariane) -> None:
    at = server.namesrv_address
    sent = read_json("send", "t_ids", "x", namesrv=at)
    assert "add --topic" in ariane("message", "get", sent["message_id"], namesrv=at, code=1)


def test_tail_says_once_that_a_broker_is_gone_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    with Ariane(tmp_path / "up").start() as server:
        at = server.namesrv_address
        ariane("topic", "create", "t_back", "--queues", 2, namesrv=at)
        ariane("send", "t_back", "before", "--count", 2, namesrv=at)  # one in each queue
        with (tmp_path / "errors").open("w") as errors:
            tail = subprocess.Popen(
                [ARIANE, "tail", "t_back", "--from-start", "--count", "3", "--namesrv", at],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert tail.stdout is not None
        try:
            for _ in range(2):
                assert tail.stdout.readline().rstrip().endswith("before")
            server.kill()
            wait_until((tmp_path / "errors").read_text, "the warning")
            ports = {"namesrv_port": server.namesrv[1], "broker_port": server.broker[1]}
            output = server.launch({}, **ports)
            wait_until(lambda: server.is_ready(output), "the broker to be back")
            ariane("send", "t_back", "after", namesrv=at)
            assert tail.stdout.readline().rstrip().endswith("after")
            (warning,) = (tmp_path / "errors").read_text().splitlines()
            assert "broker-a" in warning
            assert "trying again" in warning
        finally:
            tail.kill()
            tail.wait()
            tail.stdout.close()


def test_tail_ends_when_nobody_reads_it(server: Ariane) -> None:
    at = server.namesrv_address
    ariane("send", "t_unread", "grüße", namesrv=at)
    process = subprocess.Popen(
        [str(ARIANE), "tail", "t_unread", "--from-start", "--namesrv", at],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},  # a terminal that lacks the letters
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().endswith(b"gr\\xfc\\xdfe\n")
        process.stdout.close()
        _, said = process.communicate(timeout=30)  # though no further message comes
        assert (process.returncode, said) == (1, b"")
    finally:
        process.kill()
        process.wait()


def test_only_what_was_given_up_is_resumed(server: Ariane) -> None:
    at = server.namesrv_address
    ariane("topic", "create", "t_resume", "--queues", 1, namesrv=at)
    sent = read_json("send", "t_resume", "hello", namesrv=at)
    said = ariane("message", "resume", sent["offset_message_id"], namesrv=at, code=1)
    assert "TRANS_CHECK_MAX_TIME_TOPIC" in said


def test_what_became_of_a_message(server: Ariane) -> None:
    at = server.namesrv_address
    ariane("topic", "create", "t_track", "--queues", 1, namesrv=at)
    sent = read_json("send", "t_track", "hello", namesrv=at)
    assert read_json("message", "track", sent["offset_message_id"], namesrv=at) == []
    with Wire(server.broker) as wire:
        wire.create_group("was_here")
        wire.commit("was_here", "t_track", 0, 1)
    expected = {"group": "was_here", "status": "NOT_ONLINE", "is_passed": True, "detail": ""}
    topic = ["--topic", "t_track"]
    assert read_json("message", "track", sent["message_id"], *topic, namesrv=at) == [expected]
    assert "NOT_ONLINE" in ariane("message", "track", sent["message_id"], *topic, namesrv=at)


def test_a_body_from_standard_input_is_sent_as_it_is(server: Ariane) -> None:
    at = server.namesrv_address
    body = bytes(range(256)) * 64
    sent = json.loads(ariane("send", "t3", "--output", "json", namesrv=at, stdin=body))
    message = read_json("message", "get", sent["offset_message_id"], namesrv=at)
    assert "body_base64" in message


def test_tail_prints_what_is_there_and_what_arrives(server: Ariane) -> None:
    at = server.namesrv_address
    ariane("topic", "create", "t4", namesrv=at)
    ariane("send", "t4", "first", namesrv=at)
    tail = subprocess.Popen(
        [ARIANE, "tail", "t4", "--from-start", "--count", "2", "--namesrv", at],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert tail.stdout is not None
    try:
        assert tail.stdout.readline().rstrip().endswith("first")
        ariane("send", "t4", "second", "--tags", "B", namesrv=at)
        assert tail.stdout.readline().rstrip().endswith("#B  second")
        assert tail.wait(30) == 0
    finally:
        tail.kill()
        tail.wait()
        tail.stdout.close()
    only = ariane("tail", "t4", "--since", "1h", "--tags", "B", "--count", 1, namesrv=at)
    assert only.rstrip().endswith("second")


def test_tail_ends_with_ctrl_c(server: Ariane) -> None:
    ariane("send", "t5", "x", namesrv=server.namesrv_address)
    tail = subprocess.Popen(
        [ARIANE, "tail", "t5", "--from-start", "--namesrv", server.namesrv_address],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tail.stdout is not None
    assert tail.stdout.readline().rstrip().endswith("x")
    tail.send_signal(signal.SIGINT)
    _, complaints = tail.communicate(timeout=30)
    assert (tail.returncode, complaints) == (0, "")


@pytest.mark.parametrize(
    "words",
    [
        ("send", "--size", 128, "--connections", 2, "--in-flight", 8),
        ("send", "--rate", 200),
        ("send", "--batch", 16, "--size", 64),
        ("pull",),
        ("e2e", "--rate", 200),
    ],
)
def test_bench_reports_what_it_measured(server: Ariane, words: tuple[object, ...]) -> None:
    at = server.namesrv_address
    ariane("send", "ariane-bench", "something to read", namesrv=at)
    report = read_json("bench", *words, "--duration", 1, "--warm-up", 0, namesrv=at)
    assert report["case"] == words[0]
    assert report["messages"] > 0
    assert report["errors"] == {}
    assert 0 < report["latency_ms"]["p50"] <= report["latency_ms"]["max"]


def test_a_port_that_is_taken_is_named(server: Ariane, tmp_path: Path) -> None:
    port = server.namesrv[1]
    words = ["up", "--data", tmp_path, "--broker-port", 0, "--namesrv-port", port]
    complaint = ariane(*words, code=2)
    assert f"127.0.0.1:{port} is in use" in complaint
    assert "--namesrv-port" in complaint
    words = ["up", "--data", tmp_path, "--namesrv-port", 0, "--broker-port", server.broker[1]]
    assert "--broker-port" in ariane(*words, code=2)


def test_a_store_in_use_is_left_alone(server: Ariane) -> None:
    words = ["up", "--data", server.directory, "--namesrv-port", 0, "--broker-port", 0]
    complaint = ariane(*words, code=1)
    assert len(complaint.splitlines()) == 1
    assert "in use by a broker" in ariane("store", "check", server.store, code=2)


def test_nobody_listens_beyond_this_machine_unless_told(tmp_path: Path) -> None:
    assert "--insecure" in ariane("up", "--data", tmp_path, "--host", "0.0.0.0", code=2)


def test_store_check_tells_a_sound_store_from_a_damaged_one(tmp_path: Path) -> None:
    with Ariane(tmp_path).start() as server:
        for number in range(3):
            ariane("send", "t", f"message {number}", namesrv=server.namesrv_address)
        server.stop()
        assert "3 records" in ariane("store", "check", tmp_path)
        report = json.loads(ariane("store", "check", server.store, "--output", "json"))
        assert (report["record_count"], report["problems"]) == (3, [])
        (segment,) = (server.store / "commitlog").iterdir()
        with segment.open("r+b") as file:
            found = file.read(4096).index(b"message 1")
            file.seek(found)
            file.write(b"M")
        assert "damaged" in ariane("store", "check", server.store, code=1)


def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    with Ariane(tmp_path).start() as server:
        sent = read_json("send", "t", "kept", "--key", "k", namesrv=server.namesrv_address)
        server.stop()
        server.start()
        (found,) = read_json("message", "find", "t", "k", namesrv=server.namesrv_address)
        assert (found["body"], found["message_id"]) == ("kept", sent["message_id"])


class Parts(Server):
    """A name server and brokers, each a process of its own."""

    def start_name_server(self) -> None:
        output = self.spawn("namesrv", [ARIANE, "namesrv", "--port", "0", "--data", "."])
        self.namesrv = self._ready(output)

    def start_broker(self, name: str) -> str:
        settings = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": name,
            "listenPort": free_port(-2),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": self.directory / name,
            "flushDiskTyp": "SYNC_FLUSH",  # misspelled
        }
        path = self.directory / f"{name}.conf"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        output = self.spawn(name, [ARIANE, "broker", "-c", path])
        self.broker = self._ready(output)
        return output.read_text()

    def _ready(self, output: Path) -> tuple[str, int]:
        def ready() -> list[str]:
            self.check_running(output)
            lines = output.read_text().splitlines()
            return [line for line in lines if line.startswith("ready ")]

        wait_until(ready, f"{output.stem} to be ready")
        host, _, port = ready()[0].partition("=")[2].rpartition(":")
        return host, int(port)


def test_a_cluster_of_two_brokers_from_configuration_files(tmp_path: Path) -> None:
    with Parts(tmp_path) as parts:
        parts.start_name_server()
        assert "did you mean flushDiskType?" in parts.start_broker("broker-a")
        parts.start_broker("broker-b")
        at = parts.namesrv_address
        said = ariane("topic", "create", "t", "--queues", 2, namesrv=at)
        assert "broker-a, broker-b" in said
        receipts = read_json("send", "t", "x", "--count", 8, namesrv=at)
        assert {receipt["broker"] for receipt in receipts} == {"broker-a", "broker-b"}
        parts.processes[-1].kill()
        parts.processes[-1].wait()
        receipts = read_json("send", "t", "x", "--count", 4, namesrv=at)
        assert {receipt["broker"] for receipt in receipts} == {"broker-a"}
        assert (tmp_path / "broker-a" / "commitlog").is_dir()
