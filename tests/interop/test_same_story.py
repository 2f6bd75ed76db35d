"""One story, told to Apache's broker and to ours over the bare protocol: both keep the same.

Each chapter sends requests and gives what it saw: records with their properties, answers with their
fields, and the topics that came to be. Times, places and ids differ and are struck out.
"""

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.harness.apache import Apache
from tests.harness.processes import Ariane, Server, wait_until
from tests.harness.wire import Answer, Record, Wire, decode_records, properties_of, send_header
from tests.interop.messaging import APACHE_SETTINGS, SETTINGS

pytestmark = pytest.mark.interop

SEND_BACK, END_TRANSACTION, QUERY_TOPIC = 36, 37, 351
POP, ACK, CHANGE_INVISIBLE, RECALL = 200050, 200051, 200053, 370
# Properties whose values are times, places or ids.
STRUCK_OUT = re.compile(
    r"UNIQ_KEY|ORIGIN_MESSAGE_ID|.*_MS|POP_CK|1ST_POP_TIME|__transactionId__|TRAN_PREPARED_.*"
)
TOPIC, GROUP = "Same", "same-group"


@dataclass
class Teller:
    """A connection, and the helpers chapters need."""

    wire: Wire

    def send(self, topic: str = TOPIC, **properties: str) -> Answer:
        """One send, whatever comes of it."""
        header = send_header(topic, 0, key="", tag="")
        text = properties_of(UNIQ_KEY="7F000001" + "0" * 24, **properties)
        flag = "4" if "TRAN_MSG" in properties else "0"
        fields = {"i": text, "f": flag, "a": "same-producers"}
        return self.wire.call(310, {**header, **fields}, b"body", check=False)

    def end(self, topic: str = TOPIC, queue_id: int = 0) -> int:
        return self.wire.max_offset(topic, queue_id)

    def last(self, topic: str = TOPIC, *, after: int = 0, queue_id: int = 0) -> Record:
        """The newest record of a queue, once there is one beyond `after`."""
        wait_until(lambda: self.end(topic, queue_id) > after, f"a record in {topic}")
        return self.wire.pull(topic, queue_id, self.end(topic, queue_id) - 1)[-1]

    def topic(self, name: str) -> object:
        """A topic's configuration, once there is one."""
        answer = self.wire.call(QUERY_TOPIC, {"topic": name}, check=False)
        if answer.code != 0:
            return answer.code
        config = json.loads(answer.body)
        keys = ("perm", "readQueueNums", "writeQueueNums", "order", "attributes")
        return {key: config.get(key) for key in keys}


def told(record: Record) -> dict[str, object]:
    """A record without what differs from run to run."""
    properties = {
        name: "..." if STRUCK_OUT.fullmatch(name) else value
        for name, value in record.properties.items()
    }
    return {
        "topic": record.topic,
        "queue": record.queue_id,
        "body": record.body,
        "flags": record.system_flag,
        "tries": record.reconsume_times,
        "is prepared": record.prepared_offset != 0,
        "properties": properties,
    }


def heard(answer: Answer) -> dict[str, object]:
    """An answer: its code, and which fields it has."""
    return {"code": answer.code, "fields": sorted(answer.ext)}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def plain(tell: Teller) -> object:
    before = tell.end()
    answer = tell.send(KEYS="k1 k2", TAGS="T", colour="blue")
    return heard(answer), told(tell.last(after=before))


def delayed(tell: Teller) -> object:
    before = tell.end()
    answer = tell.send(DELAY="1", TAGS="T")
    return heard(answer), told(tell.last(after=before))


def timed(tell: Teller) -> object:
    seen: list[object] = []
    for name, value in {
        "TIMER_DELAY_MS": "1500",
        "TIMER_DELAY_SEC": "1",
        "TIMER_DELIVER_MS": str(now_ms() + 5000),
    }.items():
        before = tell.end()
        seen += [heard(tell.send(**{name: value}, TAGS="T")), told(tell.last(after=before))]
    return seen


def timed_in_the_past(tell: Teller) -> object:
    before = tell.end()
    answer = tell.send(TIMER_DELIVER_MS="1000000", TAGS="T")
    return heard(answer), told(tell.last(after=before))


def committed(tell: Teller) -> object:
    before = tell.end()
    answer = tell.send(TRAN_MSG="true", PGROUP="same-producers", TAGS="T")
    assert answer.code == 0, answer
    end = {
        "producerGroup": "same-producers", "topic": TOPIC, "msgId": "7F000001" + "0" * 24,
        "tranStateTableOffset": answer.ext["queueOffset"],
        "commitLogOffset": str(int(answer.ext["msgId"][16:], 16)),
        "commitOrRollback": "8", "fromTransactionCheck": "false",
    }  # fmt: skip
    ended = tell.wire.call(END_TRANSACTION, end, check=False)
    return heard(answer), heard(ended), told(tell.last(after=before))


