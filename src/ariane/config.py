"""Settings of broker, store and name server, under RocketMQ's own keys.

A configuration file is Java properties text. Keys we do not know are reported with the nearest one
we do; values that do not fit are refused with the key and the reason. Sizes are bytes, and times
are in the unit their name ends with.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, field

from ariane.errors import ConfigError

MIB: Final = 1 << 20
Positive = Annotated[int, Meta(ge=1)]
SegmentBytes = Annotated[int, Meta(ge=1024)]  # room for a record and its end mark
Natural = Annotated[int, Meta(ge=0)]
Port = Annotated[int, Meta(ge=0, le=65_535)]  # 0 picks a free one
Ratio = Annotated[float, Meta(gt=0, le=1)]
Percent = Annotated[int, Meta(ge=0, le=100)]
Name = Annotated[str, Meta(min_length=1)]
FLUSH_MODES: Final = ("ASYNC_FLUSH", "SYNC_FLUSH")
TIMER_PRECISIONS_MS: Final = (100, 200, 500, 1000)
ROLE: Final = "ASYNC_MASTER"
REQUEST_MODES: Final = ("PULL", "POP")
QUEUE_ENTRY_BYTES: Final = 20
HOURS_PER_DAY: Final = 24


class StoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how messages rest on disk."""

    root: str = field(name="storePathRootDir", default="store")
    segment_bytes: SegmentBytes = field(name="mappedFileSizeCommitLog", default=1 << 30)
    queue_file_bytes: Positive = field(name="mappedFileSizeConsumeQueue", default=300_000 * 20)
    index_slot_count: Positive = field(name="maxHashSlotNum", default=5_000_000)
    index_entry_count: Positive = field(name="maxIndexNum", default=20_000_000)
    flush_mode: str = field(name="flushDiskType", default="ASYNC_FLUSH")
    flush_interval_ms: Positive = field(
        name="flushIntervalCommitLog", default=500
    )  # loss window if power fails
    sync_flush_timeout_ms: Positive = field(name="syncFlushTimeout", default=5_000)
    checkpoint_interval_ms: Positive = field(
        name="flushConsumeQueueThoroughInterval", default=10_000
    )
    transient_pool_enabled: bool = field(name="transientStorePoolEnable", default=False)
    transient_pool_commit_interval_ms: Positive = field(name="commitIntervalCommitLog", default=200)
    message_bytes_max: Positive = field(name="maxMessageSize", default=4 * MIB)
    retention_hours: Natural = field(name="fileReservedTime", default=72)
    delete_hours: str = field(name="deleteWhen", default="04")  # local hours, ";" between them
    clean_interval_ms: Positive = field(name="cleanResourceInterval", default=10_000)
    delete_batch_max: Positive = field(name="deleteFileBatchMax", default=10)
    disk_used_max_percent: Percent = field(name="diskMaxUsedSpaceRatio", default=75)
    disk_force_ratio: Ratio = field(name="diskSpaceCleanForciblyRatio", default=0.85)
    disk_stop_ratio: Ratio = field(name="diskSpaceWarningLevelRatio", default=0.90)
    force_clean_enabled: bool = field(name="cleanFileForciblyEnable", default=True)
    check_crc_on_recover: bool = field(name="checkCRCOnRecover", default=True)
    index_enabled: bool = field(name="messageIndexEnable", default=True)
    query_count_max: Positive = field(name="maxMsgsNumBatch", default=64)
    transfer_count_memory_max: Positive = field(
        name="maxTransferCountOnMessageInMemory", default=32
    )
    transfer_bytes_memory_max: Positive = field(
        name="maxTransferBytesOnMessageInMemory", default=256 * 1024
    )
    transfer_count_disk_max: Positive = field(name="maxTransferCountOnMessageInDisk", default=8)
    transfer_bytes_disk_max: Positive = field(
        name="maxTransferBytesOnMessageInDisk", default=64 * 1024
    )
    memory_ratio_percent: Natural = field(name="accessMessageInMemoryMaxRatio", default=40)
    filter_scan_bytes_max: Positive = field(name="maxFilterMessageSize", default=16_000)
    page_cache_busy_ms: Positive = field(name="osPageCacheBusyTimeOutMills", default=1_000)
    delay_persist_interval_ms: Positive = field(name="flushDelayOffsetInterval", default=10_000)
    delay_levels: str = field(
        name="messageDelayLevel",
        default="1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
    )
    timer_enabled: bool = field(name="timerWheelEnable", default=True)
    timer_precision_ms: Positive = field(name="timerPrecisionMs", default=1_000)
    timer_delay_max_s: Positive = field(name="timerMaxDelaySec", default=3 * 24 * 3600)
    timer_window_slots: Positive = field(name="timerRollWindowSlot", default=2 * 24 * 3600)
    timer_slot_messages_max: Positive = field(name="timerCongestNumEachSlot", default=2**31 - 1)
    timer_flush_interval_ms: Positive = field(name="timerFlushIntervalMs", default=1_000)
    timer_log_file_bytes: SegmentBytes = field(name="mappedFileSizeTimerLog", default=100 * MIB)

    def __post_init__(self) -> None:
        if self.flush_mode not in FLUSH_MODES:
            raise ValueError(_unusable("flushDiskType", self.flush_mode, FLUSH_MODES))
        hours_of(self.delete_hours)
        # As RocketMQ does: a queue file holds whole entries.
        whole = -(-self.queue_file_bytes // QUEUE_ENTRY_BYTES) * QUEUE_ENTRY_BYTES
        msgspec.structs.force_setattr(self, "queue_file_bytes", whole)
        if self.timer_precision_ms not in TIMER_PRECISIONS_MS:
            raise ValueError(
                _unusable(
                    "timerPrecisionMs",
                    str(self.timer_precision_ms),
                    [str(precision_ms) for precision_ms in TIMER_PRECISIONS_MS],
                )
            )

    @property
    def is_sync_flush(self) -> bool:
        """Whether an acknowledgement waits for the disk."""
        return self.flush_mode == "SYNC_FLUSH"


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who the broker is, where it listens, what it allows."""

    cluster: Name = field(name="brokerClusterName", default="DefaultCluster")
    name: Name = field(name="brokerName", default="broker-a")
    broker_id: int = field(name="brokerId", default=0)
    role: str = field(name="brokerRole", default="ASYNC_MASTER")
    advertised_host: str = field(name="brokerIP1", default="")
    bind_host: str = field(name="bindAddress", default="127.0.0.1")
    port: Port = field(name="listenPort", default=10911)
    name_servers: str = field(name="namesrvAddr", default="")  # "host:port;host:port"
    permission: int = field(name="brokerPermission", default=6)
    region: str = field(name="regionId", default="DefaultRegion")
    trace_on: bool = field(name="traceOn", default=True)
    auto_create_topics: bool = field(name="autoCreateTopicEnable", default=True)
    auto_create_groups: bool = field(name="autoCreateSubscriptionGroup", default=True)
    default_queue_count: Positive = field(name="defaultTopicQueueNums", default=8)
    register_interval_ms: Positive = field(name="registerNameServerPeriod", default=30_000)
    register_timeout_ms: Positive = field(name="registerBrokerTimeoutMills", default=24_000)
    offset_persist_interval_ms: Positive = field(name="flushConsumerOffsetInterval", default=5_000)
    long_polling: bool = field(name="longPollingEnable", default=True)
    short_polling_ms: Positive = field(name="shortPollingTimeMills", default=1_000)
    send_wait_max_ms: Positive = field(name="waitTimeMillsInSendQueue", default=200)
    pull_wait_max_ms: Positive = field(name="waitTimeMillsInPullQueue", default=5_000)
    fast_failure: bool = field(name="brokerFastFailureEnable", default=True)
    connections_max: Positive = field(name="maxConnections", default=16_000)
    host_connections_max: Positive = field(name="maxConnectionsPerAddress", default=12_000)
    store_replies: bool = field(name="storeReplyMessageEnable", default=True)
    trace_topic_enabled: bool = field(name="traceTopicEnable", default=False)
    checks_message_types: bool = field(name="enableTopicMessageTypeCheck", default=False)
    vip_port: bool = field(name="vipChannelEnable", default=True)
    notify_consumer_changes: bool = field(name="notifyConsumerIdsChangedEnable", default=True)
    property_filters: bool = field(name="enablePropertyFilter", default=True)  # Apache: false
    resets_here: bool = field(name="useServerSideResetOffset", default=True)
    recall_enabled: bool = field(name="recallMessageEnable", default=False)
    rejects_transactions: bool = field(name="rejectTransactionMessage", default=False)
    transaction_timeout_ms: Positive = field(name="transactionTimeOut", default=6_000)
    transaction_check_interval_ms: Positive = field(name="transactionCheckInterval", default=30_000)
    transaction_check_max: Positive = field(name="transactionCheckMax", default=15)
    operation_bytes_max: Positive = field(name="transactionOpMsgMaxSize", default=4_096)
    operation_interval_ms: Natural = field(name="transactionOpBatchInterval", default=3_000)
    waiting_pops_max: Positive = field(name="maxPopPollingSize", default=100_000)
    waiting_pops_per_queue_max: Positive = field(name="popPollingSize", default=1_024)
    retry_first_percent: Natural = field(name="popFromRetryProbability", default=20)
    priority_retry_first_percent: Natural = field(
        name="popFromRetryProbabilityForPriority", default=0
    )
    priority_ascends: bool = field(name="priorityOrderAsc", default=True)  # 0 is the lowest
    separate_retry_queues: bool = field(name="useSeparateRetryQueue", default=False)
    retry_topics_v2: bool = field(name="enableRetryTopicV2", default=False)
    reads_retry_topics_v1: bool = field(name="retrieveMessageFromPopRetryTopicV1", default=True)
    shows_retry_topics: bool = field(name="popResponseReturnActualRetryTopic", default=False)
    starts_at_zero_in_memory: bool = field(name="initPopOffsetByCheckMsgInMem", default=True)
    request_mode: str = field(name="defaultMessageRequestMode", default="PULL")
    pop_share_queue_count: int = field(name="defaultPopShareQueueNum", default=-1)
    assigns_queues: bool = field(name="serverLoadBalancerEnable", default=True)

    def __post_init__(self) -> None:
        if self.role != ROLE:
            reason = f"{ROLE}, since there are no replicas to wait for or to be"
            raise ValueError(_unusable("brokerRole", self.role, [reason]))
        if self.broker_id != 0:
            raise ValueError(
                _unusable("brokerId", str(self.broker_id), ["0, since there are only masters"])
            )
        if self.request_mode not in REQUEST_MODES:
            raise ValueError(
                _unusable("defaultMessageRequestMode", self.request_mode, REQUEST_MODES)
            )


class NameServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where a name server listens and what it remembers."""

    bind_host: str = field(name="bindAddress", default="127.0.0.1")
    port: Port = field(name="listenPort", default=9876)
    kv_path: str = field(name="kvConfigPath", default="kvConfig.json")
    scan_interval_ms: int = field(name="scanNotActiveBrokerInterval", default=10_000)
    broker_expiry_ms: int = field(name="brokerChannelExpiredTime", default=120_000)
    order_topics: bool = field(name="orderMessageEnable", default=False)
    return_order_topics: bool = field(name="returnOrderTopicConfigToBroker", default=True)
    topic_list_enabled: bool = field(name="enableAllTopicList", default=True)
    delete_topic_with_registration: bool = field(
        name="deleteTopicWithBrokerRegistration", default=False
    )


C = TypeVar("C", bound=msgspec.Struct)


def hours_of(text: str) -> frozenset[int]:
    """The hours of the day in a list like `04` or `04;16`; or ValueError."""
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    if not all(hour.isdecimal() and int(hour) < HOURS_PER_DAY for hour in hours):
        raise ValueError(_unusable("deleteWhen", text, ["a list of hours, like 04 or 04;16"]))
    return frozenset(map(int, hours))


def keys_of(kind: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The wire keys of a configuration struct and the field behind each."""
    return {info.encode_name: info for info in msgspec.structs.fields(kind)}


def config_of(kind: type[C], properties: Mapping[str, str]) -> C:
    """Build one configuration from properties, ignoring the keys it does not have."""
    known = keys_of(kind)
    values = {key: _unquoted(value) for key, value in properties.items() if key in known}
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{_named(str(error), values)}; see docs/reference/config.md") from error


def properties_of(config: msgspec.Struct) -> dict[str, str]:
    """The configuration as RocketMQ's text properties, the way GET_BROKER_CONFIG shows it."""
    return {
        key: _text(getattr(config, info.name))
        for key, info in sorted(keys_of(type(config)).items())
    }


def changed(config: C, properties: Mapping[str, str]) -> C:
    """The configuration with some keys set anew."""
    return config_of(type(config), properties_of(config) | dict(properties))


def parse_properties(text: str) -> dict[str, str]:
    """Read Java properties text: `key=value` lines, `#` and `!` comments, `\\` continuations."""
    found: dict[str, str] = {}
    logical = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not logical and (not line or line[0] in "#!"):
            continue
        logical += line
        if (len(logical) - len(logical.rstrip("\\"))) % 2:
            logical = logical[:-1]
            continue
        key, _, value = _SEPARATOR.sub("\0", logical, count=1).partition("\0")
        found[_unescaped(key)] = _unescaped(value).rstrip()
        logical = ""
    if logical:
        key, _, value = _SEPARATOR.sub("\0", logical, count=1).partition("\0")
        found[_unescaped(key)] = _unescaped(value).rstrip()
    return found


def unknown_key_warnings(keys: Iterable[str], kinds: Iterable[type[msgspec.Struct]]) -> list[str]:
    """One line per key that no configuration has, with the nearest that one does."""
    known = sorted({key for kind in kinds for key in keys_of(kind)})
    lines = []
    for key in sorted(set(keys) - set(known)):
        near = difflib.get_close_matches(key, known, n=1, cutoff=LIKENESS_MIN)
        hint = f"; did you mean {near[0]}?" if near else ""
        lines.append(f"unknown setting {key} is ignored{hint}")
    return lines


LIKENESS_MIN: Final = 0.8  # below that a key is another one, not a slip of the pen

_SEPARATOR: Final = re.compile(r"\s*[=:]\s*|\s+")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def _unescaped(text: str) -> str:
    text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
    return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), text)


def _unquoted(value: str) -> str:
    return value.strip()


def _unusable(key: str, value: str, usable: Iterable[str]) -> str:
    return f"setting {key}={value!r} cannot be used: it may be {' or '.join(usable)}"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _named(error: str, values: Mapping[str, str]) -> str:
    """Turn msgspec's path (`$.listenPort`) into the key and the value that was found."""
    found = re.search(r"`\$\.(\w+)`", error)
    if found is None:
        return error
    reason = error.split(" - at ", maxsplit=1)[0]
    return f"setting {found[1]}={values.get(found[1], '')!r} cannot be used: {reason}"
