"""What brokers answer to sends, read."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from ariane.client.hot_sends import Target
from ariane.client.messages import SendReceipt, SendStatus
from ariane.codes import ResponseCode
from ariane.errors import RequestFailed
from ariane.protocol.command import Command
from ariane.protocol.headers import decode_header
from ariane.protocol.headers.send import SendReply

STORED: Final = {
    ResponseCode.SUCCESS: SendStatus.OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
}


def receipts_of(
    answer: Command, target: Target, message_ids: str | list[str]
) -> SendReceipt | list[SendReceipt]:
    """What an answer says; raises RequestFailed when the message was not stored."""
    try:
        status = STORED[ResponseCode(answer.code)]
    except (KeyError, ValueError):
        remark = f"{answer.remark or ''} [{target.address}]".strip()
        raise RequestFailed.of(answer.code, remark) from None
    stored = decode_header(SendReply, answer.ext)
    queue = target.queue
    if queue.queue_id != stored.queue_id:
        queue = replace(queue, queue_id=stored.queue_id)
    region = None if stored.trace_on == "false" else stored.region

    def receipt(message_id: str, offset_id: str, queue_offset: int) -> SendReceipt:
        return SendReceipt(
            status,
            message_id,
            offset_id,
            queue,
            queue_offset,
            None if is_batch else stored.transaction_id,
            stored.recall_handle,
            region,
        )

    is_batch = not isinstance(message_ids, str)
    if isinstance(message_ids, str):
        return receipt(message_ids, stored.message_id, stored.queue_offset)
    offset_ids = stored.message_id.split(",")
    if len(offset_ids) != len(message_ids):  # a broker that keeps a batch as one record
        offset_ids = [stored.message_id] * len(message_ids)
    return [
        receipt(message_id, offset_id, stored.queue_offset + number)
        for number, (message_id, offset_id) in enumerate(zip(message_ids, offset_ids, strict=True))
    ]
