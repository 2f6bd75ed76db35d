"""Writes docs/reference/config.md from config.py; run it with `.venv/bin/python` and no arguments.

Keys, units and defaults come from the code; the words are here. A setting without words, or words
without a setting, is an error, and a unit test fails while the page is not current.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from ariane.broker.config_update import ALLOWED
from ariane.config import BrokerConfig, NameServerConfig, StoreConfig, keys_of
from ariane.nameserver.config import CHANGEABLE

PAGE: Final = Path(__file__).parent / "reference" / "config.md"

INTRODUCTION: Final = """\
# Settings

<!-- Written by docs/generate_config_reference.py. Change the words there, then run it. -->

The keys are RocketMQ's own. A file for `ariane broker -c FILE` or `ariane namesrv -c FILE` is Java
properties text, one `key=value` a line; `ariane up --set key=value` sets one from the command line.
A value that does not fit is refused at start with its key; a key that is not here is ignored with
a warning that names the nearest one. What somebody would count on and is not
there, such as `aclEnable=true` or a log elsewhere by `storePathCommitLog`, is refused as well.

Sizes are in bytes and times in milliseconds unless the words say otherwise. *Running* marks what
can be changed while the server runs (`mqadmin updateBrokerConfig`, `mqadmin updateNamesrvConfig`);
everything else is refused there. Settings of Apache's broker that only name a mechanism inside it,
such as `enablePopBufferMerge`, are taken there too; `mqadmin getBrokerConfig` lists them under
`settingsWithoutEffect`, since nothing goes by them.
"""

SECTIONS: Final[tuple[tuple[type[msgspec.Struct], frozenset[str]], ...]] = (
    (BrokerConfig, frozenset(ALLOWED)),
    (StoreConfig, frozenset(ALLOWED)),
    (NameServerConfig, CHANGEABLE),
)

TITLES: Final = {
    BrokerConfig: "Broker",
    StoreConfig: "Store",
    NameServerConfig: "Name server",
}

WORDS: Final[dict[type[msgspec.Struct], dict[str, str]]] = {
    BrokerConfig: {
        "brokerClusterName": "The cluster it belongs to.",
        "brokerName": "Its name; queues belong to names.",
        "brokerId": "0, the master of the name; there are no replicas.",
        "brokerRole": "`ASYNC_MASTER`: there are no replicas to wait for or to be.",
        "brokerIP1": "The address told to clients and written into message ids; when empty, the"
        " address it is bound to, or the outward one if that is all addresses.",
        "bindAddress": "Where to listen. `0.0.0.0` is every address of the machine.",
        "listenPort": "Where to listen; 0 picks a free port.",
        "namesrvAddr": "Name servers to register with, `host:port;host:port`.",
        "brokerPermission": "What it allows: 4 read, 2 write, 6 both.",
        "regionId": "The region told to clients for their traces.",
        "traceOn": "Whether clients are told to trace.",
        "storeReplyMessageEnable": "Whether replies to requests are kept in the reply topic.",
        "traceTopicEnable": "Whether the topic for traces is made.",
        "autoCreateTopicEnable": "Whether sending to an unknown topic makes it.",
        "autoCreateSubscriptionGroup": "Whether an unknown group is made when it consumes.",
        "defaultTopicQueueNums": "Queues of `TBW102`, which bounds those of a topic that is made by"
        " sending to it.",
        "registerNameServerPeriod": "How often it registers again, 10,000 to 60,000.",
        "registerBrokerTimeoutMills": "How long it waits for a name server's answer.",
        "flushConsumerOffsetInterval": "How often consume offsets are written to disk.",
        "longPollingEnable": "Whether a pull that finds nothing is held as long as it asks to be.",
        "shortPollingTimeMills": "How long it is held otherwise.",
        "waitTimeMillsInSendQueue": "A send that has waited longer than this is refused as busy.",
        "waitTimeMillsInPullQueue": "A pull that has waited longer than this is refused as busy.",
        "brokerFastFailureEnable": "Whether the two rules above apply.",
        "maxConnections": "How many connections a port takes; it closes any beyond at once. Each "
        "needs a descriptor (`ulimit -n`).",
        "maxConnectionsPerAddress": "How many of them one address may have, so that others get in "
        "even when it floods the broker.",
        "enableTopicMessageTypeCheck": "Whether a topic with an attribute `message.type` refuses "
        "messages of other types. Off, as Apache's broker takes all and its proxy alone looks.",
        "vipChannelEnable": "Whether to listen two ports lower as well, for clients of old.",
        "notifyConsumerIdsChangedEnable": "Whether members hear at once when their group changes.",
        "enablePropertyFilter": "Whether consumers may filter by SQL92 expressions over properties "
        "([which](filters.md)). On, unlike in Apache's broker: it costs nothing until used.",
        "useServerSideResetOffset": "Whether resetting a group's offsets sets them here, so that "
        "its next pulls go on from there; else its members are told to do it.",
        "recallMessageEnable": "Whether a timed message may be recalled before it is due.",
        "rejectTransactionMessage": "Refuse transactional messages.",
        "transactionTimeOut": "How old a half message must be before its producer is asked"
        " about it; a message may ask for another age with `CHECK_IMMUNITY_TIME_IN_SECONDS`.",
        "transactionCheckInterval": "Time between two rounds of asking.",
        "transactionCheckMax": "How often a producer is asked before the message goes to"
        " `TRANS_CHECK_MAX_TIME_TOPIC`.",
        "transactionOpMsgMaxSize": "How many bytes of ended transactions are gathered before"
        " they are noted in the log.",
        "transactionOpBatchInterval": "How long ended transactions are gathered before they"
        " are noted in the log.",
        "maxPopPollingSize": "How many pops may wait for messages at once; more are told so.",
        "popPollingSize": "How many of them for one queue (or any queue) of a topic and group.",
        "popFromRetryProbability": "How many pops of a hundred look into the retry topic first; the"
        " others look there if the topic itself leaves room.",
        "popFromRetryProbabilityForPriority": "The same for pops that go by priority: with 0 what"
        " comes back is last, with 100 first.",
        "priorityOrderAsc": "Whether queue 0 of a topic of priorities is the lowest of them; else"
        " it is the highest.",
        "useSeparateRetryQueue": "Whether a message that was not acknowledged in time comes back in"
        " the queue of the retry topic that has the number of its own, and so keeps its priority.",
        "enableRetryTopicV2": "Whether messages not acknowledged in time come back through"
        " `%RETRY%group+topic` rather than `%RETRY%group_topic`.",
        "retrieveMessageFromPopRetryTopicV1": "Whether the older one is read as well then.",
        "popResponseReturnActualRetryTopic": "Whether popped messages show the retry topic they"
        " come from rather than the topic asked for.",
        "initPopOffsetByCheckMsgInMem": "Whether a group that wants to start at the end starts at"
        " the beginning of a queue that is all in memory.",
        "defaultMessageRequestMode": "How groups read that nobody has set: `PULL` or `POP`; for"
        " push consumers that let the broker assign queues.",
        "defaultPopShareQueueNum": "With `POP`, how many other members' queues each reads too;"
        " -1 is all.",
        "serverLoadBalancerEnable": "Whether the broker assigns queues; else everybody gets all.",
    },
    StoreConfig: {
        "storePathRootDir": "The directory with everything in it, in Apache's layout.",
        "mappedFileSizeCommitLog": "Length of a commit-log segment. It cannot be changed for a"
        " store that exists.",
        "mappedFileSizeConsumeQueue": "Length of a consume-queue file, a multiple of 20. It cannot"
        " be changed for a store that exists.",
        "maxHashSlotNum": "Slots of an index file.",
        "maxIndexNum": "Entries of an index file.",
        "flushDiskType": "`ASYNC_FLUSH`: acknowledged when written to memory, safe from a kill."
        " `SYNC_FLUSH`: acknowledged when on disk, safe from a power cut.",
        "flushIntervalCommitLog": "How often the log is flushed with `ASYNC_FLUSH`: what a power"
        " cut can take.",
        "syncFlushTimeout": "With `SYNC_FLUSH`, when to answer that the flush is late.",
        "flushConsumeQueueThoroughInterval": "How often queues are flushed and a checkpoint is"
        " written: how much log a restart has to walk.",
        "transientStorePoolEnable": "Whether appends go to a buffer first and to the file in steps,"
        " for disks whose page cache stalls. A kill then takes what was not yet copied. Not used"
        " with `SYNC_FLUSH`.",
        "commitIntervalCommitLog": "How often that buffer is copied.",
        "maxMessageSize": "The largest body, and the largest batch.",
        "fileReservedTime": "How long a segment is kept, in hours.",
        "deleteWhen": "The local hours in which old segments are deleted, `;` between them.",
        "cleanResourceInterval": "How often to look for something to delete.",
        "deleteFileBatchMax": "Segments deleted at a time, at most.",
        "diskMaxUsedSpaceRatio": "Above this many percent of the disk old segments are deleted at"
        " any hour.",
        "diskSpaceCleanForciblyRatio": "Above this share even young segments are deleted.",
        "diskSpaceWarningLevelRatio": "Above this share sends are refused until there is room.",
        "cleanFileForciblyEnable": "Whether young segments may be deleted at all.",
        "checkCRCOnRecover": "Whether a start checks the bodies of the records it walks.",
        "messageIndexEnable": "Whether messages are indexed by their keys.",
        "maxMsgsNumBatch": "Messages a query by key returns, at most.",
        "maxTransferCountOnMessageInMemory": "Messages a pull returns when they are in memory.",
        "maxTransferBytesOnMessageInMemory": "Bytes a pull returns when they are in memory; one"
        " message is always returned.",
        "maxTransferCountOnMessageInDisk": "The same for messages that are on disk only.",
        "maxTransferBytesOnMessageInDisk": "The same for bytes.",
        "accessMessageInMemoryMaxRatio": "The newest messages, up to this many percent of the"
        " machine's memory, are taken to be in memory.",
        "maxFilterMessageSize": "Bytes of queue entries one pull may look through.",
        "osPageCacheBusyTimeOutMills": "Sends that waited behind an append that took longer are"
        " refused as busy.",
        "flushDelayOffsetInterval": "How often the progress of delayed messages is written.",
        "messageDelayLevel": "The delays behind the levels of delayed messages, with `s`, `m`, `h`"
        " or `d` behind each number. What waits when it is changed keeps its time.",
        "timerWheelEnable": "Whether messages may ask for a time (`TIMER_DELAY_SEC`,"
        " `TIMER_DELAY_MS`, `TIMER_DELIVER_MS`); they are refused otherwise.",
        "timerPrecisionMs": "Width of a slot of the timer wheel: 100, 200, 500 or 1000. A message"
        " is never early, and a kill repeats at most what was due within one slot. Changing it"
        " makes the wheel be built anew at the next start.",
        "timerMaxDelaySec": "How far ahead a message may be timed, in seconds.",
        "timerRollWindowSlot": "How many slots ahead a message waits in the wheel; one due later is"
        " stored anew on the way, so that it outlives its segment. Never more than two thirds of"
        " `fileReservedTime`.",
        "timerCongestNumEachSlot": "How many messages may wait for one slot; more are refused.",
        "timerFlushIntervalMs": "How often wheel and timer log are flushed: what a power cut makes"
        " be delivered again.",
        "mappedFileSizeTimerLog": "Length of a timer-log file. It cannot be changed for a store"
        " that exists.",
    },
    NameServerConfig: {
        "bindAddress": "Where to listen.",
        "listenPort": "Where to listen; 0 picks a free port.",
        "kvConfigPath": "The file of the key-value table.",
        "scanNotActiveBrokerInterval": "How often it looks for brokers that fell silent.",
        "brokerChannelExpiredTime": "How long a broker may be silent.",
        "orderMessageEnable": "Whether routes tell clients of order topics.",
        "returnOrderTopicConfigToBroker": "Whether brokers hear of order topics.",
        "enableAllTopicList": "Whether the list of all topics is given out.",
        "deleteTopicWithBrokerRegistration": "Whether topics that a registration leaves out are"
        " forgotten.",
    },
}


def page() -> str:
    """The whole page."""
    return "\n".join([INTRODUCTION, *(_section(kind, running) for kind, running in SECTIONS)])


def _section(kind: type[msgspec.Struct], running: frozenset[str]) -> str:
    words = WORDS[kind]
    settings = keys_of(kind)
    if words.keys() != settings.keys():
        raise SystemExit(f"{kind.__name__}: {words.keys() ^ settings.keys()} lack words or setting")
    lines = [
        f"## {TITLES[kind]}",
        "",
        str(kind.__doc__),
        "",
        "| key | default | running | meaning |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| `{key}` | {_default(settings[key].default)} | {'yes' if key in running else ''}"
        f" | {meaning} |"
        for key, meaning in words.items()
    ]
    return "\n".join([*lines, ""])


def _default(value: object) -> str:
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int):
        return f"{value:,}"
    return f"`{value}`" if value != "" else ""


if __name__ == "__main__":
    PAGE.write_text(page())
