"""Kills, power cuts and other brokers' notes: nothing acknowledged comes back, nothing is lost."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import msgspec
import pytest

from ariane.broker.pop import returning, revive, service
from ariane.broker.pop.journal import GROUP
from ariane.disk import CrashMode
from ariane.errors import StoreError
from ariane.protocol.message import StoredMessage
from ariane.store.messages import NewMessage
from ariane.topics import revive_topic_of
from tests.unit.broker.pop.popping import Popping, bodies
from tests.unit.broker.pop.test_pop import AFTER_S, RETRY, renewed
from tests.unit.broker.rig import SMALL_STORE

REVIVE = revive_topic_of("DefaultCluster")


@pytest.fixture
def broker() -> Popping:
    return Popping()


def notes(broker: Popping) -> list[StoredMessage]:
    return [note for queue_id in range(8) for note in broker.stored(REVIVE, queue_id)]


def test_what_is_out_stays_out_and_comes_back_in_time(broker: Popping) -> None:
    broker.fill(6)
    lent = broker.pop(maxMsgNums=4)
    broker.ack(lent[0])
    broker.clock.advance(4)
    after = broker.killed()
    rest = after.pop()
    assert len(rest) == 2  # only what nobody had popped
    assert not set(bodies(rest)) & set(bodies(lent))
    after.ack(lent[1])
    after.clock.advance(AFTER_S - 4)
    assert sorted(bodies(after.pop())) == sorted(bodies(lent[2:]))


@pytest.mark.parametrize("saves", ["never", "before the pop", "before the acks", "at the end"])
def test_acknowledged_is_acknowledged_whatever_was_saved(broker: Popping, saves: str) -> None:
    broker.fill(8)
    if saves == "before the pop":
        broker.save()
    lent = broker.pop()
    if saves == "before the acks":
        broker.save()
    for each in lent:
        broker.ack(each)
    if saves == "at the end":
        broker.save()
    after = broker.killed()
    assert after.pop() == []
    after.clock.advance(AFTER_S)
    assert after.pop() == []
    assert after.stored(RETRY) == []


def test_many_kills(broker: Popping) -> None:
    sent = broker.fill(30)
    acked: list[bytes] = []
    for round_number in range(60):
        lent = broker.pop(maxMsgNums=4)
        for each in lent[::2]:
            broker.ack(each)
            acked.append(each.body)
        if round_number % 3 == 0:
            broker.save()
        broker.clock.advance(4)
        broker = broker.killed()
        if len(acked) == len(sent):
            break
    assert sorted(acked) == sorted(sent)  # each of them once


def test_a_changed_time_survives_and_only_the_new_handle_counts(broker: Popping) -> None:
    broker.fill(2)
    one, two = broker.pop()
    new_one = renewed(one, broker.change(one, 60_000))
    broker.change(two, 60_000)
    after = broker.killed()
    after.clock.advance(AFTER_S)
    assert after.pop() == []  # the old times are not up, they are gone
    after.ack(new_one)
    after.clock.advance(60)
    assert bodies(after.pop()) == [two.body]


def test_a_change_is_one_note_so_no_kill_can_halve_it(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop()
    journal = broker.state.pop.journal
    append, count = journal.append, 0

    def failing(*arguments: object) -> object:
        nonlocal count
        count += 1
        if count > 1:
            raise StoreError("killed here")
        return append(*arguments)  # type: ignore[arg-type]

    journal.append = failing  # type: ignore[assignment,method-assign]
    assert broker.change(message, 60_000).code != 0
    after = broker.killed()
    after.clock.advance(AFTER_S)
    assert after.pop() == []
    after.clock.advance(60)
    assert len(after.pop()) == 1
    assert after.pop() == []


def test_a_kill_between_giving_back_and_its_note_gives_nothing_twice(broker: Popping) -> None:
    broker.fill(8)
    broker.pop(queueId=0)
    journal = broker.state.pop.journal

    def failing(*arguments: object) -> object:
        raise StoreError("killed here")

    journal.append = failing  # type: ignore[assignment,method-assign]
    broker.clock.advance(AFTER_S)
    assert len(broker.stored(RETRY)) == 4
    after = broker.killed()
    after.clock.advance(AFTER_S)
    assert len(after.stored(RETRY)) == 4
    assert len(after.pop()) == 8


def test_a_kill_in_the_middle_of_giving_back_gives_the_rest(broker: Popping) -> None:
    broker.fill(8)
    broker.pop(queueId=0)
    store = broker.state.store
    append, count = store.append, 0

    def failing(message: NewMessage) -> object:
        nonlocal count
        count += 1
        if count > 2:
            raise StoreError("killed here")
        return append(message)

    store.append = failing  # type: ignore[assignment,method-assign]
    broker.clock.advance(AFTER_S)
    assert len(broker.stored(RETRY)) == 2
    after = broker.killed()
    after.clock.advance(AFTER_S)
    assert sorted(message.stored_body for message in after.stored(RETRY)) == [
        b"m0",
        b"m2",
        b"m4",
        b"m6",
    ]


def test_what_cannot_be_given_back_now_is_given_back_later(broker: Popping) -> None:
    broker.fill(3)
    broker.pop()
    store = broker.state.store
    append = store.append

    def failing(message: NewMessage) -> object:
        raise StoreError("no room")

    store.append = failing  # type: ignore[assignment,method-assign]
    broker.clock.advance(AFTER_S + 15)
    assert broker.stored(RETRY) == []
    store.append = append  # type: ignore[method-assign]
    broker.clock.advance(60)
    assert len(broker.stored(RETRY)) == 3


def returned(broker: Popping) -> set[bytes]:
    return {message.stored_body for message in broker.stored(RETRY)}


@pytest.mark.provokes("pop revived later")
def test_an_exception_nobody_foresaw_holds_up_one_checkpoint_for_a_while(
    broker: Popping, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.fill(4)
    broker.pop()
    assert len(broker.state.pop.checkpoints) == 2
    with monkeypatch.context() as patch:

        def revived_or_not(message: StoredMessage, *arguments: Any) -> NewMessage:
            if message.stored_body == b"m0":
                raise KeyError("nobody foresaw")
            return revive.revived(message, *arguments)

        patch.setattr(returning, "revived", revived_or_not)
        broker.clock.advance(AFTER_S)
        assert returned(broker) == {b"m1", b"m3"}
    broker.clock.advance(60)
    assert returned(broker) == {b"m0", b"m1", b"m2", b"m3"}


def test_a_full_disk_is_waited_for(broker: Popping) -> None:
    broker.fill(3)
    broker.pop()
    broker.state.store.disk_full_reason = "full"
    broker.clock.advance(AFTER_S + 15)
    assert len(broker.state.pop.checkpoints) == 2
    broker.state.store.disk_full_reason = None
    broker.clock.advance(1)
    assert len(broker.pop()) == 3


def test_nothing_is_lent_that_cannot_be_noted(broker: Popping) -> None:
    broker.fill(3)
    broker.state.store.disk_full_reason = "full"
    answer = broker.pop_command()
    assert answer is not None
    assert answer.code == 14
    broker.state.store.disk_full_reason = None
    assert len(broker.pop()) == 3


@pytest.mark.parametrize("mode", [CrashMode.DROP, CrashMode.MIXED])
def test_a_power_cut_loses_no_message_that_was_on_the_platter(mode: CrashMode) -> None:
    for seed in range(10):
        broker = Popping()
        sent = broker.fill(6)
        broker.state.store.flush()
        broker.state.store.checkpoint()
        broker.save()
        lent = broker.pop(maxMsgNums=4)
        for each in lent[:2]:
            broker.ack(each)
        broker.state.pop.save()
        broker.state.offsets.save()  # waits for the log: offsets without notes would lose the pop
        broker.pop()
        disk = broker.disk.crash_image(Random(seed), mode)
        after = Popping(disk=disk, wall_ms=broker.clock.wall_ms())
        after.clock.advance(AFTER_S)
        found: list[bytes] = []
        while popped := after.pop():
            found += bodies(popped)
        assert set(found) >= set(sent) - set(bodies(lent[:2])), seed


def test_with_synchronous_flush_an_acknowledgement_is_answered_when_it_is_safe() -> None:
    config = msgspec.structs.replace(SMALL_STORE, flush_mode="SYNC_FLUSH")
    broker = Popping(store_config=config)
    broker.fill(2)
    lent = broker.pop()
    for each in lent:
        assert broker.ack(each).code == 0
    disk = broker.disk.crash_image(Random(3), CrashMode.DROP)
    after = Popping(store_config=config, disk=disk)
    after.clock.advance(AFTER_S)
    assert after.pop() == []


# The journal's length.


def test_the_journal_is_read_from_the_oldest_note_needed(broker: Popping) -> None:
    broker.fill(4, queues=1)
    (kept,) = broker.pop(maxMsgNums=1, invisibleTime=3_600_000)
    for _ in range(3):
        for each in broker.pop(maxMsgNums=1):
            broker.ack(each)
    broker.save()
    done = broker.state.offsets.progress(REVIVE, GROUP)
    assert done == {0: -1, 1: 1, 2: 1, 3: 1}  # the last note done with, as Apache counts
    broker.ack(kept)
    broker.save()
    assert broker.state.offsets.progress(REVIVE, GROUP)[0] == 1


def test_notes_that_lag_far_behind_are_written_anew(
    broker: Popping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LAG_MAX", 20)
    broker.fill(200, queues=1)
    kept = broker.pop(maxMsgNums=3, invisibleTime=3_600_000)
    broker.ack(kept[0])
    for n in range(190):
        broker.clock.advance(0.001)
        for each in broker.pop(maxMsgNums=1):
            broker.ack(each)
        if n % 20 == 0:
            broker.clock.advance(1)
    broker.save()
    done = broker.state.offsets.progress(REVIVE, GROUP)
    lags = [broker.state.pop.journal.end(q) - done[q] for q in range(8)]
    assert max(lags) <= 25
    after = broker.killed()
    assert after.state.offsets.get("T", "g", 0) == 193  # an old note anew moves nobody
    after.ack(kept[1])
    after.clock.advance(3_600)
    assert [each.body for each in after.pop() if each.mark == "1"] == [kept[2].body]


def test_notes_are_written_anew_before_retention_takes_them(broker: Popping) -> None:
    broker.fill(1)
    (message,) = broker.pop(invisibleTime=2 * 3_600_000)
    count = len(notes(broker))
    broker.clock.advance(3_000)
    assert len(notes(broker)) == count
    broker.clock.advance(3_700)
    assert len(notes(broker)) > count
    assert len(notes(broker)) <= count + 2
    after = broker.killed()
    after.ack(message)
    after.clock.advance(2 * 3_600)
    assert after.pop() == []


@pytest.mark.parametrize("closes", ["acknowledged", "given back"])
def test_an_acknowledgement_said_again_is_not_noted_again(broker: Popping, closes: str) -> None:
    broker.fill(2)
    lent = broker.pop(invisibleTime=3_600_000)
    if closes == "given back":
        broker.clock.advance(3_601)
    for _ in range(2):
        assert {broker.ack(each).code for each in lent} == {0}
    assert broker.batch_ack(lent).code == 0
    broker.save()
    done = broker.state.offsets.progress(REVIVE, GROUP)
    ends = [broker.state.pop.journal.end(queue_id) for queue_id in done]
    assert [queue_offset + 1 for queue_offset in done.values()] == ends  # nothing to read again
    assert len(notes(broker)) == 4  # two queues, each with what was lent and that it is settled


def test_memory_does_not_grow_with_what_is_done(broker: Popping) -> None:
    broker.fill(600)
    pop = broker.state.pop
    for _ in range(100):
        for each in broker.pop(maxMsgNums=6, invisibleTime=3_600_000):
            broker.ack(each)
        broker.clock.advance(1)
    assert (len(pop.checkpoints), len(pop._schedule)) == (0, 0)


# Notes of others.


def note_by_apache(broker: Popping, tag: str, body: dict[str, object], queue_id: int = 3) -> None:
    """Apache's timer delivers a note it was given by Apache's broker."""
    due_ms = broker.clock.wall_ms()
    broker.state.store.append(
        NewMessage(
            topic=REVIVE,
            queue_id=queue_id,
            body=json.dumps(body).encode(),
            properties=b"TAGS\x01%b\x02TIMER_DELIVER_MS\x01%d\x02" % (tag.encode(), due_ms),
            born_host=("127.0.0.1", 1),
            born_at_ms=1,
        )
    )


def apaches(broker: Popping, age_ms: int = 9_000, **fields: object) -> dict[str, object]:
    return {
        "bm": 0, "bn": "broker-a", "c": "g", "d": [0, 1, 2], "it": INVISIBLE, "n": 3,
        "pt": broker.clock.wall_ms() - age_ms, "q": 0, "ro": 0, "so": 0, "t": "T",
    } | fields  # fmt: skip


INVISIBLE = 10_000


def test_apaches_checkpoint_is_taken_over_when_the_timer_brings_it(broker: Popping) -> None:
    broker.fill(6)
    broker.state.offsets.commit("T", "g", 0, 3)
    broker.state.offsets.commit("T", "g", 1, 3)
    ck = apaches(broker)
    note_by_apache(broker, "ck", ck)
    ack = {key: ck[key] for key in ("bn", "c", "pt", "q", "so", "t")}
    note_by_apache(broker, "ack", ack | {"ao": 1})
    broker.clock.advance(2)
    assert sorted(bodies(broker.pop())) == [b"m0", b"m4"]


def left_by_apache(broker: Popping) -> Popping:
    """Go on where Apache's broker has popped six messages, with its notes in its timer."""
    broker.fill(6)
    for queue_id in range(2):
        broker.state.offsets.commit("T", "g", queue_id, 3)
    broker.save()
    return broker.killed()


