"""Sends that are plain: placed in the log and answered, told in the order in which it happens.

`send_message` reads the request's fields, `place_one`, `place_aside` or `send_batch` places what it brings, and
`answer_send` writes the answer that `protocol.headers.send.SendReply` would be. Nothing is placed before everything
has been looked at.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ariane.kernel.batches cimport next_entry
from ariane.kernel.frames cimport (
    Field, Head, Output, ReplyFrame, begin_reply, end_header, is_true, named, needs_escape, number, put_name,
    put_number, put_text, unescape, wide_number, write_hex,
)
from ariane.kernel.lane cimport Lane, TopicSlot
from ariane.kernel.layout cimport BLANK_BYTES, Draft, Text, save32, save64, text_of
from ariane.kernel.log cimport NEEDS_QUEUE_ROOM, next_store_ms, place, record_size, tags_code_of
from ariane.kernel.properties cimport Properties, find_alike, find_properties, key_count, take_shape
from ariane.kernel.queue cimport Queue, has_entry_room
from ariane.kernel.reading cimport MESSAGES_PER_READ_MAX
from ariane.kernel.waiting cimport Shelf, Waiting

cdef enum:
    ONE_WAY_FLAG = 2
    # Messages with these bits of sysFlag are transactional or wrapped: not plain.
    NOT_PLAIN = 0x4 | 0x8 | 0x40 | 0x80

cdef Text NO_TEXT
NO_TEXT.at = NULL
NO_TEXT.size = 0


cdef bint find_letters(Head* head, Field** by_letter) noexcept nogil:
    """The fields of a send under their one-letter names, whichever spelling the client uses."""
    cdef int i, letter
    cdef Field* field
    for i in range(14):
        by_letter[i] = NULL
    for i in range(head.field_count):
        field = &head.fields[i]
        if head.code == SEND:
            letter = letter_of(field)
        else:
            letter = field.key.at[0] - c'a' if field.key.size == 1 else -1
            if named(field, "topic", 5):
                return False  # a V2 code with long names: the handler sorts it out
        if head.code == SEND and field.key.size == 1 and c'a' <= field.key.at[0] <= c'n':
            return False
        if 0 <= letter < 14:
            by_letter[letter] = field
    return True


cdef inline int letter_of(Field* field) noexcept nogil:
    """Which letter of SEND_MESSAGE_V2 a field of SEND_MESSAGE corresponds to; -1 for none."""
    if named(field, "producerGroup", 13): return 0
    if named(field, "topic", 5): return 1
    if named(field, "defaultTopic", 12): return 2
    if named(field, "defaultTopicQueueNums", 21): return 3
    if named(field, "queueId", 7): return 4
    if named(field, "sysFlag", 7): return 5
    if named(field, "bornTimestamp", 13): return 6
    if named(field, "flag", 4): return 7
    if named(field, "properties", 10): return 8
    if named(field, "reconsumeTimes", 14): return 9
    if named(field, "unitMode", 8): return 10
    if named(field, "maxReconsumeTimes", 17): return 11
    if named(field, "batch", 5): return 12
    return -1


cdef bint send_message(Lane lane, bytes born_host, Head* head, Text body) except -1:
    """Place what a request sends, and answer it; False, with nothing done, when it is not plain."""
    cdef Field* by_letter[14]
    cdef int64_t queue_id, system_flag, born_ms, flag, ignored, reconsume_times = 0
    cdef Text properties
    cdef Properties found
    cdef Draft draft
    cdef TopicSlot slot
    cdef Queue queue
    cdef bint is_batch = head.code == SEND_BATCH
    if not find_letters(head, by_letter) or by_letter[1] == NULL or by_letter[1].is_escaped:
        return False
    if (by_letter[0] == NULL or by_letter[2] == NULL or by_letter[6] == NULL
            or not number(by_letter[3], &ignored) or not number(by_letter[4], &queue_id)
            or not number(by_letter[5], &system_flag)
            or not wide_number(by_letter[6], &born_ms) or not number(by_letter[7], &flag)):
        return False
    if by_letter[9] != NULL and not number(by_letter[9], &reconsume_times):
        return False
    if by_letter[11] != NULL and not number(by_letter[11], &ignored):
        return False
    if (by_letter[10] != NULL and is_true(by_letter[10])) or system_flag & NOT_PLAIN:
        return False
    if (by_letter[12] != NULL and is_true(by_letter[12])) != is_batch:
        return False
    if body.size == 0 or body.size > lane.message_bytes_max:
        return False
    slot = lane.find_topic(by_letter[1].value)
    if slot is None or not 0 <= queue_id < PyList_GET_SIZE(slot.queues):
        return False
    queue = <Queue> slot.queues[queue_id]
    if queue is None:
        return False
    properties = NO_TEXT
    if by_letter[8] != NULL:
        properties = by_letter[8].value
        if by_letter[8].is_escaped:
            properties.size = unescape(properties, lane.scratch.text)
            properties.at = lane.scratch.text
            if properties.size < 0:
                return False
    find_properties(properties, &found)
    if found.is_special or needs_escape(found.unique_key):
        return False
    draft.topic = by_letter[1].value
    draft.born_host = text_of(born_host)
    draft.born_ms = born_ms
    draft.prepared_offset = 0
    draft.queue_id = <int32_t> queue_id
    draft.system_flag = <int32_t> system_flag
    draft.reconsume_times = <int32_t> reconsume_times
    if is_batch:
        if found.is_late:
            return False
        return send_batch(lane, head, body, slot, queue, &draft, &found)
    if found.unique_key.size == 0 or found.ends_open:
        return False
    draft.body = body
    draft.properties = properties
    draft.flag = <int32_t> flag
    if found.is_late:
        return place_aside(lane, head, &draft, &found)
    draft.suffix = text_of(lane.suffix)
    return place_one(lane, head, slot, queue, &draft, &found)


cdef bint place_one(Lane lane, Head* head, TopicSlot slot, Queue queue, Draft* draft, Properties* found) except -1:
    """Place a message and answer it."""
    cdef int64_t queue_offset = queue.end_offset
    cdef int64_t log_offset = append(lane, queue, draft, found)
    if log_offset < 0:
        return False
    slot.message_count += 1
    slot.byte_count += lane.log.end - log_offset
    lane.placed(queue)
    if not head.flag & ONE_WAY_FLAG:
        answer_send(lane, head, found, queue.queue_id, queue_offset, log_offset, NO_TEXT)
    return True


cdef bint place_aside(Lane lane, Head* head, Draft* draft, Properties* found) except -1:
    """Place a message where it waits; the answer names the queue that was asked for."""
    cdef Waiting waiting = lane.waiting
    cdef Text topic = draft.topic
    cdef Text handle = NO_TEXT
    cdef int32_t queue_id = draft.queue_id
    cdef Queue queue = waiting.set_aside(found, draft, lane.scratch.now_ms)
    cdef Shelf shelf
    if queue is None:
        return False
    cdef int64_t queue_offset = queue.end_offset
    cdef int64_t log_offset = append(lane, queue, draft, found)
    if log_offset < 0:
        return False
    if waiting.slot_ms >= 0:
        shelf = waiting.times
        lane.has_timed = True
        handle = waiting.handle(topic, found.unique_key)
    else:
        shelf = waiting.levels
    shelf.message_count += 1
    shelf.byte_count += lane.log.end - log_offset
    lane.placed(queue)
    if not head.flag & ONE_WAY_FLAG:
        answer_send(lane, head, found, queue_id, queue_offset, log_offset, handle)
    return True


cdef int64_t append(Lane lane, Queue queue, Draft* draft, Properties* found) except? -1:
    """Place a message; its log offset, or a Refusal and nothing was written."""
    cdef int64_t store_ms = next_store_ms(lane.log, lane.scratch.now_ms)
    cdef int64_t log_offset
    draft.keys = found.keys
    draft.unique_key = found.unique_key
    draft.tags_code = tags_code_of(lane.log, queue, found, store_ms)
    log_offset = place(lane.log, queue, lane.index, draft, store_ms)
    if log_offset == NEEDS_QUEUE_ROOM and lane.make_room(queue, 1):
        log_offset = place(lane.log, queue, lane.index, draft, store_ms)
    return log_offset


cdef int answer_send(Lane lane, Head* head, Properties* found, int32_t queue_id, int64_t queue_offset,
                     int64_t log_offset, Text handle) except -1:
    cdef ReplyFrame reply
    cdef Output output = output_for(lane, found)
    begin_reply(&reply, output.room(512 + found.unique_key.size + len(lane.region) + handle.size),
                head, 0, NO_TEXT)
    begin_send_reply(&reply, queue_id, found)
    put_message_ids(&reply, lane.host, &log_offset, 1)
    end_send_reply(lane, &reply, head, output, queue_offset, handle)
    return 0


cdef bint send_batch(Lane lane, Head* head, Text body, TopicSlot slot, Queue queue, Draft* draft,
                     Properties* wrapper) except -1:
    """Place every entry of a batch, once all have been looked at and all have room."""
    cdef int64_t[MESSAGES_PER_READ_MAX] log_offsets
    cdef int64_t queue_offset = queue.end_offset, store_ms, total = 0, keys_max = 0
    cdef int count = 0, i
    cdef Text rest = body
    cdef Properties* found
    cdef ReplyFrame reply
    cdef Output output
    draft.suffix = NO_TEXT
    while rest.size:
        if count == MESSAGES_PER_READ_MAX or not next_entry(&rest, draft):
            return False
        found = &lane.scratch.in_batch[count]
        if not find_alike(draft.properties, &lane.scratch.alike, found):
            find_properties(draft.properties, found)
            if count == 0:
                take_shape(draft.properties, &lane.scratch.alike)
        if found.is_special or found.is_late or draft.body.size == 0:
            return False
        total += record_size(lane.log, draft)
        keys_max += 2 + found.keys.size // 2
        count += 1
    if (lane.log.fault
            or lane.log.first_position + lane.log.count * lane.log.file_bytes - lane.log.end < total + BLANK_BYTES
            or not (has_entry_room(queue, count) or lane.make_room(queue, count))):
        return False
    if (lane.index is not None and lane.index.room() < keys_max
            and lane.index.room() < keys_of(lane, draft, count)):
        return False
    store_ms = next_store_ms(lane.log, lane.scratch.now_ms)
    rest = body
    for i in range(count):
        next_entry(&rest, draft)
        found = &lane.scratch.in_batch[i]
        draft.keys = found.keys
        draft.unique_key = found.unique_key
        draft.tags_code = tags_code_of(lane.log, queue, found, store_ms)
        log_offsets[i] = place(lane.log, queue, lane.index, draft, store_ms)
        if log_offsets[i] < 0:
            lane.show()
            raise AssertionError("a batch that fitted does not fit any more")
    slot.message_count += count
    slot.byte_count += total
    lane.placed(queue)
    if head.flag & ONE_WAY_FLAG:
        return True
    output = output_for(lane, wrapper)
    begin_reply(&reply, output.room(512 + wrapper.unique_key.size + len(lane.region) + 60 * count),
                head, 0, NO_TEXT)
    begin_send_reply(&reply, queue.queue_id, wrapper)
    put_message_ids(&reply, lane.host, log_offsets, count)
    end_send_reply(lane, &reply, head, output, queue_offset, NO_TEXT)
    return True


cdef void begin_send_reply(ReplyFrame* reply, int32_t queue_id, Properties* found) noexcept:
    """Fields in the order of `protocol.headers.send.SendReply`."""
    put_number(reply, "queueId", 7, queue_id)
    if found.unique_key.size:
        put_text(reply, "transactionId", 13, found.unique_key)


cdef int end_send_reply(Lane lane, ReplyFrame* reply, Head* head, Output output, int64_t queue_offset,
                        Text handle) except -1:
    put_bytes(reply, "TRACE_ON", 8, lane.trace)
    put_bytes(reply, "MSG_REGION", 10, lane.region)
    if handle.size:
        put_text(reply, "recallHandle", 12, handle)
    put_number(reply, "queueOffset", 11, queue_offset)
    end_header(reply, head, NO_TEXT, 0)
    output.size = reply.to - output.data
    return 0


cdef int64_t keys_of(Lane lane, Draft* draft, int count) noexcept nogil:
    """How many index entries the batch being placed makes."""
    cdef int64_t keys = 0
    cdef int i
    for i in range(count):
        draft.keys = lane.scratch.in_batch[i].keys
        draft.unique_key = lane.scratch.in_batch[i].unique_key
        keys += key_count(draft)
    return keys


cdef Output output_for(Lane lane, Properties* found):
    """Where the answer to a send goes: out at once, or to wait for the disk."""
    if lane.parks and found.waits:
        lane.scratch.later_offset = lane.log.end
        return lane.scratch.later
    return lane.scratch.now


cdef inline void put_bytes(ReplyFrame* reply, const char* name, Py_ssize_t size, bytes value) noexcept:
    cdef Text text
    text.at = <const uint8_t*> PyBytes_AS_STRING(value)
    text.size = len(value)
    put_text(reply, name, size, text)


cdef void put_message_ids(ReplyFrame* reply, bytes host, int64_t* log_offsets, int count) noexcept:
    """`msgId`: for each message the store host and its log offset in hexadecimal, comma-joined."""
    cdef uint8_t[8] offset
    cdef uint8_t* size_at
    cdef uint8_t* host_at = NULL
    cdef int i
    put_name(reply, "msgId", 5)
    size_at = reply.to
    if reply.is_binary:
        reply.to += 4
    for i in range(count):
        if i:
            reply.to[0] = c','
            memcpy(reply.to + 1, host_at, 2 * len(host))
            reply.to += 1 + 2 * len(host)
        else:
            host_at = reply.to
            reply.to = write_hex(reply.to, <const uint8_t*> PyBytes_AS_STRING(host), len(host))
        save64(offset, <int64_t> log_offsets[i])
        reply.to = write_hex(reply.to, offset, 8)
    if reply.is_binary:
        save32(size_at, <uint32_t> (reply.to - size_at - 4))
    else:
        reply.to[0] = c'"'
        reply.to += 1
