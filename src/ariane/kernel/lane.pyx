"""The hot lane: plain sends and pulls answered in one compiled call per socket read.

A frame takes the lane when everything about it is plain: a known open topic, a queue with room, no
property that asks for more; or a pull that Python has granted before and that finds messages. Any
other frame is handed back, in its place in the stream, as a Command for the broker's handlers. Those
handlers are the specification: for a frame both can carry out, the bytes on disk and on the wire
are the same (tests/property/test_lane.py).

Replies gather in one buffer and leave in one write when the bytes of a read are used up. Messages that come
alone in their read share the write to the log, and their replies leave when it is made (`end_round`); replies to
messages that must reach the disk first leave by `park`, with the log offset they wait for.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memmove, memset

from ariane.errors import FrameError, ProtocolError
from ariane.kernel.frames cimport (
    Field, Head, Output, ReplyFrame, begin_reply, end_header, is_true, needs_escape, number_of, put_name,
    put_number, put_text, scan_binary, scan_json, unescape, write_hex,
)
from ariane.kernel.pop cimport PopLane
from ariane.kernel.batches cimport next_entry
from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport BLANK_BYTES, Draft, Text, expect_read, expect_write, load32, load64, save32, save64
from ariane.kernel.log cimport (
    NEEDS_QUEUE_ROOM, Log, next_store_ms, place, record_size, store_records, tags_code_of, visible_end,
)
from ariane.kernel.properties cimport Alike, Properties, find_alike, find_properties, key_count, take_shape
from ariane.kernel.queue cimport Queue, expect_queue, has_entry_room, next_kept_of
from ariane.kernel.reading cimport MESSAGES_PER_READ_MAX, ReadLimits, ReadResult, Tags, read_entries
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
    SUSPEND = 2
    SUBSCRIPTION = 4
    CLASS_FILTER = 8
    # Messages with these bits of sysFlag are transactional or wrapped: not plain.
    NOT_PLAIN = 0x4 | 0x8 | 0x40 | 0x80

cdef enum:
    SCRATCH_BYTES = 1 << 18
    TOPIC_BYTES_MAX = 127
    NEAR_QUEUES = 16
    FRAMES_AHEAD = 4            # as many as there are steps from a topic's name to a queue's entry
    NEAR_TOPICS = 64            # so many are at hand anyway
    REPLY_BYTES_MAX = 1 << 20   # gathered before they are handed over anyway, so that a slow peer is noticed
    SHARED_BYTES_MAX = 1 << 13  # of messages: more are worth a write of their own, and replies at once
    READS_BYTES_MAX = 1 << 13   # of messages: the peer unpacks them while the next are looked up

cdef int64_t WIDE = 1 << 60
cdef uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15  # odd, with bits all over

cdef Text NO_TEXT
NO_TEXT.at = NULL
NO_TEXT.size = 0

cdef bytes _FOUND = b"FOUND"
cdef Text FOUND_REMARK
FOUND_REMARK.at = <const uint8_t*> PyBytes_AS_STRING(_FOUND)
FOUND_REMARK.size = 5


cdef struct Place:
    uint32_t hash
    PyObject* slot

# What a pull asks for, apart from whose it is.
cdef struct Asked:
    int64_t queue_id
    int64_t first
    int64_t count_max
    int64_t system_flag
    int64_t version         # of the subscription

# A whole frame whose header has been read.
cdef struct Frame:
    uint8_t* start
    uint8_t* end
    Text body
    bint is_plain           # the header has the plain shape, and the lane is open
    bint is_send            # and it is a send to `topic`, by the fields of its letters
    uint32_t topic_hash
    int64_t queue_id
    Field* by_letter[14]
    Head head


@cython.final
cdef class TopicSlot:
    """A topic that plain sends may go to, with its queues by id (None where none exists yet)."""

    # What every send touches lies together: with a thousand topics each line is a walk to memory.
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count
    cdef PyObject* near[NEAR_QUEUES]    # the first queues again, without the detours of a list
    cdef Py_ssize_t text_size
    cdef uint8_t[TOPIC_BYTES_MAX] text
    cdef readonly bytes name
    cdef readonly list queues

    def __init__(self, bytes name not None, Py_ssize_t queue_count):
        if len(name) > TOPIC_BYTES_MAX:
            raise ValueError(f"a topic name of {len(name)} bytes cannot take the lane")
        self.name = name
        self.text_size = len(name)
        memcpy(self.text, PyBytes_AS_STRING(name), self.text_size)
        self.queues = [None] * queue_count

    def open_queue(self, Py_ssize_t queue_id, Queue queue not None) -> None:
        """Let sends to this queue take the lane."""
        self.queues[queue_id] = queue
        if queue_id < NEAR_QUEUES:
            self.near[queue_id] = <PyObject*> queue


@cython.final
cdef class Grant:
    """Leave to pull: the checks of one (group, topic, filter) have been made and still hold."""

    cdef readonly list queues
    cdef Tags tags
    cdef int64_t subscription_version
    cdef object commit          # (queue id, consume offset): the request brought progress along
    cdef dict pulled            # queue id -> where the group's pulls stand
    cdef int32_t group_flags
    cdef int32_t topic_flags
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count

    def __init__(self, list queues not None, Tags tags, int64_t subscription_version, commit,
                 dict pulled not None, int32_t group_flags, int32_t topic_flags):
        self.queues = queues
        self.tags = tags
        self.subscription_version = subscription_version
        self.commit = commit
        self.pulled = pulled
        self.group_flags = group_flags
        self.topic_flags = topic_flags


@cython.final
cdef class Lane:
    """What all connections of a broker share: the store's tails, the open topics, the granted pulls.

    `decode(frame)` makes a Command of a whole frame; `begin()` gives the wall clock in milliseconds,
    or a negative number while nothing may take the lane; `make_room(queue, count)` tries to find room for
    so many entries and says whether it did; `on_placed()` hears that the log grew, when
    its end is not shown at once; `on_timed()` hears that messages wait for a time now;
    `on_arrivals(queues)` hears of queues that grew while somebody waited for them.
    """

    cdef Log log
    cdef public Index index
    cdef readonly dict topics   # name -> TopicSlot
    cdef readonly dict grants   # grant_key_of(...) -> Grant
    cdef public PopLane pops    # None: pops and acknowledgements are all for the handlers
    cdef readonly Waiting waiting
    cdef bint is_sync
    cdef bint moves_visible
    cdef readonly int64_t held_bytes
    cdef readonly int64_t hot_count
    cdef object decode
    cdef object begin
    cdef object make_room
    cdef object on_placed
    cdef object on_timed
    cdef object on_arrivals
    cdef list held_replies          # of this round: (reader, replies, those that wait for the disk, their offset)
    cdef bint has_placed
    cdef int fault                  # of the log, when it was last looked at
    cdef bint has_timed
    cdef bytes suffix
    cdef bytes region
    cdef bytes trace
    cdef bytes host
    cdef int64_t message_bytes_max
    cdef int64_t frame_bytes_max
    cdef int64_t header_bytes_max
    cdef int64_t held_bytes_max
    cdef ReadLimits limits
    cdef LaneReader working         # whose frames are carried out now; the answers below are for its peer alone
    cdef Output now
    cdef Output later
    cdef int64_t later_offset
    cdef Output late                # the answer to a pull that waited
    cdef Properties* in_batch       # what was found in the batch being placed
    cdef Alike alike                # what its messages mostly look like
    cdef list arrivals
    cdef uint8_t* text
    cdef uint8_t* scratch
    cdef object scratch_view
    cdef object scratch_owner
    cdef TopicSlot last_topic       # of the message placed last
    cdef Place* places              # the open topics again, by a hash of their names
    cdef Py_ssize_t place_count
    cdef Frame[FRAMES_AHEAD] frames # of the read being worked on: a ring of those whose headers have been read
    cdef int first_frame
    cdef int ahead_count
    cdef int ahead_max

    def __init__(self, Log log not None, Waiting waiting not None, *, decode, begin, make_room, on_placed, on_timed,
                 on_arrivals, bytes host not None, bint is_sync, bint moves_visible, int64_t frame_bytes_max, int64_t header_bytes_max, int64_t held_bytes_max):
        self.log = log
        self.waiting = waiting
        self.topics = {}
        self.grants = {}
        self.decode = decode
        self.begin = begin
        self.make_room = make_room
        self.on_placed = on_placed
        self.on_timed = on_timed
        self.on_arrivals = on_arrivals
        self.has_placed = self.has_timed = False
        self.host = host
        self.is_sync = is_sync
        self.moves_visible = moves_visible
        self.frame_bytes_max = frame_bytes_max
        self.header_bytes_max = header_bytes_max
        self.held_bytes_max = held_bytes_max
        self.now = Output()
        self.later = Output()
        self.late = Output()
        self.in_batch = <Properties*> PyMem_Malloc(MESSAGES_PER_READ_MAX * sizeof(Properties))
        if self.in_batch == NULL:
            raise MemoryError
        self.arrivals = []
        self.held_replies = []
        self.ahead_max = 1
        self.text = <uint8_t*> PyMem_Malloc(header_bytes_max)
        if self.text == NULL:
            raise MemoryError
        self.scratch_owner = bytearray(SCRATCH_BYTES)
        self.scratch_view = memoryview(self.scratch_owner)
        cdef uint8_t[::1] view = self.scratch_owner
        self.scratch = &view[0]

    def __dealloc__(self):
        PyMem_Free(self.in_batch)
        PyMem_Free(self.text)
        PyMem_Free(self.places)

    def open_topic(self, TopicSlot slot not None) -> None:
        """Let sends to this topic's open queues take the lane."""
        self.topics[slot.name] = slot
        if len(self.topics) > NEAR_TOPICS:
            self.ahead_max = FRAMES_AHEAD
        if len(self.topics) * 2 > self.place_count:
            self.find_places((self.place_count or 32) * 2)
        else:
            self.find_place(slot)

    cdef int find_places(self, Py_ssize_t count) except -1:
        """Spread all open topics over `count` places, a power of two."""
        PyMem_Free(self.places)
        self.places = <Place*> PyMem_Malloc(count * sizeof(Place))
        if self.places == NULL:
            self.place_count = 0
            raise MemoryError
        memset(self.places, 0, count * sizeof(Place))
        self.place_count = count
        for slot in self.topics.values():
            self.find_place(slot)
        return 0

    cdef void find_place(self, TopicSlot slot) noexcept:
        cdef Text name
        name.at = slot.text
        name.size = slot.text_size
        cdef uint32_t hash = text_hash(name)
        cdef Py_ssize_t at = hash & (self.place_count - 1)
        while self.places[at].slot != NULL:
            at = (at + 1) & (self.place_count - 1)
        self.places[at].hash = hash
        self.places[at].slot = <PyObject*> slot

    cdef Queue send_queue(self, Frame* frame):
        """The queue a message goes to, or None when it is not for the lane."""
        cdef TopicSlot slot = self.find_topic(frame)
        cdef int64_t queue_id = frame.queue_id
        if slot is None:
            return None
        self.last_topic = slot
        if 0 <= queue_id < NEAR_QUEUES:
            return <Queue> slot.near[queue_id] if slot.near[queue_id] != NULL else None
        if not 0 <= queue_id < PyList_GET_SIZE(slot.queues):
            return None
        return <Queue> slot.queues[queue_id]

    cdef TopicSlot find_topic(self, Frame* frame):
        cdef Text topic = frame.by_letter[1].value
        cdef Py_ssize_t at = frame.topic_hash & (self.place_count - 1)
        if self.place_count == 0:
            return None
        while self.places[at].slot != NULL:
            if self.places[at].hash == frame.topic_hash and is_named(<TopicSlot> self.places[at].slot, topic):
                return <TopicSlot> self.places[at].slot
            at = (at + 1) & (self.place_count - 1)
        return None

    # With a thousand topics every step from a name to the end of a queue is a walk to memory. Frames wait in the
    # ring while those before them are carried out, and take one of these steps each time: all that is touched in
    # the end is at hand by then. None of them trusts what the one before it saw.

    cdef PyObject* likely_slot(self, Frame* frame) noexcept:
        cdef Place* place
        if not frame.is_send or self.place_count == 0:
            return NULL
        place = &self.places[frame.topic_hash & (self.place_count - 1)]
        return place.slot if place.hash == frame.topic_hash else NULL

    cdef void expect_slot(self, Frame* frame) noexcept:
        cdef PyObject* slot = self.likely_slot(frame)
        if slot != NULL:
            expect_write(<const void*> slot)
            expect_read(<const void*> (<TopicSlot> slot).text)
            expect_read(<const void*> &(<TopicSlot> slot).near[frame.queue_id & (NEAR_QUEUES - 1)])

    cdef PyObject* likely_queue(self, Frame* frame) noexcept:
        cdef PyObject* slot = self.likely_slot(frame)
        return (<TopicSlot> slot).near[frame.queue_id & (NEAR_QUEUES - 1)] if slot != NULL else NULL

    cdef void expect_queue(self, Frame* frame) noexcept:
        cdef PyObject* queue = self.likely_queue(frame)
        if queue != NULL:
            expect_queue(<Queue> queue)

    cdef void expect_entry(self, Frame* frame) noexcept:
        cdef PyObject* queue = self.likely_queue(frame)
        if queue != NULL:
            expect_write(next_kept_of(<Queue> queue))

    def configure(self, *, bytes suffix not None, bytes region not None, bint trace_on, int64_t message_bytes_max,
                  int64_t bytes_max, int32_t memory_count_max, int64_t memory_bytes_max, int32_t disk_count_max,
                  int64_t disk_bytes_max, int64_t memory_window, int64_t scan_count_max) -> None:
        """Take over settings: what is added to properties and replies, and where reads stop."""
        self.suffix = suffix
        self.region = region
        self.trace = b"true" if trace_on else b"false"
        self.message_bytes_max = message_bytes_max
        self.limits = ReadLimits(0, bytes_max, memory_count_max, memory_bytes_max, disk_count_max,
                                 disk_bytes_max, memory_window, scan_count_max)

    cdef int show(self) except -1:
        """Put what was placed into its file, and let consumers see it."""
        if not store_records(self.log) or self.log.fault != self.fault:
            # Nobody is told of what is not in the file; the store says why from now on.
            self.fault = self.log.fault
            reason = f"the commit log cannot be written (errno {self.fault})"
            self.now.size = self.later.size = 0
            self.arrivals = []
            held, self.held_replies = self.held_replies, []
            try:
                each_of(held, lambda reader, *_: (<LaneReader> reader).lose(reason))
            finally:
                self.on_placed()
            raise FrameError(reason)
        if self.moves_visible:
            self.log.visible = self.log.end
        return 0

    cdef bint answer_pull(self, Head* head, Asked* asked, Grant grant, Output output) except -1:
        """Answer a pull that has leave and finds messages; False, with nothing done, when the handlers must look."""
        cdef Queue queue
        cdef ReadLimits limits = self.limits
        cdef ReadResult result
        cdef Text[MESSAGES_PER_READ_MAX] slices
        if asked.queue_id >= PyList_GET_SIZE(grant.queues):
            return False
        if not asked.system_flag & SUBSCRIPTION and asked.version > grant.subscription_version:
            return False
        queue = <Queue> grant.queues[asked.queue_id]
        if queue is None or asked.first < queue.min_offset:
            return False
        self.show()
        limits.count_max = <int32_t> max(asked.count_max, 1)
        read_entries(self.log, queue, asked.first, grant.tags, &limits, slices, &result)
        if result.count == 0:
            return False
        grant.pulled[asked.queue_id] = result.next_offset
        grant.message_count += result.count
        grant.byte_count += result.bytes
        self.write_found(head, queue, grant, slices, &result, output)
        return True

    cdef bint must_wait(self, Asked* asked, Grant grant) except -1:
        """Whether a pull that has leave, and was not answered, stands at its queue's end and may wait there."""
        cdef Queue queue
        if not asked.system_flag & SUSPEND or asked.queue_id >= PyList_GET_SIZE(grant.queues):
            return False
        if not asked.system_flag & SUBSCRIPTION and asked.version > grant.subscription_version:
            return False
        queue = <Queue> grant.queues[asked.queue_id]
        if queue is None or asked.first != queue.end_offset or asked.first != visible_end(self.log, queue):
            return False
        grant.pulled[asked.queue_id] = asked.first
        return True

    cdef int write_found(self, Head* head, Queue queue, Grant grant, Text* slices, ReadResult* result, Output output) except -1:
        """Fields in the order of `protocol.headers.pull.PullReply`, then the records as they lie in the log."""
        cdef ReplyFrame reply
        cdef uint8_t* to
        cdef int i
        begin_reply(&reply, output.room(512 + result.bytes), head, 0, FOUND_REMARK)
        put_number(&reply, "suggestWhichBrokerId", 20, 0)
        put_number(&reply, "groupSysFlag", 12, grant.group_flags)
        put_number(&reply, "nextBeginOffset", 15, result.next_offset)
        put_number(&reply, "maxOffset", 9, visible_end(self.log, queue))
        put_number(&reply, "minOffset", 9, queue.min_offset)
        put_number(&reply, "topicSysFlag", 12, grant.topic_flags)
        end_header(&reply, head, FOUND_REMARK, result.bytes)
        to = reply.to
        for i in range(result.count):
            memcpy(to, slices[i].at, slices[i].size)
            to += slices[i].size
        output.size = to - output.data
        return 0

    def end_round(self) -> None:
        """Write what the reads of a round have placed, once for all of them, and let their replies go."""
        try:
            self.show()
        except FrameError:
            return  # those who waited have been told
        held, self.held_replies = self.held_replies, []
        try:
            each_of(held, deliver_held)
        finally:
            self.tell()

    cdef int give_up_answers(self) except -1:
        """Nobody is there to hear them."""
        self.working.is_working = False
        self.working = None
        self.now.size = self.later.size = 0
        return 0

    cdef int tell(self) except -1:
        """Tell of what arrived."""
        if self.has_placed:
            self.has_placed = False
            self.on_placed()
        if self.has_timed:
            self.has_timed = False
            self.on_timed()
        if self.arrivals:
            arrivals = self.arrivals
            self.arrivals = []
            self.on_arrivals(arrivals)
        return 0

    def close_topic(self, TopicSlot slot not None) -> None:
        """Let sends to this topic take the lane no more."""
        del self.topics[slot.name]
        self.find_places(self.place_count)
        self.waiting.forget()
        self.last_topic = None
        if len(self.topics) <= NEAR_TOPICS:
            self.ahead_max = 1

    def forget(self) -> None:
        """Close every topic and take back every grant: something every check looks at has changed."""
        memset(self.places, 0, self.place_count * sizeof(Place))
        self.topics.clear()
        self.grants.clear()
        self.waiting.forget()
        self.last_topic = None
        self.ahead_max = 1