def ack_to_apache(broker: Popping, ck: dict[str, object]) -> None:
    """Acknowledge the second message of a checkpoint that is not here yet."""
    fields = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "offset": 1,
        "extraInfo": f"0 {ck['pt']} {ck['it']} 3 0 broker-a 0 1",
    }  # fmt: skip
    answer = broker.call(200051, fields)
    assert answer is not None
    assert answer.code == 0


def test_a_consumer_may_acknowledge_before_apaches_checkpoint_is_here(broker: Popping) -> None:
    broker = left_by_apache(broker)
    ck = apaches(broker, age_ms=1_000)
    ack_to_apache(broker, ck)
    ack_to_apache(broker, ck)
    assert len(notes(broker)) == 1
    broker.save()
    after = broker.killed()
    after.clock.advance(8)
    note_by_apache(after, "ck", ck)
    after.clock.advance(2)
    assert sorted(bodies(after.pop())) == [b"m0", b"m4"]


def test_acknowledgements_that_wait_for_apache_are_written_anew_too(broker: Popping) -> None:
    broker = left_by_apache(broker)
    ck = apaches(broker, age_ms=1_000, it=3 * 3_600_000)
    ack_to_apache(broker, ck)
    broker.clock.advance(2 * 3_600)
    broker.save()
    assert broker.state.offsets.progress(REVIVE, GROUP)[3] >= 0  # the first is done with
    after = broker.killed()
    note_by_apache(after, "ck", ck)
    after.clock.advance(3_600)
    assert sorted(bodies(after.pop())) == [b"m0", b"m4"]


