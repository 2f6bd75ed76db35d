"""A producer of transactions over one blocking socket: what it sends, decides and is asked."""

import contextlib
import json
import struct
import time
from dataclasses import dataclass

from tests.harness.wire import (
    Answer,
    Record,
    Wire,
    decode_records,
    frame,
    properties_of,
    send_header,
)

SEND_V2, HEARTBEAT, END, CHECK = 310, 34, 37, 39
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ONE_WAY = 2


@dataclass(frozen=True, slots=True)
class Half:
    """Where the producer was told its half message lies."""

    log_offset: int
    queue_offset: int
    key: str


@dataclass(frozen=True, slots=True)
class Check:
    """What a broker asked: about which half message, showing which record."""

    half: Half
    record: Record
    ext: dict[str, str]


class Producer(Wire):
    """A member of one producer group; `asked` holds the checks it has read but not looked at."""

    def __init__(self, address: tuple[str, int], group: str, *, timeout_s: float = 20) -> None:
        super().__init__(address, timeout_s=timeout_s)
        self.group = group
        self.asked: list[Check] = []

    def heartbeat(self) -> None:
        """Let the broker know that there is somebody to ask."""
        body = {
            "clientID": f"harness@{self.group}",
            "consumerDataSet": [],
            "producerDataSet": [{"groupName": self.group}],
        }
        self.call(HEARTBEAT, {}, json.dumps(body).encode())

    def begin(self, topic: str, queue_id: int, body: bytes, *, key: str, **more: str) -> Half:
        """Send a half message."""
        properties = properties_of(
            UNIQ_KEY=key,
            KEYS=key,
            TAGS="T",
            WAIT="true",
            TRAN_MSG="true",
            PGROUP=self.group,
            **more,
        )
        header = send_header(topic, queue_id, key=key, tag="T") | {
            "a": self.group,
            "f": "4",
            "g": str(time.time_ns() // 1_000_000),
            "i": properties,
        }
        answer = self.call(SEND_V2, header, body)
        return Half(int(answer.ext["msgId"][-16:], 16), int(answer.ext["queueOffset"]), key)

    def end(self, half: Half, decision: int, *, answers_check: bool = False) -> Answer:
        """Decide about a half message and wait for the answer."""
        return self.call(END, self._decision(half, decision, answers_check), check=False)

    def end_one_way(self, half: Half, decision: int, *, answers_check: bool = False) -> None:
        """Decide about a half message as clients do, without an answer."""
        ext = self._decision(half, decision, answers_check)
        self.socket.sendall(frame(END, ext, flag=ONE_WAY))

    def checks(self, *, seconds: float, count: int = 1) -> list[Check]:
        """What was asked, as soon as there are so many, or when the time is up."""
        deadline = time.monotonic() + seconds
        while len(self.asked) < count and (left := deadline - time.monotonic()) > 0:
            before = self.socket.gettimeout()
            self.socket.settimeout(left)
            with contextlib.suppress(TimeoutError):
                self._read_frame()
            self.socket.settimeout(before)
        taken, self.asked = self.asked, []
        return taken

    def read(self) -> Answer:
        """The next response; checks that come before it are kept."""
        while (answer := self._read_frame()) is None:
            pass
        return answer

    def _read_frame(self) -> Answer | None:
        (size,) = struct.unpack(">i", self._peek(4)[:4])
        data = self._peek(4 + size)[4:]
        self._take(4 + size)
        length = struct.unpack_from(">i", data)[0] & 0xFFFFFF
        head = json.loads(data[4 : 4 + length])
        ext, body = head.get("extFields") or {}, data[4 + length :]
        if head["flag"] & 1:
            return Answer(head["code"], ext, body, head.get("remark") or "", head["opaque"])
        if head["code"] == CHECK:
            half = Half(int(ext["commitLogOffset"]), int(ext["tranStateTableOffset"]), ext["msgId"])
            (record,) = decode_records(body)
            self.asked.append(Check(half, record, ext))
        return None

    def _peek(self, count: int) -> bytes:
        """The next bytes without taking them, so that a time-out loses nothing."""
        taken = self._take(count)
        self._input[:0] = taken
        return taken

    def _decision(self, half: Half, decision: int, answers_check: bool) -> dict[str, str]:
        return {
            "producerGroup": self.group,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.log_offset),
            "commitOrRollback": str(decision),
            "fromTransactionCheck": str(answers_check).lower(),
            "msgId": half.key,
            "transactionId": half.key,
        }
