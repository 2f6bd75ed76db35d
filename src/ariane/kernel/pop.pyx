"""Pops and acknowledgements in the lane, and the checkpoints both are about.

What is plain takes the lane: a pop whose checks were all made before (a grant), of queues that each
have something for it, with nothing waiting in the retry topic; and the acknowledgement of messages
that are out. Everything else is declined with nothing done. The handlers in `broker/handlers` are the
specification, and the notes written here are those of `broker/pop/notes.py` to the byte
(tests/property/test_pop_lane.py).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from ariane.kernel.frames cimport (
    Cursor, Field, Head, Output, ReplyFrame, begin_reply, end_header, is_true, named, number_of, put_number, put_text,
    skip_blanks, take_char, take_plain, write_number, write_text,
)
from ariane.kernel.layout cimport BLANK_BYTES, Draft, Text, is_word, load64
from ariane.kernel.log cimport Log, next_store_ms, place, tags_code_of, visible_end
from ariane.kernel.properties cimport Properties, find_properties
from ariane.kernel.queue cimport Queue, has_entry_room
from ariane.kernel.reading cimport ReadLimits, ReadResult, Tags, read_entries

cdef enum:
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    BATCH_ACK_MESSAGE = 200151

cdef enum:
    POPPED_MAX = 32             # messages of one pop
    QUEUES_MAX = 64             # of a topic whose pops take the lane
    ACKED_MAX = 32              # checkpoints in one batch
    MESSAGES_MAX = 64           # of one checkpoint
    NOTE_BYTES = 4096           # more than the longest note
    TEXT_BYTES = 8192           # more than the longest list of offsets
    ROOM_BYTES = POPPED_MAX * NOTE_BYTES
    BROKER_NAME_BYTES_MAX = 1024
    LATE_MS_MAX = 500
    EARLIER_MS = 1000
    QUEUE_OFFSET_AT = 20        # in a record

cdef int64_t WIDE = 1 << 60
cdef int64_t INVISIBLE_MS_MAX = 3 * 24 * 3600 * 1000

cdef Text NO_TEXT
NO_TEXT.at = NULL
NO_TEXT.size = 0

cdef bytes _FOUND = b"FOUND"
cdef Text FOUND_REMARK
FOUND_REMARK.at = <const uint8_t*> PyBytes_AS_STRING(_FOUND)
FOUND_REMARK.size = 5


# One checkpoint of a batch acknowledgement.
cdef struct AckItem:
    Text bits
    Text group
    Text topic
    Text mark
    int64_t first
    int64_t popped_ms
    int64_t queue_id
    int64_t fields


cdef class Checkpoint:
    """Messages of one queue popped together; bit N of `settled` is for the Nth of them."""

    def __init__(self, key, int64_t invisible_ms, gaps, *, settled=0, int32_t attempts=0,
                 int32_t revive_queue_id=0, int64_t journal_offset=-1, int64_t log_offset=-1):
        self.topic, self.group, self.queue_id, self.first, self.popped_ms = key
        self.invisible_ms = invisible_ms
        distances = tuple(gaps)
        if not 0 < len(distances) <= MESSAGES_MAX:
            raise ValueError(f"a checkpoint of {len(distances)} messages; it has 1 to {MESSAGES_MAX}")
        self.count = len(distances)
        self.distances = None if distances == tuple(range(self.count)) else distances
        self.settled = settled
        self.attempts = attempts
        self.revive_queue_id = revive_queue_id
        self.journal_offset = journal_offset
        self.log_offset = log_offset

    @property
    def key(self) -> tuple:
        """What a consumer says to name it: topic, group, queue id, first offset, pop time."""
        return (self.topic, self.group, self.queue_id, self.first, self.popped_ms)

    @property
    def gaps(self) -> tuple:
        """How far from the first offset each message is."""
        return tuple(range(self.count)) if self.distances is None else self.distances

    @property
    def due_ms(self) -> int:
        """When what is not settled becomes visible again."""
        return self.popped_ms + self.invisible_ms

    @property
    def is_closed(self) -> bool:
        """Whether every message is settled."""
        return self.closed()

    def bit_of(self, int64_t queue_offset) -> int:
        """The bit of a message, or 0 when the checkpoint does not have it."""
        return self.bit(queue_offset)

    def open_offsets(self) -> list[int]:
        """The queue offsets of what is not settled."""
        return [self.first + gap for number, gap in enumerate(self.gaps) if not (self.settled >> number) & 1]

    def close(self) -> None:
        """Take every message as settled."""
        self.settled = full(self.count)

    def __repr__(self) -> str:
        return f"Checkpoint({self.key}, due_ms={self.due_ms}, open={self.open_offsets()})"

    cdef uint64_t bit(self, int64_t queue_offset):
        cdef int64_t distance = queue_offset - self.first
        if self.distances is None:
            return <uint64_t> 1 << distance if 0 <= distance < self.count else 0
        for number in range(self.count):
            if self.distances[number] == distance:
                return <uint64_t> 1 << number
        return 0

    cdef bint closed(self) noexcept:
        return self.settled == full(self.count)


cdef inline uint64_t full(int32_t count) noexcept nogil:
    return ~(<uint64_t> 0) if count == 64 else (<uint64_t> 1 << count) - 1


cdef class PopGrant:
    """Leave to pop or to acknowledge: the checks of one (group, topic, filter) were made and still hold.

    `offsets` are the group's live consume offsets, `queues` all queues that may be read.
    """

    def __init__(self, str topic not None, str group not None, list queues not None, dict offsets=None,
                 Tags tags=None, Queue retry_queue=None, dict retry_offsets=None):
        self.topic = topic
        self.group = group
        self.topic_text = topic.encode()
        self.group_text = group.encode()
        self.queues = queues
        self.offsets = offsets
        self.tags = tags
        self.retry_queue = retry_queue
        self.retry_offsets = retry_offsets


cdef class PopLane:
    """What pops and acknowledgements need of the broker.

    `open` has the open checkpoints by key, `revive_queues` and `known_ends` the journal's queues and
    how far each is known. `on_lent(checkpoint)` hears of a checkpoint whose note is written. `turn`
    counts the pops that found messages, here or in the handlers: it tells which queue is next.
    """

    def __init__(self, Log log not None, *, dict open not None, list revive_queues not None,
                 list known_ends not None, on_lent, bytes revive_topic not None, bytes host not None,
                 bytes broker_name not None):
        if len(broker_name) > BROKER_NAME_BYTES_MAX:
            raise ValueError(f"a broker name of {len(broker_name)} bytes is too long for the notes")
        self.log = log
        self.open = open
        self.revive_queues = revive_queues
        self.known_ends = known_ends
        self.on_lent = on_lent
        self.revive_topic = revive_topic
        self.host = host
        self.broker_name = broker_name
        self.pops = {}
        self.acks = {}
        self.note = <uint8_t*> PyMem_Malloc(NOTE_BYTES)
        self.text = <uint8_t*> PyMem_Malloc(TEXT_BYTES)
        if self.note == NULL or self.text == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.note)
        PyMem_Free(self.text)

    def configure(self, *, int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max,
                  int32_t disk_count_max, int64_t disk_bytes_max, int64_t memory_window,
                  int64_t scan_count_max) -> None:
        """Take over settings: where reads stop."""
        self.limits = ReadLimits(0, bytes_max, memory_count_max, memory_bytes_max, disk_count_max,
                                 disk_bytes_max, memory_window, scan_count_max)

    def forget(self) -> None:
        """Take back every grant: something a check looked at has changed."""
        self.pops.clear()
        self.acks.clear()
        self.last = None

    cdef bint carry_out(self, Head* head, Text body, int64_t now_ms, Output output) except -1:
        """Do what a frame asks; False, with nothing done, when it is not for the lane."""
        cdef bint is_done = False
        if head.code == POP_MESSAGE:
            is_done = self.pop(head, now_ms, output)
        elif head.code == ACK_MESSAGE:
            is_done = self.ack(head, now_ms, output)
        elif head.code == BATCH_ACK_MESSAGE:
            is_done = self.batch_ack(head, body, now_ms, output)
        self.hot_count += is_done
        return is_done

    # ------------------------------------------------------------ pop

    cdef bint pop(self, Head* head, int64_t now_ms, Output output) except -1:
        cdef Field* group = NULL
        cdef Field* topic = NULL
        cdef Field* expression = NULL
        cdef Field* field
        cdef int64_t queue_id = -2, count_max = -1, invisible_ms = -1, poll_ms = -1, born_ms = -1, ignored
        cdef int i
        for i in range(head.field_count):
            field = &head.fields[i]
            if named(field, "consumerGroup", 13):
                group = field
            elif named(field, "topic", 5):
                topic = field
            elif named(field, "queueId", 7):
                if not number_of(field, -1, 1 << 20, &queue_id):
                    return False
            elif named(field, "maxMsgNums", 10):
                if not number_of(field, 1, POPPED_MAX, &count_max):
                    return False
            elif named(field, "invisibleTime", 13):
                if not number_of(field, 0, INVISIBLE_MS_MAX, &invisible_ms):
                    return False
            elif named(field, "pollTime", 8):
                if not number_of(field, 0, WIDE, &poll_ms):
                    return False
            elif named(field, "bornTime", 8):
                if not number_of(field, 1, WIDE, &born_ms):
                    return False
            elif named(field, "initMode", 8):
                if not number_of(field, -2147483648, 2147483647, &ignored):
                    return False
            elif named(field, "expType", 7):
                if field.value.size and not is_word(field.value, "TAG", 3):
                    return False
            elif named(field, "exp", 3):
                expression = field
            elif named(field, "order", 5):
                if is_true(field):
                    return False
        if (group == NULL or topic == NULL or queue_id < -1 or count_max < 0 or invisible_ms < 0 or poll_ms < 0
                or born_ms < 0 or now_ms - born_ms - poll_ms > LATE_MS_MAX or group.is_escaped or topic.is_escaped
                or (expression != NULL and expression.is_escaped)):
            return False
        cdef PopGrant grant = self.pops.get(pop_key(group.value, topic.value, expression))
        if grant is None or grant.offsets is None:
            return False
        cdef Taken[POPPED_MAX] taken
        cdef Text[POPPED_MAX] slices
        cdef int64_t rest = 0, byte_count = 0
        cdef int32_t message_count = 0
        cdef int taken_count = self.look(grant, queue_id, count_max, taken, slices, &rest, &message_count)
        if taken_count <= 0:
            return False
        cdef int32_t revive_queue_id = <int32_t> (self.turn % PyList_GET_SIZE(self.revive_queues))
        cdef Queue revive_queue = <Queue> self.revive_queues[revive_queue_id]
        if not self.has_room(revive_queue, taken_count) or self.known_ends[revive_queue_id] != revive_queue.end_offset:
            return False
        for i in range(taken_count):
            if (grant.topic, grant.group, taken[i].queue_id, taken[i].first, now_ms) in self.open:
                return False
        for i in range(taken_count):
            self.lend(grant, revive_queue, &taken[i], now_ms, invisible_ms, revive_queue_id)
            byte_count += taken[i].bytes
        self.turn += 1
        grant.message_count += message_count
        grant.byte_count += byte_count
        self.answer_pop(head, output, taken, taken_count, slices, message_count, byte_count, now_ms, invisible_ms,
                        revive_queue_id, rest)
        return True

    cdef int look(self, PopGrant grant, int64_t queue_id, int64_t count_max, Taken* taken, Text* slices,
                  int64_t* rest, int32_t* message_count) except -1:
        """Find messages without changing anything; how many queues give some, 0 when that is not plain."""
        cdef Py_ssize_t queue_count = PyList_GET_SIZE(grant.queues)
        cdef Py_ssize_t start = 0, looked = 1, n
        cdef Queue queue
        cdef PyObject* known
        cdef int64_t first, end
        cdef int32_t room
        cdef int count = 0
        cdef ReadLimits limits = self.limits
        cdef ReadResult result
        if grant.retry_queue is not None:
            known = PyDict_GetItem(grant.retry_offsets, 0)
            if known == NULL or <object> known != grant.retry_queue.end_offset:
                return 0
        if queue_id >= queue_count or queue_count > QUEUES_MAX:
            return 0
        if queue_id < 0:
            start = self.turn % queue_count if queue_count else 0
            looked = queue_count
        for n in range(looked):
            if queue_id < 0:
                queue = <Queue> grant.queues[(start + n) % queue_count]
            else:
                queue = <Queue> grant.queues[queue_id]
            known = PyDict_GetItem(grant.offsets, queue.queue_id)
            if known == NULL:
                return 0
            first = <object> known
            end = visible_end(self.log, queue)
            if first < queue.min_offset or first > end:
                return 0
            room = <int32_t> (count_max - message_count[0])
            if room <= 0 or first == end:
                rest[0] += end - first
                continue
            limits.count_max = room
            read_entries(self.log, queue, first, grant.tags, &limits, slices + message_count[0], &result)
            if result.count == 0:
                return 0
            taken[count].queue_id = queue.queue_id
            taken[count].count = result.count
            taken[count].first = first
            taken[count].next_offset = result.next_offset
            taken[count].bytes = result.bytes
            taken[count].slices = slices + message_count[0]
            rest[0] += end - result.next_offset
            message_count[0] += result.count
            count += 1
        return count

    cdef int lend(self, PopGrant grant, Queue queue, Taken* taken, int64_t now_ms, int64_t invisible_ms,
                  int32_t revive_queue_id) except -1:
        """Write the note of one queue's messages and move the group on."""
        cdef uint8_t* to = self.note
        cdef Text* slices = taken.slices
        cdef int32_t i
        cdef int64_t log_offset, journal_offset = queue.end_offset
        cdef bint is_whole = taken.next_offset - taken.first == taken.count
        cdef Checkpoint checkpoint = Checkpoint.__new__(Checkpoint)
        distances = None if is_whole else tuple(
            [<int64_t> load64(slices[i].at + QUEUE_OFFSET_AT) - taken.first for i in range(taken.count)])
        to = write_text(to, '{"bm":0,"bn":', 13)
        to = put(to, self.broker_name)
        to = write_text(to, ',"c":"', 6)
        to = put(to, grant.group_text)
        to = write_text(to, '","d":[', 7)
        for i in range(taken.count):
            if i:
                to[0] = c','
                to += 1
            to = write_number(to, i if is_whole else <int64_t> load64(slices[i].at + QUEUE_OFFSET_AT) - taken.first)
        to = write_text(to, '],"it":', 7)
        to = write_number(to, invisible_ms)
        to = write_text(to, ',"n":', 5)
        to = write_number(to, taken.count)
        to = write_text(to, ',"pt":', 6)
        to = write_number(to, now_ms)
        to = write_text(to, ',"q":', 5)
        to = write_number(to, taken.queue_id)
        to = write_text(to, ',"ro":0,"so":', 13)
        to = write_number(to, taken.first)
        to = write_text(to, ',"t":"', 6)
        to = put(to, grant.topic_text)
        to = write_text(to, '","xn":', 7)
        to = write_number(to, taken.next_offset)
        to[0] = c'}'
        to += 1
        log_offset = self.append(queue, to - self.note, "ck", 2, now_ms + invisible_ms - EARLIER_MS, now_ms)
        checkpoint.topic = grant.topic
        checkpoint.group = grant.group
        checkpoint.queue_id = taken.queue_id
        checkpoint.first = taken.first
        checkpoint.popped_ms = now_ms
        checkpoint.invisible_ms = invisible_ms
        checkpoint.count = taken.count
        checkpoint.distances = distances
        checkpoint.revive_queue_id = revive_queue_id
        checkpoint.journal_offset = journal_offset
        checkpoint.log_offset = log_offset
        self.known_ends[revive_queue_id] = queue.end_offset
        self.on_lent(checkpoint)
        grant.offsets[taken.queue_id] = taken.next_offset
        return 0

    cdef int answer_pop(self, Head* head, Output output, Taken* taken, int taken_count, Text* slices,
                        int32_t message_count, int64_t byte_count, int64_t now_ms, int64_t invisible_ms,
                        int32_t revive_queue_id, int64_t rest) except -1:
        """Fields in the order of `protocol.headers.pop.PopReply`, then the records as they lie in the log."""
        cdef ReplyFrame reply
        cdef uint8_t* to
        cdef Text text
        cdef int32_t i, k
        begin_reply(&reply, output.room(1024 + TEXT_BYTES + byte_count), head, 0, FOUND_REMARK)
        put_number(&reply, "popTime", 7, now_ms)
        put_number(&reply, "invisibleTime", 13, invisible_ms)
        put_number(&reply, "reviveQid", 9, revive_queue_id)
        put_number(&reply, "restNum", 7, rest)
        to = self.text
        for i in range(taken_count):
            to = begin_element(to, i, taken[i].queue_id)
            to = write_number(to, taken[i].first)
        text.at = self.text
        text.size = to - self.text
        put_text(&reply, "startOffsetInfo", 15, text)
        to = self.text
        for i in range(taken_count):
            to = begin_element(to, i, taken[i].queue_id)
            for k in range(taken[i].count):
                if k:
                    to[0] = c','
                    to += 1
                to = write_number(to, <int64_t> load64(taken[i].slices[k].at + QUEUE_OFFSET_AT))
        text.size = to - self.text
        put_text(&reply, "msgOffsetInfo", 13, text)
        end_header(&reply, head, FOUND_REMARK, byte_count)
        to = reply.to
        for k in range(message_count):
            memcpy(to, slices[k].at, slices[k].size)
            to += slices[k].size
        output.size = to - output.data
        return 0

    # ------------------------------------------------------------ acknowledgements

    cdef bint ack(self, Head* head, int64_t now_ms, Output output) except -1:
        cdef Field* group = NULL
        cdef Field* topic = NULL
        cdef Field* handle = NULL
        cdef Field* field
        cdef int64_t queue_id = -1, queue_offset = -1, first, popped_ms, ignored
        cdef Field[6] words
        cdef int i
        for i in range(head.field_count):
            field = &head.fields[i]
            if named(field, "consumerGroup", 13):
                group = field
            elif named(field, "topic", 5):
                topic = field
            elif named(field, "queueId", 7):
                if not number_of(field, 0, 1 << 20, &queue_id):
                    return False
            elif named(field, "offset", 6):
                if not number_of(field, 0, WIDE, &queue_offset):
                    return False
            elif named(field, "extraInfo", 9):
                handle = field
        if (group == NULL or topic == NULL or handle == NULL or queue_id < 0 or queue_offset < 0
                or group.is_escaped or topic.is_escaped or handle.is_escaped):
            return False
        if not split_words(handle.value, words, 6):
            return False
        if (not number_of(&words[0], 0, WIDE, &first) or not number_of(&words[1], 0, WIDE, &popped_ms)
                or not number_of(&words[2], 0, WIDE, &ignored) or not number_of(&words[3], 0, 998, &ignored)):
            return False
        cdef PopGrant grant = self.ack_grant(group.value, topic.value)
        cdef Checkpoint checkpoint = self.find(grant, queue_id, first, popped_ms)
        if checkpoint is None:
            return False
        cdef uint64_t bits = checkpoint.bit(queue_offset) & ~checkpoint.settled
        if (bits == 0 or queue_offset < (<Queue> grant.queues[queue_id]).min_offset
                or not self.can_settle(checkpoint, 1)):
            return False
        self.settle(grant, checkpoint, bits, now_ms)
        answer(head, output)
        return True

    cdef bint batch_ack(self, Head* head, Text body, int64_t now_ms, Output output) except -1:
        cdef AckItem[ACKED_MAX] items
        cdef uint64_t[ACKED_MAX] bits
        cdef uint64_t named_bits
        cdef int count = scan_acks(body, items), i
        cdef PopGrant grant
        cdef Checkpoint checkpoint
        if count <= 0:
            return False
        found, grants = [], []
        for i in range(count):
            if items[i].mark.size != 1 or items[i].mark.at[0] != c'0':
                return False
            grant = self.ack_grant(items[i].group, items[i].topic)
            checkpoint = self.find(grant, items[i].queue_id, items[i].first, items[i].popped_ms)
            if checkpoint is None or checkpoint.distances is not None or not decode_bits(items[i].bits, &named_bits):
                return False
            # A bit that stands for nothing, or is settled, needs another look.
            if named_bits == 0 or named_bits & ~full(checkpoint.count) or named_bits & checkpoint.settled:
                return False
            if (checkpoint in found or checkpoint.first < (<Queue> grant.queues[items[i].queue_id]).min_offset
                    or not self.can_settle(checkpoint, count)):
                return False
            bits[i] = named_bits
            found.append(checkpoint)
            grants.append(grant)
        for i in range(count):
            self.settle(<PopGrant> grants[i], <Checkpoint> found[i], bits[i], now_ms)
        answer(head, output)
        return True

    cdef PopGrant ack_grant(self, Text group, Text topic):
        cdef PopGrant grant = self.last
        if grant is not None and is_text(grant.topic_text, topic) and is_text(grant.group_text, group):
            return grant
        grant = self.acks.get(ack_key(group, topic))
        if grant is not None:
            self.last = grant
        return grant

    cdef Checkpoint find(self, PopGrant grant, int64_t queue_id, int64_t first, int64_t popped_ms):
        """The open checkpoint that is meant, if the queue is one of those granted."""
        if grant is None or queue_id >= PyList_GET_SIZE(grant.queues):
            return None
        cdef PyObject* found = PyDict_GetItem(self.open, (grant.topic, grant.group, queue_id, first, popped_ms))
        return None if found == NULL else <Checkpoint> found

    cdef bint can_settle(self, Checkpoint checkpoint, int64_t count) except -1:
        cdef int32_t queue_id = checkpoint.revive_queue_id
        if not 0 <= queue_id < PyList_GET_SIZE(self.revive_queues):
            return False
        cdef Queue queue = <Queue> self.revive_queues[queue_id]
        return self.has_room(queue, count) and self.known_ends[queue_id] == queue.end_offset

    cdef int settle(self, PopGrant grant, Checkpoint checkpoint, uint64_t bits, int64_t now_ms) except -1:
        """Write the note of settled messages; the caller has made sure of room and that they are open."""
        cdef Queue queue = <Queue> self.revive_queues[checkpoint.revive_queue_id]
        cdef uint8_t* to = self.note
        cdef int32_t i
        cdef bint is_one = bits & (bits - 1) == 0, is_first = True
        to = write_text(to, '{"ao":', 6)
        if not is_one:
            to = write_text(to, '-1,"aol":[', 10)
        for i in range(checkpoint.count):
            if not (bits >> i) & 1:
                continue
            if not is_first:
                to[0] = c','
                to += 1
            is_first = False
            to = write_number(
                to, checkpoint.first + (i if checkpoint.distances is None else <int64_t> checkpoint.distances[i]))
        if not is_one:
            to[0] = c']'
            to += 1
        to = write_text(to, ',"bn":', 6)
        to = put(to, self.broker_name)
        to = write_text(to, ',"c":"', 6)
        to = put(to, grant.group_text)
        to = write_text(to, '","pt":', 7)
        to = write_number(to, checkpoint.popped_ms)
        to = write_text(to, ',"q":', 5)
        to = write_number(to, checkpoint.queue_id)
        to = write_text(to, ',"so":', 6)
        to = write_number(to, checkpoint.first)
        to = write_text(to, ',"t":"', 6)
        to = put(to, grant.topic_text)
        to = write_text(to, '"}', 2)
        if is_one:
            self.append(queue, to - self.note, "ack", 3, checkpoint.popped_ms + checkpoint.invisible_ms, now_ms)
        else:
            self.append(queue, to - self.note, "bAck", 4, checkpoint.popped_ms + checkpoint.invisible_ms, now_ms)
        self.known_ends[checkpoint.revive_queue_id] = queue.end_offset
        checkpoint.settled |= bits
        if checkpoint.closed():
            PyDict_DelItem(self.open, checkpoint.key)
        return 0

    # ------------------------------------------------------------ the journal

    cdef bint has_room(self, Queue queue, int64_t count) noexcept:
        """Whether so many notes fit for certain."""
        cdef int64_t free = self.log.first_position + self.log.count * self.log.file_bytes - self.log.end
        return free >= ROOM_BYTES + BLANK_BYTES and has_entry_room(queue, count)

    cdef int64_t append(self, Queue queue, int64_t body_size, const char* tag, Py_ssize_t tag_size,
                        int64_t deliver_ms, int64_t now_ms) except -100:
        """Place a note whose body lies in `self.note`; its log offset."""
        cdef uint8_t* properties = self.note + body_size
        cdef uint8_t* to = properties
        cdef Draft draft
        cdef Properties found
        to = write_text(to, "TAGS\x01", 5)
        to = write_text(to, tag, tag_size)
        to = write_text(to, "\x02TIMER_DELIVER_MS\x01", 18)
        to = write_number(to, deliver_ms if deliver_ms > 0 else 0)
        to[0] = 2
        to += 1
        draft.topic = text_of(self.revive_topic)
        draft.body.at = self.note
        draft.body.size = body_size
        draft.properties.at = properties
        draft.properties.size = to - properties
        draft.suffix = NO_TEXT
        draft.born_host = text_of(self.host)
        draft.keys = NO_TEXT
        draft.unique_key = NO_TEXT
        draft.born_ms = now_ms
        draft.prepared_offset = 0
        draft.queue_id = queue.queue_id
        draft.flag = draft.system_flag = draft.reconsume_times = 0
        find_properties(draft.properties, &found)
        cdef int64_t store_ms = next_store_ms(self.log, now_ms)
        draft.tags_code = tags_code_of(self.log, queue, &found, store_ms)
        cdef int64_t log_offset = place(self.log, queue, None, &draft, store_ms)
        if log_offset < 0:
            raise AssertionError("a note that fitted does not fit any more")
        return log_offset


