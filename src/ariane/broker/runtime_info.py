"""What GET_BROKER_RUNTIME_INFO tells: the keys `clusterList` and `brokerStatus` read, as text."""

from __future__ import annotations

from typing import Final

from ariane.broker.state import BrokerState
from ariane.broker.stats import DayMarks
from ariane.topics import SCHEDULE_TOPIC

VERSION_TEXT: Final = "V5_3_3"  # what PROTOCOL_VERSION stands for


def runtime_info(state: BrokerState) -> dict[str, str]:
    """The broker's condition, now."""
    stats, store = state.stats, state.store
    put, got = stats.put_total(), stats.got_total()
    used_ratio = store.disk_used_ratio
    return {
        "brokerActive": "true",
        "brokerVersionDesc": VERSION_TEXT,
        "bootTimestamp": str(stats.started_ms),
        "runtime": uptime_text(state.clock.wall_ms() - stats.started_ms),
        "putTps": rates_text(stats.put_per_s()),
        "getTransferredTps": rates_text(stats.got_per_s()),
        "putMessageTimesTotal": str(put.messages),
        "putMessageSizeTotal": str(put.bytes),
        "putMessageAverageSize": str(put.bytes / put.messages if put.messages else 0.0),
        **day_totals("msgPut", stats.put_marks, put.messages),
        **day_totals("msgGet", stats.got_marks, got.messages),
        "commitLogMinOffset": str(store.log.first_position),
        "commitLogMaxOffset": str(store.written),
        "commitLogDiskRatio": str(used_ratio),
        "consumeQueueDiskRatio": str(used_ratio),
        "dispatchBehindBytes": str(store.written - store.visible),
        "remainHowManyDataToFlush": bytes_text(store.written - store.flushed),
        "earliestMessageTimeStamp": str(store.earliest_log_ms),
        "pageCacheLockTimeMills": "0",  # one writer: whoever asks does not wait for an append
        **queue_waits(state),
        **delays(state),
        **timers(state),
    }


def queue_waits(state: BrokerState) -> dict[str, str]:
    """Requests are carried out as they are read: none queue, but all may wait for the loop."""
    waited_ms = str(state.flow.waited_ms())
    return {
        "sendThreadPoolQueueSize": "0",
        "pullThreadPoolQueueSize": "0",
        "ackThreadPoolQueueSize": "0",
        "sendThreadPoolQueueHeadWaitTimeMills": waited_ms,
        "pullThreadPoolQueueHeadWaitTimeMills": waited_ms,
        "ackThreadPoolQueueHeadWaitTimeMills": waited_ms,
    }


def delays(state: BrokerState) -> dict[str, str]:
    """How far each delay level is delivered, and to where its queue reaches."""
    offsets = state.schedule.progress.offsets()
    ends = {level: state.store.max_offset(SCHEDULE_TOPIC, level - 1) for level in offsets}
    return {
        f"scheduleMessageOffset_{level}": f"{offset},{ends[level]}"
        for level, offset in offsets.items()
    }


def timers(state: BrokerState) -> dict[str, str]:
    """How far the timer wheel is behind, and what waits in it."""
    taken_per_s, delivered_per_s = state.timer.rates()
    return {
        "timerReadBehind": str(state.timer.read_behind_ms // 1000),
        "timerOffsetBehind": str(state.store.timer.behind_messages),
        "timerCongestNum": str(state.store.timer.pending),
        "timerEnqueueTps": str(round(taken_per_s, 1)),
        "timerDequeueTps": str(round(delivered_per_s, 1)),
    }


def day_totals(prefix: str, marks: DayMarks, now: int) -> dict[str, str]:
    """Messages up to yesterday morning, this morning and now, since the broker started."""
    return {
        f"{prefix}TotalYesterdayMorning": str(marks.yesterday),
        f"{prefix}TotalTodayMorning": str(marks.today),
        f"{prefix}TotalTodayNow": str(now),
    }


def rates_text(rates: list[float]) -> str:
    """Three rates as tools split them."""
    return " ".join(str(rate) for rate in rates)


def uptime_text(uptime_ms: int) -> str:
    """How long the broker has run, in words."""
    minutes, seconds = divmod(uptime_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def bytes_text(byte_count: int) -> str:
    """A number of bytes for people."""
    size, units = float(byte_count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while size >= 1024 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{byte_count} B" if units[0] == "B" else f"{size:.1f} {units[0]}"