@cython.final
cdef class LaneReader:
    """The decoder of one connection; see `protocol.command.FrameReader`."""

    cdef Lane lane
    cdef bytes born_host
    cdef object send
    cdef object park
    cdef object lose                # (reason): close, with nothing answered
    cdef object after_round         # (callback): call it when all sockets that are ready have been read; None: alone
    cdef Channel channel            # to read from; None: others read, and say `received`
    cdef object go_on               # (commands): those not for the lane
    cdef object fail                # (error): what the peer sent cannot be read
    cdef object hold                # (queue, queue offset, milliseconds, HeldPull): keep a pull until the queue grows
    cdef uint8_t* held              # bytes of an unfinished frame
    cdef Py_ssize_t held_size
    cdef Py_ssize_t held_capacity
    cdef uint8_t* at                # what is left of the bytes being worked on
    cdef uint8_t* end
    cdef bint is_working
    cdef readonly int64_t frame_count
    cdef int64_t now_ms

    def __cinit__(self, *arguments, **keywords):
        self.held = NULL
        self.held_size = self.held_capacity = 0
        self.at = self.end = NULL

    def __init__(self, Lane lane not None, bytes born_host not None, send, park, lose, after_round=None, *,
                 Channel channel=None, go_on=None, fail=None, hold=None):
        if len(born_host) not in (8, 20):
            raise ValueError("a born host is 4 or 16 address bytes and a 4-byte port")
        self.lane = lane
        self.born_host = born_host
        self.send = send
        self.park = park
        self.lose = lose
        self.after_round = after_round
        self.channel = channel
        self.go_on = go_on
        self.fail = fail
        self.hold = hold

    def __dealloc__(self):
        PyMem_Free(self.held)

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        return self.held_size

    def get_buffer(self, size_hint) -> memoryview:
        """Where the next bytes go: one buffer for all connections, since they are used up at once."""
        return self.lane.scratch_view

    def close(self) -> None:
        """Forget what is held, what was to be answered, and frames that were looked at: they may have lain there."""
        if self.lane.working is self:
            self.lane.give_up_answers()
        self.lane.ahead_count = 0
        self.lane.held_bytes -= self.held_size
        PyMem_Free(self.held)
        self.held = NULL
        self.held_size = self.held_capacity = 0
        self.at = self.end = NULL
        self.is_working = False

    def readable(self) -> None:
        """Read the channel and carry out what came."""
        cdef Py_ssize_t byte_count = self.channel.receive(self.lane.scratch, SCRATCH_BYTES)
        cdef list commands
        if byte_count == 0:
            return
        try:
            commands = self.received(byte_count)
        except ProtocolError as error:
            self.fail(error)
            return
        except BaseException as error:
            self.lose(f"internal error: {type(error).__name__}")  # whatever it was, the stream is out of step
            raise
        if commands:
            self.go_on(commands)

    def received(self, Py_ssize_t byte_count) -> list:
        """Carry out frames until one is not for the lane, which is returned; [] when all are done."""
        cdef Lane lane = self.lane
        cdef Frame* frame
        if not self.is_working and byte_count == 0:
            return []
        try:
            if not self.is_working:
                self.start(byte_count)
            lane.waiting.begin()
            lane.ahead_count = 0
            while self.look_ahead():
                frame = &lane.frames[lane.first_frame]
                lane.first_frame = (lane.first_frame + 1) % FRAMES_AHEAD
                lane.ahead_count -= 1
                self.at = frame.end
                self.frame_count += 1
                if frame.is_plain and self.carry_out(frame):
                    lane.hot_count += 1
                    if lane.now.size >= (READS_BYTES_MAX if lane.log.stored == lane.log.end else REPLY_BYTES_MAX):
                        lane.show()
                        self.send(lane.now.take())
                    continue
                lane.show()  # the handlers look at the log themselves
                return [lane.decode(PyBytes_FromStringAndSize(<char*> frame.start, frame.end - frame.start))]
            self.keep_rest()
        except BaseException:
            # What was carried out is answered; the rest of the stream is out of step and goes with the connection.
            try:
                self.finish()
            finally:
                self.close()
            raise
        self.finish()
        return []

    cdef bint look_ahead(self) except -1:
        """Read the headers of frames to come; False when there is no whole frame any more."""
        cdef Lane lane = self.lane
        cdef int first = lane.first_frame
        if lane.ahead_count > 1:
            lane.expect_entry(&lane.frames[(first + 1) % FRAMES_AHEAD])
        if lane.ahead_count > 2:
            lane.expect_queue(&lane.frames[(first + 2) % FRAMES_AHEAD])
        while lane.ahead_count < lane.ahead_max and self.read_header(&lane.frames[(first + lane.ahead_count) % FRAMES_AHEAD]):
            lane.expect_slot(&lane.frames[(first + lane.ahead_count) % FRAMES_AHEAD])
            lane.ahead_count += 1
        if lane.ahead_count:
            return True
        if self.end - self.at >= 8:
            self.check_lengths(<int32_t> load32(self.at), load32(self.at + 4))
        return False

    cdef bint read_header(self, Frame* frame) noexcept:
        """Read the header of the frame behind those in the ring; False when that is not whole and sound in its lengths."""
        cdef Lane lane = self.lane
        cdef uint8_t* start = self.at
        cdef int64_t size
        cdef uint32_t word
        cdef Head* head = &frame.head
        if lane.ahead_count:
            start = lane.frames[(lane.first_frame + lane.ahead_count - 1) % FRAMES_AHEAD].end
        if self.end - start < 8:
            return False
        size = <int32_t> load32(start)
        word = load32(start + 4)
        if not self.are_lengths_sound(size, word) or self.end - start < size + 4:
            return False
        frame.start = start
        frame.end = start + size + 4
        frame.body.at = start + 8 + (word & 0xFFFFFF)
        frame.body.size = frame.end - frame.body.at
        frame.is_send = False
        frame.is_plain = self.now_ms > 0 and scan_header(start + 8, word, head) and not head.flag & RESPONSE_FLAG
        if frame.is_plain and (head.code == SEND_V2 or head.code == SEND or head.code == SEND_BATCH):
            frame.is_plain = frame.is_send = (
                find_letters(head, frame.by_letter) and frame.by_letter[1] != NULL
                and not frame.by_letter[1].is_escaped and number(frame.by_letter[4], &frame.queue_id))
            if frame.is_send:
                frame.topic_hash = text_hash(frame.by_letter[1].value)
        return True

    cdef int start(self, Py_ssize_t byte_count) except -1:
        """Point at the new bytes, after what was held before them."""
        cdef Lane lane = self.lane
        cdef uint8_t* grown
        if lane.working is not None:
            lane.give_up_answers()  # of a connection that was closed with a command in hand
        lane.working = self
        self.is_working = True
        cdef object now = lane.begin()
        self.now_ms = now
        if self.held_size == 0:
            self.at = lane.scratch
            self.end = lane.scratch + byte_count
            return 0
        if self.held_size + byte_count > self.held_capacity:
            grown = <uint8_t*> PyMem_Realloc(self.held, (self.held_size + byte_count) * 2)
            if grown == NULL:
                raise MemoryError
            self.held = grown
            self.held_capacity = (self.held_size + byte_count) * 2
        memcpy(self.held + self.held_size, lane.scratch, byte_count)
        self.at = self.held
        self.end = self.held + self.held_size + byte_count
        return 0

    cdef inline bint are_lengths_sound(self, int64_t size, uint32_t word) noexcept:
        cdef int64_t header_size = word & 0xFFFFFF
        return (4 + header_size <= size <= self.lane.frame_bytes_max - 4
                and header_size <= self.lane.header_bytes_max and word >> 24 <= 1)

    cdef int check_lengths(self, int64_t size, uint32_t word) except -1:
        """Say what is wrong with the lengths a frame begins with, if anything is."""
        cdef int64_t header_size = word & 0xFFFFFF
        if size < 4 + header_size or size + 4 > self.lane.frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes with a header of {header_size}; a frame may have "
                             f"{self.lane.frame_bytes_max} bytes and must hold its header")
        if header_size > self.lane.header_bytes_max:
            raise FrameError(f"a header of {header_size} bytes; at most {self.lane.header_bytes_max} are read")
        if word >> 24 > 1:
            raise FrameError(f"serializer {word >> 24} is unknown; 0 is JSON, 1 is RocketMQ's binary form")
        return 0

    cdef int keep_rest(self) except -1:
        """Keep the beginning of a frame whose end has not come yet."""
        cdef Py_ssize_t rest = self.end - self.at
        cdef Py_ssize_t before = self.held_size
        cdef uint8_t* grown
        if rest == 0:
            if self.held != NULL:
                PyMem_Free(self.held)
                self.held = NULL
                self.held_capacity = 0
        elif self.at >= self.held and self.held != NULL and self.at < self.held + self.held_capacity:
            memmove(self.held, self.at, rest)
        else:
            if rest > self.held_capacity:
                grown = <uint8_t*> PyMem_Realloc(self.held, rest)
                if grown == NULL:
                    raise MemoryError
                self.held = grown
                self.held_capacity = rest
            memcpy(self.held, self.at, rest)
        self.held_size = rest
        self.lane.held_bytes += rest - before
        if self.lane.held_bytes > self.lane.held_bytes_max:
            raise FrameError(f"unfinished frames of all peers hold more than {self.lane.held_bytes_max} bytes")
        return 0

    cdef int finish(self) except -1:
        """Let the replies go; when few messages were placed, with those of the whole round."""
        cdef Lane lane = self.lane
        cdef int64_t unstored = lane.log.end - lane.log.stored
        self.is_working = False
        lane.working = None
        if self.after_round is None or unstored == 0:
            lane.show()
            self.deliver(lane.now.take(), lane.later.take(), lane.later_offset)
            lane.tell()
            return 0
        lane.held_replies.append((self, lane.now.take(), lane.later.take(), lane.later_offset))
        if unstored >= SHARED_BYTES_MAX:
            lane.end_round()
        elif len(lane.held_replies) == 1:
            self.after_round(lane.end_round)
        return 0

    cdef int deliver(self, bytes replies, bytes later, int64_t later_offset) except -1:
        if replies:
            self.send(replies)
        if later:
            self.park(later, later_offset)
        return 0

    cdef bint carry_out(self, Frame* frame) except -1:
        """Do what a frame asks; False, with nothing done, when it is not for the lane."""
        cdef Head* head = &frame.head
        if frame.is_send:
            return self.send_message(frame)
        if head.code == PULL or head.code == LITE_PULL:
            return self.pull(frame)
        if head.code >= POP and self.lane.pops is not None:
            return self.pop(head, frame.body)
        return False

    cdef bint pop(self, Head* head, Text body) except -1:
        """A pop or an acknowledgement, which waits for the disk where a send would; a pop need not."""
        cdef Lane lane = self.lane
        cdef Output output = lane.later if lane.is_sync and head.code != POP else lane.now
        if head.code == POP:
            lane.show()  # an acknowledgement reads nothing of the log
        if head.flag & ONE_WAY_FLAG or not lane.pops.carry_out(head, body, self.now_ms, output):
            return False
        lane.later_offset = lane.log.end
        if not lane.moves_visible:
            lane.has_placed = True
        return True

    # ------------------------------------------------------------ send

    cdef bint send_message(self, Frame* frame) except -1:
        cdef Lane lane = self.lane
        cdef Head* head = &frame.head
        cdef Text body = frame.body
        cdef Field** by_letter = frame.by_letter
        cdef int64_t system_flag, born_ms, flag, ignored, reconsume_times = 0
        cdef Text properties
        cdef Properties found
        cdef Draft draft
        cdef Queue queue
        cdef bint is_batch = head.code == SEND_BATCH
        if (by_letter[0] == NULL or by_letter[2] == NULL or by_letter[6] == NULL
                or not number(by_letter[3], &ignored) or not number(by_letter[5], &system_flag)
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
        queue = lane.send_queue(frame)
        if queue is None:
            return False
        properties = NO_TEXT
        if by_letter[8] != NULL:
            properties = by_letter[8].value
            if by_letter[8].is_escaped:
                properties.size = unescape(properties, lane.text)
                properties.at = lane.text
                if properties.size < 0:
                    return False
        find_properties(properties, &found)
        if found.is_special or needs_escape(found.unique_key):
            return False
        draft.topic = by_letter[1].value
        draft.born_host.at = <const uint8_t*> PyBytes_AS_STRING(self.born_host)
        draft.born_host.size = len(self.born_host)
        draft.born_ms = born_ms
        draft.prepared_offset = 0
        draft.queue_id = <int32_t> frame.queue_id
        draft.system_flag = <int32_t> system_flag
        draft.reconsume_times = <int32_t> reconsume_times
        if is_batch:
            if found.is_late:
                return False
            return self.send_batch(head, body, queue, &draft, &found)
        if found.unique_key.size == 0 or found.ends_open:
            return False
        draft.body = body
        draft.properties = properties
        draft.flag = <int32_t> flag
        if found.is_late:
            return self.place_aside(head, &draft, &found)
        draft.suffix.at = <const uint8_t*> PyBytes_AS_STRING(lane.suffix)
        draft.suffix.size = len(lane.suffix)
        return self.place_one(head, queue, &draft, &found)

    cdef bint place_one(self, Head* head, Queue queue, Draft* draft, Properties* found) except -1:
        cdef int64_t queue_offset = queue.end_offset
        cdef int64_t log_offset = self.append(queue, draft, found)
        if log_offset < 0:
            return False
        self.lane.last_topic.message_count += 1
        self.lane.last_topic.byte_count += self.lane.log.end - log_offset
        self.grew(queue)
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
        self.grew(queue)
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

    cdef int answer_send(self, Head* head, Properties* found, int32_t queue_id, int64_t queue_offset, int64_t log_offset,
                         Text handle) except -1:
        cdef Lane lane = self.lane
        cdef ReplyFrame reply
        cdef Output output = self.output_for(found)
        begin_reply(&reply, output.room(512 + found.unique_key.size + len(lane.region) + handle.size), head, 0, NO_TEXT)
        self.begin_send_reply(&reply, queue_id, found)
        put_message_ids(&reply, lane.host, &log_offset, 1)
        self.end_send_reply(&reply, head, output, queue_offset, handle)
        return 0

    cdef bint send_batch(self, Head* head, Text body, Queue queue, Draft* draft, Properties* wrapper) except -1:
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
            found = &lane.in_batch[count]
            if not find_alike(draft.properties, &lane.alike, found):
                find_properties(draft.properties, found)
                if count == 0:
                    take_shape(draft.properties, &lane.alike)
            if found.is_special or found.is_late or draft.body.size == 0:
                return False
            total += record_size(lane.log, draft)
            keys_max += 2 + found.keys.size // 2
            count += 1
        if (lane.log.first_position + lane.log.count * lane.log.file_bytes - lane.log.end < total + BLANK_BYTES
                or not (has_entry_room(queue, count) or lane.make_room(queue, count))
                or (lane.index is not None and lane.index.room() < keys_max and lane.index.room() < keys_of(lane, draft, count))):
            return False
        store_ms = next_store_ms(lane.log, self.now_ms)
        rest = body
        for i in range(count):
            next_entry(&rest, draft)
            found = &lane.in_batch[i]
            draft.keys = found.keys
            draft.unique_key = found.unique_key
            draft.tags_code = tags_code_of(lane.log, queue, found, store_ms)
            log_offsets[i] = place(lane.log, queue, lane.index, draft, store_ms)
            if log_offsets[i] < 0:
                lane.show()
                raise AssertionError("a batch that fitted does not fit any more")
        lane.last_topic.message_count += count
        lane.last_topic.byte_count += total
        self.grew(queue)
        if head.flag & ONE_WAY_FLAG:
            return True
        output = self.output_for(wrapper)
        begin_reply(&reply, output.room(512 + wrapper.unique_key.size + len(lane.region) + 60 * count), head, 0, NO_TEXT)
        self.begin_send_reply(&reply, queue.queue_id, wrapper)
        put_message_ids(&reply, lane.host, log_offsets, count)
        self.end_send_reply(&reply, head, output, queue_offset, NO_TEXT)
        return True

    cdef int grew(self, Queue queue) except -1:
        """Note what was placed, and who waits for it."""
        cdef Lane lane = self.lane
        if not lane.moves_visible:
            lane.has_placed = True
        if queue.is_waiting and (not lane.arrivals or lane.arrivals[len(lane.arrivals) - 1] is not queue):
            lane.arrivals.append(queue)
        return 0

    cdef Output output_for(self, Properties* found):
        """Where the reply goes: out at once, or to wait for the disk."""
        cdef Lane lane = self.lane
        if lane.is_sync and found.waits:
            lane.later_offset = lane.log.end
            return lane.later
        return lane.now

    cdef void begin_send_reply(self, ReplyFrame* reply, int32_t queue_id, Properties* found) noexcept:
        """Fields in the order of `protocol.headers.send.SendReply`."""
        put_number(reply, "queueId", 7, queue_id)
        if found.unique_key.size:
            put_text(reply, "transactionId", 13, found.unique_key)

    cdef int end_send_reply(self, ReplyFrame* reply, Head* head, Output output, int64_t queue_offset, Text handle) except -1:
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
                if field.value.size and not (field.value.size == 3 and memcmp(field.value.at, <const char*> "TAG", 3) == 0):
                    return False
            elif named(field, "maxMsgBytes", 11) or named(field, "requestSource", 13):
                if not number(field, &ignored):
                    return False
        if (group == NULL or topic == NULL or group.is_escaped or topic.is_escaped or asked.queue_id < 0
                or asked.first < 0 or asked.count_max < 0 or asked.system_flag < 0 or asked.system_flag & CLASS_FILTER or not has_commit or suspend_ms < 0
                or (subscription != NULL and subscription.is_escaped) or head.flag & ONE_WAY_FLAG):
            return False
        key = grant_key(group.value, topic.value, subscription if asked.system_flag & SUBSCRIPTION else NULL)
        grant = lane.grants.get(key)
        if grant is None:
            return False
        if not lane.answer_pull(head, &asked, grant, lane.now):
            if self.hold is None or not lane.must_wait(&asked, grant):
                return False
            waiting = HeldPull(lane, key, head.opaque, head.is_binary, queue_id=asked.queue_id, count_max=asked.count_max,
                               system_flag=asked.system_flag, version=asked.version)
            waiting.frame = PyBytes_FromStringAndSize(<char*> frame.start, frame.end - frame.start)
            self.hold(grant.queues[asked.queue_id], asked.first, suspend_ms, waiting)
        if asked.system_flag & COMMIT_OFFSET:
            grant.commit(asked.queue_id, commit_offset)
        return True


@cython.final
cdef class HeldPull:
    """A pull that waits for messages. When some have come the lane may answer it as if it had come just now."""

    cdef Lane lane
    cdef bytes grant_key
    cdef readonly bytes frame       # as it came; None when a handler has read it
    cdef Asked asked
    cdef int32_t opaque
    cdef bint is_binary

    def __init__(self, Lane lane not None, bytes grant_key not None, int32_t opaque, bint is_binary, *, int64_t queue_id,
                 int64_t count_max, int64_t system_flag, int64_t version):
        self.lane = lane
        self.grant_key = grant_key
        self.opaque = opaque
        self.is_binary = is_binary
        self.asked = Asked(queue_id, 0, count_max, system_flag, version)

    def answer(self, int64_t first) -> bytes | None:
        """The answer with what there is from `first` on; None when the handlers must look."""
        cdef Lane lane = self.lane
        cdef Grant grant = lane.grants.get(self.grant_key)
        cdef Head head
        if grant is None or lane.begin() <= 0:
            return None
        head.opaque = self.opaque
        head.is_binary = self.is_binary
        self.asked.first = first
        try:
            if not lane.answer_pull(&head, &self.asked, grant, lane.late):
                return None
        except FrameError:
            return None  # the log cannot be written
        return lane.late.take()


def deliver_held(reader, replies, later, later_offset) -> None:
    """Let the answers go that a reader had to wait with; where that fails, its connection goes alone."""
    try:
        (<LaneReader> reader).deliver(replies, later, later_offset)
    except BaseException as error:
        (<LaneReader> reader).lose(f"internal error: {type(error).__name__}")
        raise


cdef int each_of(list held, do) except -1:
    """Do it for each, whatever became of the others; then raise what the first of them raised."""
    cdef object fault = None
    for one in held:
        try:
            do(*one)
        except BaseException as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return 0


cdef int64_t keys_of(Lane lane, Draft* draft, int count) noexcept nogil:
    """How many index entries the batch being placed makes."""
    cdef int64_t keys = 0
    cdef int i
    for i in range(count):
        draft.keys = lane.in_batch[i].keys
        draft.unique_key = lane.in_batch[i].unique_key
        keys += key_count(draft)
    return keys


cdef inline bint scan_header(const uint8_t* at, uint32_t word, Head* head) noexcept nogil:
    if word >> 24:
        return scan_binary(at, word & 0xFFFFFF, head)
    return scan_json(at, word & 0xFFFFFF, head)


cdef inline uint32_t text_hash(Text text) noexcept nogil:
    """Eight bytes at a time: it is asked for every message."""
    cdef uint64_t hash = <uint64_t> text.size, word
    cdef Py_ssize_t i = 0
    while i + 8 <= text.size:
        hash = (hash ^ load64(text.at + i)) * HASH_FACTOR
        hash ^= hash >> 32
        i += 8
    word = 0
    while i < text.size:
        word = word << 8 | text.at[i]
        i += 1
    hash = (hash ^ word) * HASH_FACTOR
    return <uint32_t> (hash >> 32)


cdef inline bint is_named(TopicSlot slot, Text topic) noexcept nogil:
    return slot.text_size == topic.size and memcmp(slot.text, topic.at, topic.size) == 0


def grant_key_of(group: bytes, topic: bytes, subscription: bytes | None) -> bytes:
    """What a grant is found by; `subscription` only when the request brings its own."""
    return group + b"\0" + topic + (b"\0" if subscription is None else b"\1" + subscription)


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


cdef inline bint named(Field* field, const char* name, Py_ssize_t size) noexcept nogil:
    return field.key.size == size and memcmp(field.key.at, name, size) == 0


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