def pop_key_of(group: bytes, topic: bytes, expression: bytes) -> bytes:
    """What a grant to pop is found by."""
    return group + b"\0" + topic + b"\1" + expression


def ack_key_of(group: bytes, topic: bytes) -> bytes:
    """What a grant to acknowledge is found by."""
    return group + b"\0" + topic


cdef bytes pop_key(Text group, Text topic, Field* expression):
    cdef Py_ssize_t more = 0 if expression == NULL else expression.value.size
    cdef bytes key = PyBytes_FromStringAndSize(NULL, group.size + topic.size + 2 + more)
    cdef uint8_t* to = <uint8_t*> PyBytes_AS_STRING(key)
    memcpy(to, group.at, group.size)
    to += group.size
    to[0] = 0
    memcpy(to + 1, topic.at, topic.size)
    to += 1 + topic.size
    to[0] = 1
    if more:
        memcpy(to + 1, expression.value.at, more)
    return key


cdef bytes ack_key(Text group, Text topic):
    cdef bytes key = PyBytes_FromStringAndSize(NULL, group.size + topic.size + 1)
    cdef uint8_t* to = <uint8_t*> PyBytes_AS_STRING(key)
    memcpy(to, group.at, group.size)
    to[group.size] = 0
    memcpy(to + group.size + 1, topic.at, topic.size)
    return key


