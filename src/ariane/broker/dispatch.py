"""The broker's whole surface: request code -> handler, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from ariane.broker.handlers import (
    admin,
    assignments,
    bulk,
    clients,
    groups,
    offsets,
    pop,
    pop_acks,
    pull,
    query,
    recall,
    replies,
    resets,
    retry,
    send,
    staging,
    topics,
    transactions,
)
from ariane.broker.requests import Outcome, Postponed, Request, attempt
from ariane.broker.state import BrokerState
from ariane.codes import RequestCode, ResponseCode
from ariane.kernel.held import Held
from ariane.protocol.command import Command, reply
from ariane.protocol.headers import Header, decode_header
from ariane.protocol.headers.bulk import BulkReadHeader, ReadLeaseHeader
from ariane.protocol.headers.clients import (
    ConsumeDirectlyHeader,
    RunningInfoHeader,
    UnregisterHeader,
)
from ariane.protocol.headers.groups import (
    AllGroupsHeader,
    AllStatsHeader,
    CloneOffsetsHeader,
    ConsumerGroupHeader,
    ConsumeStatsHeader,
    CorrectionHeader,
    DeleteGroupHeader,
    GroupHeader,
    ProducerGroupHeader,
)
from ariane.protocol.headers.offsets import (
    ConsumerStatusHeader,
    MaxOffsetHeader,
    QueryConsumerOffsetHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    UpdateConsumerOffsetHeader,
)
from ariane.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleHeader,
    NotificationHeader,
    PeekHeader,
    PollingHeader,
    PopHeader,
)
from ariane.protocol.headers.pull import PullHeader
from ariane.protocol.headers.query import (
    ConsumeQueueHeader,
    QueryHeader,
    StatisticsHeader,
    ViewHeader,
)
from ariane.protocol.headers.recall import RecallHeader
from ariane.protocol.headers.retry import SendBackHeader
from ariane.protocol.headers.send import decode_send_header
from ariane.protocol.headers.staging import BatchHeader, PublishHeader, StageHeader
from ariane.protocol.headers.topics import AllTopicsHeader, CreateTopicHeader, TopicHeader
from ariane.protocol.headers.transactions import EndTransactionHeader, ResumeCheckHeader
from ariane.remoting.connection import Connection


class Handler(NamedTuple):
    """A function that carries out one request code, and the header it reads (or how to read it)."""

    run: Callable[[Request[Any], BrokerState], Outcome]
    header: type[Header] | Callable[[Mapping[str, str]], Header] | None = None

    def header_of(self, fields: Mapping[str, str]) -> Header | None:
        """Read the header, or raise BadHeader."""
        if isinstance(self.header, type):
            return decode_header(self.header, fields)
        return None if self.header is None else self.header(fields)


HANDLERS: Final[dict[int, Handler]] = {
    RequestCode.SEND_MESSAGE: Handler(send.send, decode_send_header),
    RequestCode.SEND_MESSAGE_V2: Handler(send.send, decode_send_header),
    RequestCode.SEND_BATCH_MESSAGE: Handler(send.send, decode_send_header),
    RequestCode.STAGE_CHUNK: Handler(staging.stage, StageHeader),
    RequestCode.PUBLISH_BATCH: Handler(staging.publish, PublishHeader),
    RequestCode.PUBLISHED_BATCH: Handler(staging.published, BatchHeader),
    RequestCode.DISCARD_BATCH: Handler(staging.discard, BatchHeader),
    RequestCode.RECALL_MESSAGE: Handler(recall.recall, RecallHeader),
    RequestCode.END_TRANSACTION: Handler(transactions.end_transaction, EndTransactionHeader),
    RequestCode.RESUME_CHECK_HALF_MESSAGE: Handler(transactions.resume_check, ResumeCheckHeader),
    RequestCode.SEND_REPLY_MESSAGE: Handler(replies.send_reply, decode_send_header),
    RequestCode.SEND_REPLY_MESSAGE_V2: Handler(replies.send_reply, decode_send_header),
    RequestCode.CONSUMER_SEND_MSG_BACK: Handler(retry.send_back, SendBackHeader),
    RequestCode.PULL_MESSAGE: Handler(pull.pull, PullHeader),
    RequestCode.LITE_PULL_MESSAGE: Handler(pull.pull, PullHeader),
    RequestCode.BULK_READ: Handler(bulk.bulk_read, BulkReadHeader),
    RequestCode.READ_LEASE: Handler(bulk.read_lease, ReadLeaseHeader),
    RequestCode.POP_MESSAGE: Handler(pop.pop, PopHeader),
    RequestCode.ACK_MESSAGE: Handler(pop_acks.ack, AckHeader),
    RequestCode.BATCH_ACK_MESSAGE: Handler(pop_acks.batch_ack),
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Handler(
        pop_acks.change_invisible, ChangeInvisibleHeader
    ),
    RequestCode.PEEK_MESSAGE: Handler(pop.peek_messages, PeekHeader),
    RequestCode.NOTIFICATION: Handler(pop.notification, NotificationHeader),
    RequestCode.POLLING_INFO: Handler(pop.polling_info, PollingHeader),
    RequestCode.POP_ROLLBACK: Handler(pop.pop_rollback),
    RequestCode.QUERY_ASSIGNMENT: Handler(assignments.query_assignment),
    RequestCode.SET_MESSAGE_REQUEST_MODE: Handler(assignments.set_request_mode),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Handler(assignments.all_request_modes),
    RequestCode.QUERY_MESSAGE: Handler(query.query, QueryHeader),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Handler(query.search_offset, SearchOffsetHeader),
    RequestCode.GET_MAX_OFFSET: Handler(query.max_offset, MaxOffsetHeader),
    RequestCode.GET_MIN_OFFSET: Handler(query.min_offset, QueueHeader),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Handler(query.earliest_store_time, QueueHeader),
    RequestCode.VIEW_MESSAGE_BY_ID: Handler(query.view_by_id, ViewHeader),
    RequestCode.QUERY_CONSUMER_OFFSET: Handler(offsets.query_offset, QueryConsumerOffsetHeader),
    RequestCode.UPDATE_CONSUMER_OFFSET: Handler(offsets.update_offset, UpdateConsumerOffsetHeader),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Handler(offsets.all_offsets),
    RequestCode.GET_ALL_DELAY_OFFSET: Handler(offsets.all_delay_offsets),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Handler(resets.reset_offset, ResetOffsetHeader),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Handler(
        resets.consumer_status, ConsumerStatusHeader
    ),
    RequestCode.CLONE_GROUP_OFFSET: Handler(offsets.clone_offsets, CloneOffsetsHeader),
    RequestCode.QUERY_CORRECTION_OFFSET: Handler(offsets.correction_offsets, CorrectionHeader),
    RequestCode.HEART_BEAT: Handler(clients.heartbeat),
    RequestCode.UNREGISTER_CLIENT: Handler(clients.unregister, UnregisterHeader),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Handler(clients.consumer_list, ConsumerGroupHeader),
    RequestCode.CHECK_CLIENT_CONFIG: Handler(clients.check_client),
    RequestCode.LOCK_BATCH_MQ: Handler(clients.lock_queues),
    RequestCode.UNLOCK_BATCH_MQ: Handler(clients.unlock_queues),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Handler(clients.consumers, ConsumerGroupHeader),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Handler(clients.producers, ProducerGroupHeader),
    RequestCode.GET_ALL_PRODUCER_INFO: Handler(clients.all_producers),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Handler(clients.subscription, GroupHeader),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Handler(clients.running_info, RunningInfoHeader),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Handler(clients.consume_directly, ConsumeDirectlyHeader),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Handler(topics.create_topic, CreateTopicHeader),
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: Handler(topics.create_topics),
    RequestCode.DELETE_TOPIC_IN_BROKER: Handler(topics.delete_topic, TopicHeader),
    RequestCode.GET_ALL_TOPIC_CONFIG: Handler(topics.all_topics, AllTopicsHeader),
    RequestCode.GET_TOPIC_CONFIG: Handler(topics.topic_config, TopicHeader),
    RequestCode.GET_TOPIC_STATS_INFO: Handler(topics.topic_stats, TopicHeader),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Handler(topics.topic_groups, TopicHeader),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Handler(topics.system_topics),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Handler(groups.create_group),
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Handler(groups.create_groups),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Handler(groups.delete_group, DeleteGroupHeader),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Handler(groups.all_groups, AllGroupsHeader),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Handler(groups.group_config, GroupHeader),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Handler(groups.group_topics, GroupHeader),
    RequestCode.GET_CONSUME_STATS: Handler(groups.consume_stats, ConsumeStatsHeader),
    RequestCode.GET_BROKER_CONSUME_STATS: Handler(groups.all_consume_stats, AllStatsHeader),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Handler(groups.consume_times, GroupHeader),
    RequestCode.GET_BROKER_RUNTIME_INFO: Handler(admin.broker_info),
    RequestCode.GET_BROKER_CONFIG: Handler(admin.broker_config),
    RequestCode.UPDATE_BROKER_CONFIG: Handler(admin.update_config),
    RequestCode.VIEW_BROKER_STATS_DATA: Handler(admin.stats_data, StatisticsHeader),
    RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: Handler(admin.clean_store),
    RequestCode.DELETE_EXPIRED_COMMITLOG: Handler(admin.clean_store),
    RequestCode.TRIGGER_DELETE_FILES: Handler(admin.clean_store),
    RequestCode.CLEAN_UNUSED_TOPIC: Handler(admin.clean_unused_topics),
    RequestCode.QUERY_CONSUME_QUEUE: Handler(admin.queue_entries, ConsumeQueueHeader),
}


def dispatch(state: BrokerState, connection: Connection, command: Command) -> Command | None:
    """Carry out one request; None when the answer comes later or never."""
    handler = HANDLERS.get(command.code)
    if handler is None:
        return reply(
            command,
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            remark=f"request type {command.code} not supported",
        )

    def run() -> Outcome:
        request = Request(command, handler.header_of(command.ext), connection)
        return handler.run(request, state)

    outcome = attempt(run)
    if isinstance(outcome, Held):
        state.held.hold(outcome)
        return None
    if isinstance(outcome, Postponed):
        outcome.when(lambda fault: resume(state, connection, command, fault))
        return None
    if outcome is None or command.is_one_way:
        return None
    answer = outcome.command_for(command)
    if outcome.after is None or state.parked.is_safe(outcome.after):
        return answer
    state.parked.park(connection, answer.encode(), outcome.after)
    return None


def resume(
    state: BrokerState, connection: Connection, command: Command, fault: Exception | None
) -> None:
    """Carry out a postponed request, unless what it waited for went wrong."""
    if fault is None:
        answer = dispatch(state, connection, command)
    else:
        answer = reply(command, ResponseCode.SERVICE_NOT_AVAILABLE, remark=str(fault))
    if answer is not None and not command.is_one_way:
        connection.send(answer)
