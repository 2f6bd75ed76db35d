"""What all sessions of a broker share: the store's ends, the topics that are open, the pulls that are granted.

A `Lane` holds tables and settings. What a session needs only while it works lies in its `Scratch`, which is lent
to one session at a time and comes back empty. What sessions share until the sockets that are ready have all been
served is the round: messages placed, one write to the log for all of them, and whose answers wait for that write.

Pulls are answered here, since those that wait are answered by no session.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.list cimport PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from ariane.errors import FrameError
from ariane.kernel.frames cimport Head, Output, ReplyFrame, begin_reply, end_header, put_number
from ariane.kernel.layout cimport Text, load64
from ariane.kernel.log cimport Log, store_records, visible_end
from ariane.kernel.properties cimport Properties
from ariane.kernel.queue cimport Queue
from ariane.kernel.reading cimport MESSAGES_PER_READ_MAX, ReadLimits, ReadResult, Tags, read_entries
from ariane.kernel.waiting cimport Waiting

cdef enum:
    SUSPEND = 2                 # of a pull's sysFlag
    SUBSCRIPTION = 4

cdef uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15  # odd, with bits all over

cdef bytes _FOUND = b"FOUND"
cdef Text FOUND_REMARK
FOUND_REMARK.at = <const uint8_t*> PyBytes_AS_STRING(_FOUND)
FOUND_REMARK.size = 5


@cython.final
cdef class TopicSlot:
    """A topic that plain sends may go to, with its queues by id (None where none exists yet)."""

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


@cython.final
cdef class Grant:
    """Leave to pull: the checks of one (group, topic, filter) have been made and still hold."""

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
cdef class Scratch:
    """What a session borrows while it works."""

    def __cinit__(self, Py_ssize_t text_bytes):
        self.view = memoryview(bytearray(READ_BYTES_MAX))
        cdef uint8_t[::1] view = self.view
        self.read = &view[0]
        self.now = Output()
        self.later = Output()
        self.text = <uint8_t*> PyMem_Malloc(text_bytes)
        self.in_batch = <Properties*> PyMem_Malloc(MESSAGES_PER_READ_MAX * sizeof(Properties))
        if self.text == NULL or self.in_batch == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.text)
        PyMem_Free(self.in_batch)

    cdef int lend(self) except -1:
        if self.is_lent:
            raise AssertionError("a session works already, and what it borrowed is not back")
        self.is_lent = True
        return 0

    cdef void give_back(self) noexcept:
        self.clear()
        self.is_lent = False

    cdef void clear(self) noexcept:
        """Forget answers that nobody shall have."""
        self.now.clear()
        self.later.clear()


@cython.final
cdef class Lane:
    """Tables and settings, and the round under way.

    `decode(frame)` makes a Command of a whole frame; `begin()` gives the wall clock in milliseconds,
    or a negative number while nothing may take the lane; `make_room(queue, count)` tries to find room for
    so many entries and says whether it did; `on_placed()` hears that the log grew, when `tells_placed`;
    `on_timed()` hears that messages wait for a time now; `on_arrivals(queues)` hears of queues that grew while
    somebody waited for them. `park(peer, answers, log offset)` keeps answers until the log is safe up to
    there; `hold(peer, queue, queue offset, milliseconds, HeldPull)` keeps a pull until its queue grows.
    With `parks` sends are answered by `park`, with `shows_at_once` consumers see what is in the file.
    """

    def __init__(self, Log log not None, Waiting waiting not None, *, decode, begin, make_room, on_placed, on_timed,
                 on_arrivals, park, hold, bytes host not None, bint parks, bint shows_at_once,
                 int64_t frame_bytes_max, int64_t header_bytes_max, int64_t held_bytes_max):
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
        self.park = park
        self.hold = hold
        self.host = host
        self.parks = parks
        self.shows_at_once = shows_at_once
        self.tells_placed = not shows_at_once
        self.frame_bytes_max = frame_bytes_max
        self.header_bytes_max = header_bytes_max
        self.held_bytes_max = held_bytes_max
        self.scratch = Scratch(header_bytes_max)
        self.late = Output()
        self.sessions = []
        self.arrivals = []

    def __dealloc__(self):
        PyMem_Free(self.places)

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

    # ------------------------------------------------------------ what is open

    def open_topic(self, TopicSlot slot not None) -> None:
        """Let sends to this topic's open queues take the lane."""
        self.topics[slot.name] = slot
        if len(self.topics) * 2 > self.place_count:
            self.find_places((self.place_count or 32) * 2)
        else:
            self.find_place(slot)

    def close_topic(self, TopicSlot slot not None) -> None:
        """Let sends to this topic take the lane no more."""
        del self.topics[slot.name]
        self.find_places(self.place_count)
        self.waiting.forget()

    def forget(self) -> None:
        """Close every topic and take back every grant: something every check looks at has changed."""
        memset(self.places, 0, self.place_count * sizeof(Place))
        self.topics.clear()
        self.grants.clear()
        self.waiting.forget()

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

    cdef TopicSlot find_topic(self, Text name):
        """The topic of that name, if it is open; found without making an object of the name."""
        cdef uint32_t hash = text_hash(name)
        cdef Py_ssize_t at = hash & (self.place_count - 1)
        if self.place_count == 0:
            return None
        while self.places[at].slot != NULL:
            if self.places[at].hash == hash and is_named(<TopicSlot> self.places[at].slot, name):
                return <TopicSlot> self.places[at].slot
            at = (at + 1) & (self.place_count - 1)
        return None

    # ------------------------------------------------------------ the round

    cdef int show(self) except -1:
        """Put what was placed into its file, and let consumers see it."""
        if not store_records(self.log) or self.log.fault != self.fault:
            # Nobody is told of what is not in the file; the store says why from now on.
            self.fault = self.log.fault
            reason = f"the commit log cannot be written (errno {self.fault})"
            self.scratch.clear()
            self.arrivals = []
            sessions, self.sessions = self.sessions, []
            try:
                for_each(sessions, lambda session: session.lose(reason))
            finally:
                self.on_placed()
            raise FrameError(reason)
        if self.shows_at_once:
            self.log.visible = self.log.end
        return 0

    cdef int placed(self, Queue queue) except -1:
        """Note that a queue grew, and who waits for it."""
        self.has_placed = True
        if queue.is_waiting and (not self.arrivals or self.arrivals[len(self.arrivals) - 1] is not queue):
            self.arrivals.append(queue)
        return 0

    def end_round(self) -> None:
        """Write what the sessions of a round have placed, once for all of them, and let their answers go."""
        try:
            self.show()
        except FrameError:
            return  # those who waited have been told
        sessions, self.sessions = self.sessions, []
        try:
            for_each(sessions, lambda session: session.let_go())
        finally:
            self.tell()

    cdef int tell(self) except -1:
        """Tell of what arrived."""
        if self.has_placed:
            self.has_placed = False
            if self.tells_placed:
                self.on_placed()
        if self.has_timed:
            self.has_timed = False
            self.on_timed()
        if self.arrivals:
            arrivals = self.arrivals
            self.arrivals = []
            self.on_arrivals(arrivals)
        return 0

    # ------------------------------------------------------------ answers to pulls

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

    cdef int write_found(self, Head* head, Queue queue, Grant grant, Text* slices, ReadResult* result,
                         Output output) except -1:
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


@cython.final
cdef class HeldPull:
    """A pull that waits for messages. When some have come the lane may answer it as if it had come just now."""

    def __init__(self, Lane lane not None, bytes grant_key not None, int32_t opaque, bint is_binary, *,
                 int64_t queue_id, int64_t count_max, int64_t system_flag, int64_t version):
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


cdef int for_each(list sessions, do) except -1:
    """Do it for each, whatever became of the others; then raise what the first of them raised."""
    cdef object fault = None
    for session in sessions:
        try:
            do(session)
        except BaseException as error:
            fault = fault or error
    if fault is not None:
        raise fault
    return 0


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