cdef int answer(Head* head, Output output) except -1:
    """Success, and nothing more."""
    cdef ReplyFrame reply
    begin_reply(&reply, output.room(512), head, 0, NO_TEXT)
    end_header(&reply, head, NO_TEXT, 0)
    output.size = reply.to - output.data
    return 0


cdef inline uint8_t* begin_element(uint8_t* to, int32_t number, int32_t queue_id) noexcept nogil:
    """`0 QUEUE ` of a list of queues, after a semicolon unless it is the first."""
    if number:
        to[0] = c';'
        to += 1
    to = write_text(to, "0 ", 2)
    to = write_number(to, queue_id)
    to[0] = c' '
    return to + 1


cdef inline uint8_t* put(uint8_t* to, bytes text) noexcept:
    memcpy(to, PyBytes_AS_STRING(text), len(text))
    return to + len(text)


cdef inline Text text_of(bytes value):
    return Text(<const uint8_t*> PyBytes_AS_STRING(value), len(value))


cdef inline bint is_text(bytes value, Text text) noexcept:
    return len(value) == text.size and memcmp(PyBytes_AS_STRING(value), text.at, text.size) == 0


cdef bint split_words(Text text, Field* words, int count) noexcept nogil:
    """The first words of a text, one blank between each; False when there are fewer."""
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef int i
    for i in range(count):
        words[i].is_escaped = False
        words[i].value.at = at
        while at < end and at[0] != c' ':
            at += 1
        words[i].value.size = at - words[i].value.at
        if at < end:
            at += 1
        elif i < count - 1:
            return False
    return True


