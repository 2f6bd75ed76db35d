"""Messages sent back again and again against a count on paper: where they are, and who."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ariane.broker.retry import Return
from ariane.protocol.message import StoredMessage, decode_properties
from ariane.protocol.properties import encode_properties
from ariane.store.messages import NewMessage

OWN = {"RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "DELAY", "WAIT"}  # what a copy may say anew
texts = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=8)
names = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "DELAY", "WAIT", "REAL_TOPIC", "own", "é"])


def stored(message: NewMessage, log_offset: int) -> StoredMessage:
    """The message as the log would hold it."""
    return StoredMessage(
        topic=message.topic, queue_id=message.queue_id, queue_offset=0, log_offset=log_offset,
        size=1, flag=message.flag, system_flag=message.system_flag, body_crc32=0,
        born_at_ms=message.born_at_ms, born_host=message.born_host, stored_at_ms=0,
        store_host=("127.0.0.1", 10911), reconsume_times=message.reconsume_times,
        prepared_offset=0, stored_body=message.body,
        properties=decode_properties(message.properties.decode()),
    )  # fmt: skip


@given(
    properties=st.dictionaries(names, texts),
    levels=st.lists(st.integers(-1, 20), min_size=1, max_size=20),
    maximum=st.integers(-1, 17),
    queue_id=st.integers(0, 3),
)
def test_a_chain_of_retries(
    properties: dict[str, str], levels: list[int], maximum: int, queue_id: int
) -> None:
    text = encode_properties(properties).encode()
    original = NewMessage(
        topic="T", queue_id=7, body=b"b", properties=text, born_host=("10.0.0.1", 5), born_at_ms=9,
        flag=3, system_flag=0x301,
    )  # fmt: skip
    message = original
    for tries, level in enumerate(levels):
        record = stored(message, log_offset=100 * (tries + 1))
        message = Return("g", level, maximum).copy_of(record, message.properties, queue_id)
        is_dead = level < 0 or tries >= maximum
        found = decode_properties(message.properties.decode())
        assert message.topic == ("%DLQ%g" if is_dead else "%RETRY%g")
        assert message.reconsume_times == tries + 1
        expected_level = 0 if is_dead else level or 3 + tries
        assert found["DELAY"] == str(expected_level)
        assert found["WAIT"] == "false"
        assert found["RETRY_TOPIC"] == "T"
        assert found["ORIGIN_MESSAGE_ID"] == "7F00000100002A9F0000000000000064"
        assert {name: found[name] for name in found.keys() - OWN} == {
            name: properties[name] for name in properties.keys() - OWN
        }
        assert message.properties.count(b"\x02") == len(found), "a property is there twice"
        assert (message.body, message.flag, message.system_flag) == (b"b", 3, 0x301)
        assert (message.born_at_ms, message.born_host) == (9, ("10.0.0.1", 5))
        assert message.queue_id == queue_id
        if is_dead:
            return