def test_notes_nobody_understands_stop_nothing(broker: Popping) -> None:
    for tag, body in (("ck", {"t": 5}), ("ack", {}), ("else", {}), ("order", {"info": []})):
        note_by_apache(broker, tag, body)
    broker.fill(2)
    broker.clock.advance(1)
    assert len(broker.pop()) == 2
    after = broker.killed()
    after.clock.advance(AFTER_S)
    assert len(after.pop()) == 2


def test_a_foreign_note_moves_no_group(broker: Popping) -> None:
    broker.fill(6)
    for each in broker.pop():
        broker.ack(each)
    note_by_apache(broker, "ck", apaches(broker))
    after = broker.killed()
    assert after.state.offsets.get("T", "g", 0) == 3


def test_a_reset_that_was_saved_is_not_undone_by_older_notes(broker: Popping) -> None:
    broker.fill(6)
    for each in broker.pop():
        broker.ack(each)
    broker.state.offsets.reset("T", "g", {0: 1, 1: 2})
    broker.save()
    after = broker.killed()
    assert len(after.pop()) == 3
    again = after.killed()
    assert again.pop() == []


def test_every_queue_of_apaches_revive_topic_is_read(broker: Popping) -> None:
    broker.fill(6)
    for queue_id in range(2):
        broker.state.offsets.commit("T", "g", queue_id, 3)
    broker.topic(REVIVE, 16)  # as an Apache broker with reviveQueueNum=16 leaves it
    note_by_apache(broker, "ck", apaches(broker), queue_id=12)
    broker.save()
    after = broker.killed()
    after.clock.advance(2)
    assert sorted(bodies(after.pop())) == [b"m0", b"m2", b"m4"]


def test_a_message_that_is_not_utf8_is_given_back_byte_for_byte(broker: Popping) -> None:
    broker.send_raw(b"x", b"TAGS\x01\xd6\xd0\x02")  # GBK, from a producer in C++
    assert bodies(broker.pop()) == [b"x"]
    broker.clock.advance(AFTER_S)
    (again,) = broker.pop()
    assert (again.body, again.mark) == (b"x", "1")
    record = broker.state.store.record_at(again.message.log_offset)
    assert record is not None and b"TAGS\x01\xd6\xd0\x02" in record
