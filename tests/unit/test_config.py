"""Settings from properties text: what is read, what is refused, and in which words."""

from __future__ import annotations

import pytest

from ariane.config import (
    BrokerConfig,
    NameServerConfig,
    StoreConfig,
    changed,
    config_of,
    parse_properties,
    properties_of,
    unknown_key_warnings,
)
from ariane.errors import ConfigError

TEXTS = {
    "a=1\nb = 2\nc:3\nd 4\n": {"a": "1", "b": "2", "c": "3", "d": "4"},
    "# comment\n! another\n\n  a=1  \n": {"a": "1"},
    "a=1,\\\n   2,\\\n   3": {"a": "1,2,3"},
    "a=x=y:z": {"a": "x=y:z"},
    "path=C\\:\\\\data": {"path": "C:\\data"},
    "a=\\u0041\\n": {"a": "A"},
    "a=\nb=": {"a": "", "b": ""},
    "a=1\r\nb=2\r\n": {"a": "1", "b": "2"},
    "": {},
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.items(), ids=map(repr, TEXTS))
def test_properties(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_a_configuration_takes_the_keys_it_has() -> None:
    properties = {"brokerName": "b", "listenPort": "0", "flushDiskType": "SYNC_FLUSH", "x": "y"}
    assert config_of(BrokerConfig, properties) == BrokerConfig(name="b", port=0)
    assert config_of(StoreConfig, properties).is_sync_flush


REFUSED = {
    "a number": (BrokerConfig, "listenPort", "ten", "setting listenPort='ten' cannot be used"),
    "a flag": (BrokerConfig, "traceOn", "maybe", "setting traceOn='maybe' cannot be used"),
    "a flush mode": (StoreConfig, "flushDiskType", "SYNC", "it may be ASYNC_FLUSH or SYNC_FLUSH"),
    "an hour": (StoreConfig, "deleteWhen", "04;25", "it may be a list of hours, like 04 or 04;16"),
    "no hour": (StoreConfig, "deleteWhen", "four", "setting deleteWhen='four' cannot be used"),
    "a ratio": (StoreConfig, "diskSpaceWarningLevelRatio", "90", "Expected `float` <= 1.0"),
    "no name": (BrokerConfig, "brokerName", "", "Expected `str` of length >= 1"),
    "a replica": (BrokerConfig, "brokerId", "1", "it may be 0, since there are only masters"),
    "a slave": (BrokerConfig, "brokerRole", "SLAVE", "it may be ASYNC_MASTER, since there are no"),
    "acknowledgements of replicas": (
        BrokerConfig,
        "brokerRole",
        "SYNC_MASTER",
        "there are no replicas to wait for",
    ),
}


@pytest.mark.parametrize(("kind", "key", "value", "words"), REFUSED.values(), ids=REFUSED)
def test_refused(kind: type[BrokerConfig], key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        config_of(kind, {key: value})
    assert key in str(refusal.value)
    assert words in str(refusal.value)


def test_a_queue_file_holds_whole_entries() -> None:
    config = config_of(StoreConfig, {"mappedFileSizeConsumeQueue": "100001"})
    assert config.queue_file_bytes == 100_020


@pytest.mark.parametrize("kind", [BrokerConfig, StoreConfig, NameServerConfig])
def test_what_is_shown_can_be_read_again(kind: type[BrokerConfig]) -> None:
    assert config_of(kind, properties_of(kind())) == kind()


def test_changing_some_keys_keeps_the_others() -> None:
    config = changed(BrokerConfig(name="b"), {"traceOn": "false"})
    assert config == BrokerConfig(name="b", trace_on=False)


def test_a_key_nobody_knows_is_named_with_the_nearest() -> None:
    keys = ["brokerNane", "zzz", "listenPort", "someEnable"]
    warnings = unknown_key_warnings(keys, [BrokerConfig])
    assert warnings == [
        "unknown setting brokerNane is ignored; did you mean brokerName?",
        "unknown setting someEnable is ignored",
        "unknown setting zzz is ignored",
    ]
