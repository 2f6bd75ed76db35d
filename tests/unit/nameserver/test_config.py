"""Settings of a running name server: what may be changed, and to what."""

from __future__ import annotations

import pytest

from ariane.codes import ResponseCode
from ariane.config import NameServerConfig
from ariane.errors import ConfigError, RequestRejected
from ariane.nameserver.config import CHANGEABLE, checked, updated

TAKEN = {
    "orderMessageEnable=true": {"order_topics": True},
    "enableAllTopicList=false\ndeleteTopicWithBrokerRegistration=true\n": {
        "topic_list_enabled": False,
        "delete_topic_with_registration": True,
    },
    "returnOrderTopicConfigToBroker=false": {"return_order_topics": False},
    "brokerChannelExpiredTime=30000\nscanNotActiveBrokerInterval = 1000": {
        "broker_expiry_ms": 30_000,
        "scan_interval_ms": 1_000,
    },
    "# nothing at all\n": {},
}

REFUSED = {
    "kvConfigPath=/etc/passwd": (ResponseCode.NO_PERMISSION, "kvConfigPath"),
    "listenPort=1": (ResponseCode.NO_PERMISSION, "listenPort"),
    "bindAddress=0.0.0.0": (ResponseCode.NO_PERMISSION, "bindAddress"),
    "rocketmqHome=/": (ResponseCode.NO_PERMISSION, "rocketmqHome"),
    "configStorePath=/tmp/x": (ResponseCode.NO_PERMISSION, "configStorePath"),
    "orderMessageEnable=true\nsomething=1": (ResponseCode.NO_PERMISSION, "something"),
    "orderMessageEnable=perhaps": (ResponseCode.SYSTEM_ERROR, "orderMessageEnable='perhaps'"),
    "brokerChannelExpiredTime=soon": (ResponseCode.SYSTEM_ERROR, "brokerChannelExpiredTime"),
    "brokerChannelExpiredTime=999": (ResponseCode.SYSTEM_ERROR, "at least 1000 is needed"),
    "scanNotActiveBrokerInterval=-1": (ResponseCode.SYSTEM_ERROR, "at least 1000 is needed"),
}


@pytest.mark.parametrize(("text", "expected"), TAKEN.items(), ids=TAKEN)
def test_taken(text: str, expected: dict[str, object]) -> None:
    before = NameServerConfig()
    after = updated(before, text)
    changes = {
        name: getattr(after, name)
        for name in NameServerConfig.__struct_fields__
        if getattr(after, name) != getattr(before, name)
    }
    assert changes == expected


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=REFUSED)
def test_refused(text: str, expected: tuple[ResponseCode, str]) -> None:
    with pytest.raises(RequestRejected) as refusal:
        updated(NameServerConfig(), text)
    assert refusal.value.code == expected[0]
    assert expected[1] in str(refusal.value)


def test_no_changeable_setting_names_a_place() -> None:
    assert not [key for key in CHANGEABLE if "Path" in key or "Address" in key or "Port" in key]


def test_an_interval_that_would_spin_is_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="scanNotActiveBrokerInterval=0"):
        checked(NameServerConfig(scan_interval_ms=0))