# ---------------------------------------------------------------- batch bodies


cdef bint take_number(Cursor* c, int64_t* value) noexcept nogil:
    cdef Field field
    skip_blanks(c)
    field.is_escaped = False
    field.value.at = c.at
    while c.at < c.end and c'0' <= c.at[0] <= c'9':
        c.at += 1
    field.value.size = c.at - field.value.at
    return number_of(&field, 0, WIDE, value)


cdef int scan_acks(Text body, AckItem* items) noexcept nogil:
    """Read a batch acknowledgement in its short names; how many items, 0 when it is not of the plain shape."""
    cdef Cursor c
    cdef Text key, ignored
    cdef int count = 0
    c.at = body.at
    c.end = body.at + body.size
    c.seen = 0
    if not take_char(&c, c'{'):
        return 0
    while True:
        if not take_plain(&c, &key) or not take_char(&c, c':'):
            return 0
        if key.size == 4 and memcmp(key.at, <const char*> "acks", 4) == 0:
            if count or not take_char(&c, c'['):
                return 0
            while True:
                if count == ACKED_MAX or not scan_item(&c, &items[count]):
                    return 0
                count += 1
                if take_char(&c, c','):
                    continue
                if not take_char(&c, c']'):
                    return 0
                break
        elif key.size == 10 and memcmp(key.at, <const char*> "brokerName", 10) == 0:
            if not take_plain(&c, &ignored):
                return 0
        else:
            return 0
        if take_char(&c, c','):
            continue
        if not take_char(&c, c'}'):
            return 0
        skip_blanks(&c)
        return count if c.at == c.end else 0


