"""One connection being served: plain sends and pulls are answered in one compiled call per read.

A frame takes the lane when everything about it is plain: a known open topic, a queue with room, no
property that asks for more; or a pull that Python has granted before and that finds messages. Any
other frame is handed back, in its place in the stream, as a Command for the broker's handlers. Those
handlers are the specification: for a frame both can carry out, the bytes on disk and on the wire
are the same (tests/property/test_lane.py).

A read goes from `readable` to `received`, `work`, `carry_out`, and back to `finish`. Answers gather in the lane's
scratch and leave in one write when the bytes of a read are used up. Messages that come alone in their read share the
write to the log, and their answers leave when it is made (`Lane.end_round`); answers to messages that must reach the
disk first leave by `park`, with the log offset they wait for. While the peer takes its answers too slowly, nothing
more of what it asked for is carried out.

Invariants: an idle session owns no memory but its own; bytes that wait are in a buffer of the session's, and counted;
a session that raised is closed, and no other has lost or got an answer by it.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from ariane.errors import FrameError, ProtocolError
from ariane.kernel.frames cimport (
    Field, Head, Output, ReplyFrame, begin_reply, end_header, is_true, named, needs_escape, number_of, put_name,
    put_number, put_text, scan_binary, scan_json, unescape, write_hex,
)
from ariane.kernel.lane cimport READ_BYTES_MAX, Asked, Grant, HeldPull, Lane, Scratch, TopicSlot
from ariane.kernel.layout cimport BLANK_BYTES, Text, is_word, load32, save32, save64, text_of
from ariane.kernel.log cimport (
    MESSAGES_PER_READ_MAX, NEEDS_QUEUE_ROOM, Draft, Properties, find_alike, find_properties, key_count, next_entry,
    next_store_ms, place, record_size, tags_code_of, take_shape,
)
from ariane.kernel.queue cimport Queue, has_entry_room
from ariane.kernel.sockets cimport Channel
from ariane.kernel.waiting cimport Shelf, Waiting

cdef enum:
    SEND = 10
    PULL = 11
    SEND_V2 = 310
    SEND_BATCH = 320
    LITE_PULL = 361
    POP = 200050

cdef enum:
    RESPONSE_FLAG = 1
    ONE_WAY_FLAG = 2
    COMMIT_OFFSET = 1
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    # Messages with these bits of sysFlag are transactional or wrapped: not plain.
    NOT_PLAIN = 0x4 | 0x8 | 0x40 | 0x80

cdef enum:
    SHARE_BYTES = 1 << 16       # of a read, unless a frame needs more: others are to have their turn
    ANSWERS_BYTES_MAX = 1 << 20 # for one read, for the same reason: then we go on a little later
    SPARE_BYTES_MAX = 1 << 16   # that a buffer may have and not use
    REPLY_BYTES_MAX = 1 << 20   # gathered before they are handed over anyway, so that a slow peer is noticed
    SHARED_BYTES_MAX = 1 << 13  # of messages: more are worth a write of their own, and replies at once
    READS_BYTES_MAX = 1 << 13   # of messages: the peer unpacks them while the next are looked up

cdef int64_t WIDE = 1 << 60

cdef Text NO_TEXT
NO_TEXT.at = NULL
NO_TEXT.size = 0


# A whole frame whose header has been read.
cdef struct Frame:
    uint8_t* start
    uint8_t* end
    Text body
    bint is_plain           # the header has the plain shape, and the lane is open
    Head head


@cython.final
cdef class Session:
    """One connection, to whoever reads for it or to the poller; see `protocol.command.FrameReader`.

    `peer` is the connection: it has the way out when there is no `channel`, and is told what is not for the lane.
    `after_round(callback)` calls when all sockets that are ready have been read; None: nobody reads with us.
    """

    cdef Lane lane
    cdef object peer
    cdef Channel channel            # to read from and to write to; None: others read, and say `received`
    cdef object after_round
    cdef bytes born_host
    cdef uint8_t* at                # bytes still to be worked on: in the scratch during a read, else in our own buffer
    cdef uint8_t* end
    cdef uint8_t* own
    cdef Py_ssize_t own_size
    cdef bytes answers              # of this round, until its messages are in the file
    cdef bytes parked               # those of them that wait for the disk then, as far as `parked_offset`
    cdef int64_t parked_offset
    cdef int64_t now_ms
    cdef readonly int64_t frame_count
    cdef bint is_closed

    def __init__(self, Lane lane not None, peer not None, bytes born_host not None, *, Channel channel, after_round):
        if len(born_host) not in (8, 20):
            raise ValueError("a born host is 4 or 16 address bytes and a 4-byte port")
        self.lane = lane
        self.peer = peer
        self.born_host = born_host
        self.channel = channel
        self.after_round = after_round

    def __dealloc__(self):
        PyMem_Free(self.own)

    @property
    def partial_bytes(self) -> int:
        """Bytes that have been read and not worked on: of a frame that is not complete, or of frames that must wait."""
        return self.end - self.at

    def get_buffer(self, size_hint) -> memoryview:
        """Where the next bytes go: one buffer for all sessions, since they are used up at once."""
        return self.lane.scratch.view

    def close(self) -> None:
        """Forget what is left and what was to be answered."""
        self.is_closed = True
        self.at = self.end = NULL
        self.answers = self.parked = None
        self.give_up_own()

    def lose(self, reason) -> None:
        """Close, and the connection too."""
        self.close()
        self.peer.close(reason)

    # ------------------------------------------------------------ a read

    def readable(self) -> None:
        """Read the channel and carry out what came."""
        cdef Py_ssize_t byte_count = self.channel.receive(self.lane.scratch.read, self.share())
        cdef list commands
        if byte_count == 0:
            return
        try:
            commands = self.received(byte_count)
        except ProtocolError as error:
            self.peer.fail(error)
            return
        except BaseException as error:
            self.lose(f"internal error: {type(error).__name__}")  # whatever it was, the stream is out of step
            raise
        if commands:
            self.peer.go_on(commands)

    def received(self, Py_ssize_t byte_count) -> list:
        """Carry out frames until one is not for the lane, which is returned; [] when no more can be done now."""
        cdef Scratch scratch = self.lane.scratch
        if self.is_closed or (byte_count == 0 and (self.at == self.end or not self.may_go_on())):
            return []
        scratch.lend()
        try:
            self.take_in(byte_count)
            command = self.work()
            self.keep_rest()
            self.finish()
        except BaseException:
            # What was carried out is answered; the rest of the stream is out of step and goes with the connection.
            try:
                self.finish()
            finally:
                self.close()
            raise
        finally:
            scratch.give_back()
        return [] if command is None else [command]

    cdef object work(self):
        """Carry out frames; the first that is not for the lane, as a command, or None when no more can be done now."""
        cdef Lane lane = self.lane
        cdef Output now = lane.scratch.now
        cdef Py_ssize_t share = ANSWERS_BYTES_MAX
        cdef Frame frame
        self.now_ms = lane.begin()
        lane.waiting.begin()
        while self.next_frame(&frame):
            self.at = frame.end
            self.frame_count += 1
            if not frame.is_plain or not self.carry_out(&frame):
                lane.show()  # the handlers look at the log themselves
                return lane.decode(PyBytes_FromStringAndSize(<char*> frame.start, frame.end - frame.start))
            lane.hot_count += 1
            if now.size >= (READS_BYTES_MAX if lane.log.stored == lane.log.end else REPLY_BYTES_MAX):
                lane.show()
                share -= now.size
                self.send_now()
                if not self.may_go_on():
                    return None
                if share <= 0:
                    self.peer.go_on_soon()
                    return None
        return None

    cdef bint may_go_on(self) except -1:
        """Whether the peer is there, and takes its answers."""
        return not (self.is_closed or self.peer.is_closed or self.peer.is_congested)

    cdef bint next_frame(self, Frame* frame) except -1:
        """Read the header of the next frame; False when it has not come whole."""
        cdef uint8_t* start = self.at
        cdef int64_t size
        cdef uint32_t word
        cdef Head* head = &frame.head
        if self.end - start < 8:
            return False
        size = <int32_t> load32(start)
        word = load32(start + 4)
        self.check_lengths(size, word)
        if self.end - start < size + 4:
            return False
        frame.start = start
        frame.end = start + size + 4
        frame.body.at = start + 8 + (word & 0xFFFFFF)
        frame.body.size = frame.end - frame.body.at
        frame.is_plain = self.now_ms > 0 and scan_header(start + 8, word, head) and not head.flag & RESPONSE_FLAG
        return True

    cdef inline int check_lengths(self, int64_t size, uint32_t word) except -1:
        """Say what is wrong with the lengths a frame begins with, if anything is."""
        cdef Lane lane = self.lane
        cdef int64_t header_size = word & 0xFFFFFF
        if size < 4 + header_size or size + 4 > lane.frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes with a header of {header_size}; a frame may have "
                             f"{lane.frame_bytes_max} bytes and must hold its header")
        if header_size > lane.header_bytes_max:
            raise FrameError(f"a header of {header_size} bytes; at most {lane.header_bytes_max} are read")
        if word >> 24 > 1:
            raise FrameError(f"serializer {word >> 24} is unknown; 0 is JSON, 1 is RocketMQ's binary form")
        return 0

    cdef bint carry_out(self, Frame* frame) except -1:
        """Do what a frame asks; False, with nothing done, when it is not for the lane."""
        cdef int32_t code = frame.head.code
        if code == SEND_V2 or code == SEND or code == SEND_BATCH:
            return self.send_message(frame)
        if code == PULL or code == LITE_PULL:
            return self.pull(frame)
        if code >= POP and self.lane.pops is not None:
            return self.pop(&frame.head, frame.body)
        return False

    # ------------------------------------------------------------ bytes that wait

    cdef size_t share(self) noexcept:
        """How much to read at once."""
        cdef Py_ssize_t rest = self.end - self.at
        cdef int64_t missing = <int64_t> (<int32_t> load32(self.at)) + 4 - rest if rest >= 4 else 0
        return READ_BYTES_MAX if missing > SHARE_BYTES else SHARE_BYTES

    cdef int take_in(self, Py_ssize_t byte_count) except -1:
        """Have the bytes just read behind those that wait."""
        cdef Scratch scratch = self.lane.scratch
        cdef Py_ssize_t rest = self.end - self.at
        cdef Py_ssize_t size = rest + byte_count
        cdef int64_t whole
        if rest == 0:
            self.at = scratch.read
            self.end = scratch.read + byte_count
            return 0
        if size > self.own_size:
            # Twice as much each time, but no more than the frame that begins there will need.
            whole = <int64_t> (<int32_t> load32(self.at)) + 4 if rest >= 8 else 0  # eight bytes have been checked
            self.renew_own(max(size, min(2 * size, whole)))
        elif self.at != self.own:
            memmove(self.own, self.at, rest)
        self.at = self.own
        memcpy(self.own + rest, scratch.read, byte_count)
        self.end = self.own + size
        return 0

    cdef int keep_rest(self) except -1:
        """Keep what could not be carried out yet, mostly the beginning of a frame, in a buffer of our own."""
        cdef Py_ssize_t rest = self.end - self.at
        if rest == 0:
            self.give_up_own()
            self.at = self.end = NULL
        elif self.own == NULL or self.own_size > SPARE_BYTES_MAX + 4 * rest:
            self.renew_own(rest)
        return 0

    cdef int renew_own(self, Py_ssize_t size) except -1:
        """Have what is left in a new buffer of our own, as its first bytes."""
        cdef Lane lane = self.lane
        cdef Py_ssize_t rest = self.end - self.at
        cdef uint8_t* renewed
        if lane.held_bytes + size - self.own_size > lane.held_bytes_max:
            raise FrameError(f"unfinished frames of all peers hold more than {lane.held_bytes_max} bytes")
        renewed = <uint8_t*> PyMem_Malloc(size)
        if renewed == NULL:
            raise MemoryError
        memcpy(renewed, self.at, rest)
        self.give_up_own()
        self.own = self.at = renewed
        self.end = renewed + rest
        self.own_size = size
        lane.held_bytes += size
        return 0

    cdef void give_up_own(self) noexcept:
        PyMem_Free(self.own)
        self.lane.held_bytes -= self.own_size
        self.own = NULL
        self.own_size = 0

    # ------------------------------------------------------------ answers

    cdef int finish(self) except -1:
        """Let the answers go; when few messages were placed, with those of the whole round."""
        cdef Lane lane = self.lane
        cdef Scratch scratch = lane.scratch
        cdef int64_t unstored = lane.log.end - lane.log.stored
        if unstored == 0 or self.after_round is None or self.answers is not None:
            lane.show()
            self.send_now()
            if scratch.later.size:
                lane.park(self.peer, scratch.later.take(), scratch.later_offset)
            lane.tell()
            return 0
        self.answers = scratch.now.take()
        self.parked = scratch.later.take()
        self.parked_offset = scratch.later_offset
        lane.sessions.append(self)
        if unstored >= SHARED_BYTES_MAX:
            lane.end_round()
        elif len(lane.sessions) == 1:
            self.after_round(lane.end_round)
        return 0

    cdef int send_now(self) except -1:
        """Hand over what has been answered so far."""
        cdef Output now = self.lane.scratch.now
        if now.size == 0:
            return 0
        if self.channel is None:
            self.peer.write(now.take())
            return 0
        try:
            self.channel.put(now.data, now.size)
        finally:
            now.clear()
        return 0

    def let_go(self) -> None:
        """Let the answers go that waited for the round's end; where that fails, this connection goes, and no other."""
        answers, parked = self.answers, self.parked
        self.answers = self.parked = None
        try:
            if answers:
                self.channel.write(answers) if self.channel is not None else self.peer.write(answers)
            if parked:
                self.lane.park(self.peer, parked, self.parked_offset)
        except BaseException as error:
            self.lose(f"internal error: {type(error).__name__}")
            raise

    cdef Output output_for(self, Properties* found):
        """Where the answer to a send goes: out at once, or to wait for the disk."""
        cdef Lane lane = self.lane
        if lane.parks and found.waits:
            lane.scratch.later_offset = lane.log.end
            return lane.scratch.later
        return lane.scratch.now

    # ------------------------------------------------------------ pop

    cdef bint pop(self, Head* head, Text body) except -1:
        """A pop or an acknowledgement, which waits for the disk where a send would; a pop need not."""
        cdef Lane lane = self.lane
        cdef Scratch scratch = lane.scratch
        if head.code == POP:
            lane.show()  # an acknowledgement reads nothing of the log
        if head.flag & ONE_WAY_FLAG or not lane.pops.carry_out(
                head, body, self.now_ms, scratch.later if lane.parks and head.code != POP else scratch.now):
            return False
        scratch.later_offset = lane.log.end
        lane.has_placed = True
        return True

    # ------------------------------------------------------------ send

    cdef bint send_message(self, Frame* frame) except -1:
        cdef Lane lane = self.lane
        cdef Head* head = &frame.head
        cdef Text body = frame.body
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
        draft.born_host = text_of(self.born_host)
        draft.born_ms = born_ms
        draft.prepared_offset = 0
        draft.queue_id = <int32_t> queue_id
        draft.system_flag = <int32_t> system_flag
        draft.reconsume_times = <int32_t> reconsume_times
        if is_batch:
            if found.is_late:
                return False
            return self.send_batch(head, body, slot, queue, &draft, &found)
        if found.unique_key.size == 0 or found.ends_open:
            return False
        draft.body = body
        draft.properties = properties
        draft.flag = <int32_t> flag
        if found.is_late:
            return self.place_aside(head, &draft, &found)
        draft.suffix = text_of(lane.suffix)
        return self.place_one(head, slot, queue, &draft, &found)

    cdef bint place_one(self, Head* head, TopicSlot slot, Queue queue, Draft* draft, Properties* found) except -1:
        """Place a message and answer it."""
        cdef int64_t queue_offset = queue.end_offset
        cdef int64_t log_offset = self.append(queue, draft, found)
        if log_offset < 0:
            return False
        slot.message_count += 1
        slot.byte_count += self.lane.log.end - log_offset
        self.lane.placed(queue)
        if not head.flag & ONE_WAY_FLAG:
            self.answer_send(head, found, queue.queue_id, queue_offset, log_offset, NO_TEXT)
        return True

    cdef bint place_aside(self, Head* head, Draft* draft, Properties* found) except -1:
        """Place a message where it waits; the answer names the queue that was asked for."""
        cdef Lane lane = self.lane
        cdef Waiting waiting = lane.waiting
        cdef Text topic = draft.topic
        cdef Text handle = NO_TEXT
        cdef int32_t queue_id = draft.queue_id
        cdef Queue queue = waiting.set_aside(found, draft, self.now_ms)
        cdef Shelf shelf
        if queue is None:
            return False
        cdef int64_t queue_offset = queue.end_offset
        cdef int64_t log_offset = self.append(queue, draft, found)
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
            self.answer_send(head, found, queue_id, queue_offset, log_offset, handle)
        return True

    cdef int64_t append(self, Queue queue, Draft* draft, Properties* found) except? -1:
        """Place a message; its log offset, or a Refusal and nothing was written."""
        cdef Lane lane = self.lane
        cdef int64_t store_ms = next_store_ms(lane.log, self.now_ms)
        cdef int64_t log_offset
        draft.keys = found.keys
        draft.unique_key = found.unique_key
        draft.tags_code = tags_code_of(lane.log, queue, found, store_ms)
        log_offset = place(lane.log, queue, lane.index, draft, store_ms)
        if log_offset == NEEDS_QUEUE_ROOM and lane.make_room(queue, 1):
            log_offset = place(lane.log, queue, lane.index, draft, store_ms)
        return log_offset

    cdef int answer_send(self, Head* head, Properties* found, int32_t queue_id, int64_t queue_offset,
                         int64_t log_offset, Text handle) except -1:
        cdef Lane lane = self.lane
        cdef ReplyFrame reply
        cdef Output output = self.output_for(found)
        begin_reply(&reply, output.room(512 + found.unique_key.size + len(lane.region) + handle.size),
                    head, 0, NO_TEXT)
        self.begin_send_reply(&reply, queue_id, found)
        put_message_ids(&reply, lane.host, &log_offset, 1)
        self.end_send_reply(&reply, head, output, queue_offset, handle)
        return 0

    cdef bint send_batch(self, Head* head, Text body, TopicSlot slot, Queue queue, Draft* draft,
                         Properties* wrapper) except -1:
        """Place every entry of a batch, once all have been looked at and all have room."""
        cdef Lane lane = self.lane
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
        if (lane.log.first_position + lane.log.count * lane.log.file_bytes - lane.log.end < total + BLANK_BYTES
                or not (has_entry_room(queue, count) or lane.make_room(queue, count))):
            return False
        if (lane.index is not None and lane.index.room() < keys_max
                and lane.index.room() < keys_of(lane, draft, count)):
            return False
        store_ms = next_store_ms(lane.log, self.now_ms)
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
        output = self.output_for(wrapper)
        begin_reply(&reply, output.room(512 + wrapper.unique_key.size + len(lane.region) + 60 * count),
                    head, 0, NO_TEXT)
        self.begin_send_reply(&reply, queue.queue_id, wrapper)
        put_message_ids(&reply, lane.host, log_offsets, count)
        self.end_send_reply(&reply, head, output, queue_offset, NO_TEXT)
        return True

    cdef void begin_send_reply(self, ReplyFrame* reply, int32_t queue_id, Properties* found) noexcept:
        """Fields in the order of `protocol.headers.send.SendReply`."""
        put_number(reply, "queueId", 7, queue_id)
        if found.unique_key.size:
            put_text(reply, "transactionId", 13, found.unique_key)

    cdef int end_send_reply(self, ReplyFrame* reply, Head* head, Output output, int64_t queue_offset,
                            Text handle) except -1:
        cdef Lane lane = self.lane
        put_bytes(reply, "TRACE_ON", 8, lane.trace)
        put_bytes(reply, "MSG_REGION", 10, lane.region)
        if handle.size:
            put_text(reply, "recallHandle", 12, handle)
        put_number(reply, "queueOffset", 11, queue_offset)
        end_header(reply, head, NO_TEXT, 0)
        output.size = reply.to - output.data
        return 0

    # ------------------------------------------------------------ pull

    cdef bint pull(self, Frame* frame) except -1:
        cdef Lane lane = self.lane
        cdef Head* head = &frame.head
        cdef Field* group = NULL
        cdef Field* topic = NULL
        cdef Field* subscription = NULL
        cdef Asked asked = Asked(-1, -1, -1, -1, 0)
        cdef int64_t commit_offset = 0, suspend_ms = -1, ignored
        cdef bint has_commit = False
        cdef Field* field
        cdef int i
        cdef Grant grant
        cdef HeldPull waiting
        for i in range(head.field_count):
            field = &head.fields[i]
            if named(field, "consumerGroup", 13):
                group = field
            elif named(field, "topic", 5):
                topic = field
            elif named(field, "queueId", 7):
                if not number(field, &asked.queue_id):
                    return False
            elif named(field, "queueOffset", 11):
                if not wide_number(field, &asked.first):
                    return False
            elif named(field, "maxMsgNums", 10):
                if not number(field, &asked.count_max):
                    return False
            elif named(field, "sysFlag", 7):
                if not number(field, &asked.system_flag):
                    return False
            elif named(field, "commitOffset", 12):
                if not wide_number(field, &commit_offset):
                    return False
                has_commit = True
            elif named(field, "suspendTimeoutMillis", 20):
                if not wide_number(field, &suspend_ms):
                    return False
            elif named(field, "subVersion", 10):
                if not wide_number(field, &asked.version):
                    return False
            elif named(field, "subscription", 12):
                subscription = field
            elif named(field, "expressionType", 14):
                if field.value.size and not is_word(field.value, "TAG", 3):
                    return False
            elif named(field, "maxMsgBytes", 11) or named(field, "requestSource", 13):
                if not number(field, &ignored):
                    return False
        if (group == NULL or topic == NULL or group.is_escaped or topic.is_escaped
                or (subscription != NULL and subscription.is_escaped) or head.flag & ONE_WAY_FLAG
                or asked.queue_id < 0 or asked.first < 0 or asked.count_max < 0 or not has_commit or suspend_ms < 0
                or asked.system_flag < 0 or asked.system_flag & CLASS_FILTER):
            return False
        key = grant_key(group.value, topic.value, subscription if asked.system_flag & SUBSCRIPTION else NULL)
        grant = lane.grants.get(key)
        if grant is None:
            return False
        if not lane.answer_pull(head, &asked, grant, lane.scratch.now):
            if lane.hold is None or not lane.must_wait(&asked, grant):
                return False
            waiting = HeldPull(lane, key, head.opaque, head.is_binary, queue_id=asked.queue_id,
                               count_max=asked.count_max, system_flag=asked.system_flag, version=asked.version)
            waiting.frame = PyBytes_FromStringAndSize(<char*> frame.start, frame.end - frame.start)
            lane.hold(self.peer, grant.queues[asked.queue_id], asked.first, suspend_ms, waiting)
        if asked.system_flag & COMMIT_OFFSET:
            grant.commit(asked.queue_id, commit_offset)
        return True