def ended_wrongly(tell: Teller) -> object:
    end = {
        "producerGroup": "others", "topic": TOPIC, "msgId": "X", "tranStateTableOffset": "0",
        "commitLogOffset": "0", "commitOrRollback": "8", "fromTransactionCheck": "false",
    }  # fmt: skip
    return tell.wire.call(END_TRANSACTION, end, check=False).code


def sent_back(tell: Teller) -> object:
    retry, before = f"%RETRY%{GROUP}", tell.end()
    tell.send(KEYS="k", TAGS="T", colour="blue")
    record, seen = tell.last(after=before), []
    for tries in range(2):
        before = tell.end(retry)
        header = {
            "group": GROUP, "offset": str(record.log_offset), "delayLevel": "1",
            "originMsgId": "ORIGIN", "originTopic": TOPIC, "maxReconsumeTimes": "16",
        }  # fmt: skip
        seen.append(heard(tell.wire.call(SEND_BACK, header, check=False)))
        record = tell.last(retry, after=before)
        seen.append(told(record))
        assert record.reconsume_times == tries + 1
    header = {
        "group": GROUP, "offset": str(record.log_offset), "delayLevel": "1",
        "originMsgId": "ORIGIN", "originTopic": TOPIC, "maxReconsumeTimes": "2",
    }  # fmt: skip
    seen.append(heard(tell.wire.call(SEND_BACK, header, check=False)))
    [dead] = found_by_id(tell, f"%DLQ%{GROUP}")
    # Of the dead letters' topic the permission differs: 6 there since 5.0, 2 here as before that.
    return seen, told(dead), tell.topic(retry)


def found_by_id(tell: Teller, topic: str) -> list[Record]:
    fields = {
        "topic": topic, "key": "7F000001" + "0" * 24, "maxNum": "1", "beginTimestamp": "0",
        "endTimestamp": str(2**63 - 1), "_UNIQUE_KEY_QUERY": "true",
    }  # fmt: skip
    found: list[Record] = []

    def is_found() -> bool:
        answer = tell.wire.call(12, fields, check=False)
        found[:] = list(decode_records(answer.body))[:1] if answer.code == 0 else []
        return bool(found)

    wait_until(is_found, f"a message in {topic}")
    return found


def sent_back_wrongly(tell: Teller) -> object:
    missing = {"group": GROUP, "offset": "123456789012", "delayLevel": "0"}
    nobody = {"group": "bad name", "offset": "0", "delayLevel": "0"}
    return [tell.wire.call(SEND_BACK, fields, check=False).code for fields in (missing, nobody)]


def sent_again_by_the_client(tell: Teller) -> object:
    """What a client does when it cannot send back: a send to the retry topic."""
    seen: list[object] = []
    for tries, limit in ((1, "16"), (5, "3")):
        header = send_header(f"%RETRY%{GROUP}", 0, key="", tag="")
        text = properties_of(
            UNIQ_KEY="7F000002" + "0" * 24, RETRY_TOPIC=TOPIC, DELAY="1", TAGS="T",
            ORIGIN_MESSAGE_ID="ORIGIN",
        )  # fmt: skip
        fields = {"i": text, "j": str(tries), "l": limit, "a": "CLIENT_INNER_PRODUCER"}
        topic = f"%RETRY%{GROUP}" if tries == 1 else f"%DLQ%{GROUP}"
        before = tell.end(topic)
        answer = tell.wire.call(310, {**header, **fields}, b"again", check=False)
        seen += [heard(answer), told(tell.last(topic, after=before))]
    return seen


def popped(tell: Teller) -> object:
    tell.wire.create_topic("SamePop", 1)
    tell.send("SamePop", KEYS="k", TAGS="T", colour="blue")
    tell.send("SamePop", TAGS="T")
    tell.last("SamePop", after=1)  # Apache's broker shows both a little later
    first = pop(tell, count=2, invisible_ms=2000)
    handles = handles_of(tell, first)
    acked = tell.wire.call(ACK, handles[0], check=False)
    again: list[Answer] = []

    def comes_again() -> bool:
        again[:] = [pop(tell, count=2, invisible_ms=60_000)]
        return again[0].code == 0

    wait_until(comes_again, "what was not acknowledged")
    [record] = decode_records(again[0].body)
    [handle] = handles_of(tell, again[0])
    changed = tell.wire.call(CHANGE_INVISIBLE, {**handle, "invisibleTime": "30000"}, check=False)
    nothing = pop(tell, count=1, invisible_ms=1000)
    seen = [told(each) for each in decode_records(first.body)]
    stored = tell.last(f"%RETRY%{GROUP}_SamePop")
    return (
        heard(first), seen, heard(acked), heard(again[0]), told(record), heard(changed),
        heard(nothing), told(stored), tell.topic(f"%RETRY%{GROUP}_SamePop"),
    )  # fmt: skip