cdef bint scan_item(Cursor* c, AckItem* item) noexcept nogil:
    cdef Text key
    cdef int64_t ignored
    item.fields = 0
    if not take_char(c, c'{'):
        return False
    while True:
        if not take_plain(c, &key) or not take_char(c, c':'):
            return False
        if key.size == 1 and key.at[0] == c'b':
            if not take_plain(c, &item.bits):
                return False
            item.fields |= 1
        elif key.size == 1 and key.at[0] == c'c':
            if not take_plain(c, &item.group):
                return False
            item.fields |= 2
        elif key.size == 1 and key.at[0] == c't':
            if not take_plain(c, &item.topic):
                return False
            item.fields |= 4
        elif key.size == 1 and key.at[0] == c'r':
            if not take_plain(c, &item.mark):
                return False
            item.fields |= 8
        elif key.size == 1 and key.at[0] == c'q':
            if not take_number(c, &item.queue_id) or item.queue_id > 1 << 20:
                return False
            item.fields |= 16
        elif key.size == 2 and key.at[0] == c's' and key.at[1] == c'o':
            if not take_number(c, &item.first):
                return False
            item.fields |= 32
        elif key.size == 2 and key.at[0] == c'p' and key.at[1] == c't':
            if not take_number(c, &item.popped_ms):
                return False
            item.fields |= 64
        elif key.size == 2 and key.at[0] == c'r' and key.at[1] == c'q':
            if not take_number(c, &ignored) or ignored > 998:
                return False
            item.fields |= 128
        elif key.size == 2 and key.at[0] == c'i' and key.at[1] == c't':
            if not take_number(c, &ignored):
                return False
        else:
            return False
        if take_char(c, c','):
            continue
        return take_char(c, c'}') and item.fields == 255