cdef int64_t keys_of(Lane lane, Draft* draft, int count) noexcept nogil:
    """How many index entries the batch being placed makes."""
    cdef int64_t keys = 0
    cdef int i
    for i in range(count):
        draft.keys = lane.scratch.in_batch[i].keys
        draft.unique_key = lane.scratch.in_batch[i].unique_key
        keys += key_count(draft)
    return keys


cdef inline bint scan_header(const uint8_t* at, uint32_t word, Head* head) noexcept nogil:
    if word >> 24:
        return scan_binary(at, word & 0xFFFFFF, head)
    return scan_json(at, word & 0xFFFFFF, head)


cdef bytes grant_key(Text group, Text topic, Field* subscription):
    cdef Py_ssize_t size = group.size + 1 + topic.size + 1
    if subscription != NULL:
        size += subscription.value.size
    cdef bytes key = PyBytes_FromStringAndSize(NULL, size)
    cdef char* to = PyBytes_AS_STRING(key)
    memcpy(to, group.at, group.size)
    to += group.size
    to[0] = 0
    memcpy(to + 1, topic.at, topic.size)
    to += 1 + topic.size
    to[0] = 0
    if subscription != NULL:
        to[0] = 1
        memcpy(to + 1, subscription.value.at, subscription.value.size)
    return key


cdef inline bint number(Field* field, int64_t* value) noexcept nogil:
    """A 32-bit number that must be there."""
    return field != NULL and number_of(field, -2147483648, 2147483647, value)


cdef inline bint wide_number(Field* field, int64_t* value) noexcept nogil:
    return number_of(field, -WIDE, WIDE, value)


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