def pop(tell: Teller, *, count: int, invisible_ms: int) -> Answer:
    fields = {
        "consumerGroup": GROUP, "topic": "SamePop", "queueId": "-1", "maxMsgNums": str(count),
        "invisibleTime": str(invisible_ms), "pollTime": "0", "bornTime": str(now_ms()),
        "initMode": "0", "expType": "TAG", "exp": "*", "order": "false",
    }  # fmt: skip
    return tell.wire.call(POP, fields, check=False)


def handles_of(tell: Teller, answer: Answer) -> list[dict[str, str]]:
    """For each message that was popped, what names it in an acknowledgement."""
    ext = answer.ext
    starts = {
        tuple(part.split()[:2]): part.split()[2] for part in ext["startOffsetInfo"].split(";")
    }
    handles = []
    for record in decode_records(answer.body):
        own = record.properties.get("POP_CK")
        mark = own.split()[4] if own else "0"
        start = starts[mark, str(record.queue_id)]
        extra = own or " ".join(
            [
                start,
                ext["popTime"],
                ext["invisibleTime"],
                ext["reviveQid"],
                mark,
                "broker-a",
                str(record.queue_id),
                str(record.queue_offset),
            ]
        )
        topic = "SamePop" if mark == "0" else f"%RETRY%{GROUP}_SamePop"
        handles.append(
            {
                "consumerGroup": GROUP,
                "topic": topic,
                "queueId": str(record.queue_id),
                "offset": extra.split()[7],
                "extraInfo": extra,
            }
        )
    return handles


def batched(tell: Teller) -> object:
    before = tell.end()
    tell.wire.send_batch(TOPIC, 0, [b"one", b"two"], ["k1", "k2"])
    wait_until(lambda: tell.end() == before + 2, "the batch")
    return [told(record) for record in tell.wire.pull(TOPIC, 0, before)]


def refused(tell: Teller) -> object:
    """The codes of what no broker takes."""
    header = {**send_header(TOPIC, 0, key="", tag=""), "i": "", "m": "true"}
    batch = b"\0\0\0\x17" + bytes(12) + b"\0\0\0\x01x" + b"\0\0"
    return {
        "to the schedule": tell.send("SCHEDULE_TOPIC_XXXX").code,
        "to the half topic": tell.send("RMQ_SYS_TRANS_HALF_TOPIC").code,
        "a year": tell.send(TIMER_DELAY_SEC="31536000").code,
        "no number": tell.send(TIMER_DELAY_SEC="soon").code,
        "batch to retry": tell.wire.call(
            320, {**header, "b": f"%RETRY%{GROUP}"}, batch, check=False
        ).code,
        "no queue": tell.wire.call(
            310, {**send_header(TOPIC, 99, key="", tag="")}, b"x", check=False
        ).code,
        "bad handle": tell.wire.call(
            RECALL, {"topic": TOPIC, "recallHandle": "nonsense"}, check=False
        ).code,
    }


CHAPTERS: dict[str, Callable[[Teller], object]] = {
    "plain": plain,
    "delayed": delayed,
    "timed": timed,
    "timed in the past": timed_in_the_past,
    "committed": committed,
    "ended wrongly": ended_wrongly,
    "sent back": sent_back,
    "sent back wrongly": sent_back_wrongly,
    "sent again by the client": sent_again_by_the_client,
    "popped": popped,
    "batched": batched,
    "refused": refused,
}


def story_of(server: Server) -> dict[str, object]:
    """Every chapter, one after the other; of one that fails, its exception."""
    story: dict[str, object] = {}
    with Wire(server.broker) as wire:
        wire.create_topic(TOPIC, 1)
        wire.create_group(GROUP)
        for name, chapter in CHAPTERS.items():
            try:
                story[name] = chapter(Teller(wire))
            except Exception as error:
                story[name] = error
    return story


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, dict[str, object]]]:
    """The story as each broker has it."""
    home: Path = tmp_path_factory.mktemp("story")
    with (
        Ariane(home / "ariane").start(**SETTINGS) as ours,
        Apache(home / "apache").start(**SETTINGS, **APACHE_SETTINGS) as theirs,
        ThreadPoolExecutor(2) as tellers,
    ):
        first, second = tellers.submit(story_of, ours), tellers.submit(story_of, theirs)
        yield {"ariane": first.result(), "apache": second.result()}
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_chapter(chapter: str, stories: dict[str, dict[str, object]]) -> None:
    for teller in ("apache", "ariane"):
        told = stories[teller][chapter]
        if isinstance(told, Exception):
            raise AssertionError(f"{teller} could not tell it") from told
    assert stories["ariane"][chapter] == stories["apache"][chapter]