cdef bint decode_bits(Text text, uint64_t* bits) noexcept nogil:
    """Base64 of up to eight bytes, the lowest first; False for anything else."""
    cdef uint8_t[12] decoded
    cdef uint32_t word = 0
    cdef int size = 0, i, k, value
    cdef uint8_t letter
    if text.size == 0 or text.size % 4 or text.size > 12:
        return False
    for i in range(text.size):
        letter = text.at[i]
        if c'A' <= letter <= c'Z':
            value = letter - c'A'
        elif c'a' <= letter <= c'z':
            value = letter - c'a' + 26
        elif c'0' <= letter <= c'9':
            value = letter - c'0' + 52
        elif letter == c'+':
            value = 62
        elif letter == c'/':
            value = 63
        else:
            break
        word = word << 6 | value
        if i % 4 == 3:
            decoded[size] = <uint8_t> (word >> 16)
            decoded[size + 1] = <uint8_t> (word >> 8)
            decoded[size + 2] = <uint8_t> word
            size += 3
            word = 0
    else:
        i = <int> text.size
    k = <int> text.size - i  # what is left must be the padding
    if k:
        if k > 2 or text.at[text.size - 1] != c'=' or (k == 2 and text.at[text.size - 2] != c'='):
            return False
        if k == 1:
            decoded[size] = <uint8_t> (word >> 10)
            decoded[size + 1] = <uint8_t> (word >> 2)
            size += 2
        else:
            decoded[size] = <uint8_t> (word >> 4)
            size += 1
    bits[0] = 0
    for i in range(size):
        if i >= 8:
            if decoded[i]:
                return False
        else:
            bits[0] |= <uint64_t> decoded[i] << (8 * i)
    return True
