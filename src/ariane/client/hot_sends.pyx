"""What a producer does once per message: write the request, read the answer, make the receipt.

A frame written here is to the byte what `protocol.command` writes for the same header. An answer is
settled here when it is plain: success, with every field a receipt needs. Any other answer is handed
over as a Command, which is the specification of both (tests/property/test_client_kernel.py).
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memmove

from ariane.errors import FrameError, ProtocolError
from ariane.kernel.frames cimport Field, Head, Output, number_of, scan_binary, scan_json, write_number, write_text
from ariane.kernel.layout cimport BATCH_ENTRY_BYTES_MIN, Text, load32, save16, save32
from ariane.kernel.unique_keys cimport KEY_HEAD_BYTES_MAX, KEY_TAIL_BYTES, KeyMaker

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    FRAME_FIELDS_BYTES = 128        # numbers and the names between them, at their longest
    FLUSH_BYTES = 16 << 10         # gathered before they are written anyway
    DRESS_BYTES = 32                # names and marks of the properties that every message has
    PROPERTIES_BYTES_MAX = 16 << 10  # of a plain send; longer ones are measured in Python
    RESPONSE_FLAG = 1
    # Requests sent from here have opaques of their own half, so that answers find their way.
    OPAQUE_BIT = 1 << 30
    OPAQUE_MASK = OPAQUE_BIT - 1

cdef int64_t WIDE = 1 << 60


# ---------------------------------------------------------------- text


cdef inline Text text_of(str text) except *:
    """The text as UTF-8, good as long as the object is."""
    cdef Text found
    cdef Py_ssize_t size = 0
    found.at = <const uint8_t*> PyUnicode_AsUTF8AndSize(text, &size)
    found.size = size
    return found


cdef uint8_t* write_escaped(uint8_t* to, Text text) noexcept nogil:
    """Text as it stands in a JSON string; takes at most six bytes for each of its own."""
    cdef const char* digits = "0123456789abcdef"
    cdef const uint8_t* at = text.at
    cdef const uint8_t* end = text.at + text.size
    cdef uint8_t byte
    while at < end:
        byte = at[0]
        at += 1
        if byte >= 0x20 and byte != c'"' and byte != c'\\':
            to[0] = byte
            to += 1
            continue
        to[0] = c'\\'
        if byte == c'"' or byte == c'\\':
            to[1] = byte
        elif byte == c'\n':
            to[1] = c'n'
        elif byte == c'\r':
            to[1] = c'r'
        elif byte == c'\t':
            to[1] = c't'
        elif byte == 8:
            to[1] = c'b'
        elif byte == 12:
            to[1] = c'f'
        else:
            to[1] = c'u'
            to[2] = c'0'
            to[3] = c'0'
            to[4] = digits[byte >> 4]
            to[5] = digits[byte & 15]
            to += 4
        to += 2
    return to


cdef bytes escaped(str text):
    cdef Text plain = text_of(text)
    cdef bytes room = PyBytes_FromStringAndSize(NULL, plain.size * 6)
    cdef uint8_t* start = <uint8_t*> PyBytes_AS_STRING(room)
    return PyBytes_FromStringAndSize(<char*> start, write_escaped(start, plain) - start)


cdef str str_of(Text text):
    return PyUnicode_DecodeUTF8(<char*> text.at, text.size, NULL)


# ---------------------------------------------------------------- requests


cdef class Target:
    """One queue as the sends of one producer group name it: their header but for what changes."""

    cdef bytes before           # up to the system flag
    cdef bytes after            # from behind the properties to the opaque
    cdef bytes end              # behind the opaque
    cdef readonly object queue
    cdef readonly str broker_name
    cdef readonly str address
    cdef int64_t queue_id

    def __init__(self, queue, str address not None, *, int code, str group not None, str default_topic not None,
                 int default_queue_count, bint is_batch, int flag, str language not None, int version):
        self.queue = queue
        self.broker_name = queue.broker_name
        self.address = address
        self.queue_id = queue.queue_id
        self.before = (
            b'{"code":%d,"extFields":{"a":"%b","b":"%b","c":"%b","d":"%d","e":"%d","f":"'
            % (code, escaped(group), escaped(queue.topic), escaped(default_topic), default_queue_count, self.queue_id)
        )
        self.after = (
            b'","j":"0","k":"false","m":"%b","n":"%b"},"flag":%d,"language":"%b","opaque":'
            % (b"true" if is_batch else b"false", escaped(self.broker_name), flag, escaped(language))
        )
        self.end = b',"version":%d}' % version

    def frame(self, int32_t opaque, str properties not None, bytes body not None, int32_t system_flag, int32_t flag,
              int64_t born_ms) -> bytes:
        """A whole request."""
        cdef Output output = Output()
        self.write(output, opaque, text_of(properties), body, system_flag, flag, born_ms)
        return output.take()

    cdef Py_ssize_t write(self, Output output, int32_t opaque, Text properties, bytes body, int32_t system_flag,
                          int32_t flag, int64_t born_ms) except -1:
        """Add a request to what goes out; its size."""
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef uint8_t* start = output.room(
            FRAME_FIELDS_BYTES + PyBytes_GET_SIZE(self.before) + PyBytes_GET_SIZE(self.after)
            + PyBytes_GET_SIZE(self.end) + properties.size * 6 + body_size
        )
        cdef uint8_t* to = write_bytes(start + 8, self.before)
        cdef Py_ssize_t header_size
        to = write_number(to, system_flag)
        to = write_text(to, '","g":"', 7)
        to = write_number(to, born_ms)
        to = write_text(to, '","h":"', 7)
        to = write_number(to, flag)
        to = write_text(to, '","i":"', 7)
        to = write_escaped(to, properties)
        to = write_bytes(to, self.after)
        to = write_number(to, opaque)
        to = write_bytes(to, self.end)
        header_size = to - start - 8
        if header_size > 0xFFFFFF:
            raise ProtocolError(f"a header of {header_size} bytes does not fit a frame")
        memcpy(to, PyBytes_AS_STRING(body), body_size)
        save32(start, <uint32_t> (4 + header_size + body_size))
        save32(start + 4, <uint32_t> header_size)
        output.size += 8 + header_size + body_size
        return 8 + header_size + body_size


cdef uint8_t* write_dress(uint8_t* to, Text key, bint waits) noexcept nogil:
    """The properties that every message has, in the order of `client.parcels.properties_text`."""
    to = write_text(to, "UNIQ_KEY\x01", 9)
    to = write_text(to, <const char*> key.at, key.size)
    if waits:
        return write_text(to, "\x02WAIT\x01true\x02", 11)
    return write_text(to, "\x02WAIT\x01false\x02", 12)


cdef inline uint8_t* write_bytes(uint8_t* to, bytes text) noexcept:
    return write_text(to, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))


cdef class BatchBody:
    """The body of SEND_BATCH_MESSAGE (320), an entry at a time."""

    cdef Output output
    cdef readonly int count

    def __init__(self):
        self.output = Output()
        self.count = 0

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self.output.size

    def add(self, bytes body not None, str properties not None, int32_t flag) -> None:
        """One more message."""
        self.add_entry(body, text_of(properties), flag)

    def add_plain(self, bytes body not None, KeyMaker keys not None, int64_t wall_ms) -> str:
        """One more message that has no properties but its unique key; that key."""
        cdef uint8_t[2 * KEY_HEAD_BYTES_MAX + 2 * KEY_TAIL_BYTES + DRESS_BYTES] room
        cdef Text key = keys.make(wall_ms), text
        text.at = room
        text.size = write_dress(room, key, True) - room
        self.add_entry(body, text, 0)
        return PyUnicode_DecodeASCII(<char*> key.at, key.size, NULL)

    cdef int add_entry(self, bytes body, Text properties, int32_t flag) except -1:
        cdef Py_ssize_t body_size = PyBytes_GET_SIZE(body)
        cdef Py_ssize_t size = BATCH_ENTRY_BYTES_MIN + body_size + properties.size
        cdef uint8_t* to
        if properties.size > 0x7FFF or size > 0x7FFFFFFF:
            raise ProtocolError(f"a message of {size} bytes with {properties.size} of properties does not fit a batch")
        to = self.output.room(size)
        save32(to, <uint32_t> size)
        save32(to + 4, 0)
        save32(to + 8, 0)
        save32(to + 12, <uint32_t> flag)
        save32(to + 16, <uint32_t> body_size)
        memcpy(to + 20, PyBytes_AS_STRING(body), body_size)
        save16(to + 20 + body_size, <uint16_t> properties.size)
        memcpy(to + BATCH_ENTRY_BYTES_MIN + body_size, properties.at, properties.size)
        self.output.size += size
        self.count += 1
        return 0

    def take(self) -> bytes:
        """All of it; the next entry begins a new body."""
        self.count = 0
        return self.output.take()


# ---------------------------------------------------------------- answers


cdef struct Answer:
    Text offset_ids
    Text transaction_id
    Text recall_handle
    Text region
    int64_t queue_id
    int64_t queue_offset
    bint wants_trace


cdef bint read_answer(Head* head, Answer* answer) noexcept nogil:
    """What a plain success says; False when it is not one."""
    cdef Field* field
    cdef int i, needed = 0
    answer.transaction_id.size = answer.recall_handle.size = answer.region.size = 0
    answer.wants_trace = True
    if head.code != 0 or not head.flag & RESPONSE_FLAG:
        return False
    for i in range(head.field_count):
        field = &head.fields[i]
        if field.is_escaped:
            return False
        if is_named(field, "queueId", 7):
            if not number_of(field, 0, 0x7FFFFFFF, &answer.queue_id):
                return False
            needed |= 1
        elif is_named(field, "queueOffset", 11):
            if not number_of(field, 0, WIDE, &answer.queue_offset):
                return False
            needed |= 2
        elif is_named(field, "msgId", 5):
            answer.offset_ids = field.value
            needed |= 4
        elif is_named(field, "transactionId", 13):
            answer.transaction_id = field.value
        elif is_named(field, "recallHandle", 12):
            answer.recall_handle = field.value
        elif is_named(field, "MSG_REGION", 10):
            answer.region = field.value
        elif is_named(field, "TRACE_ON", 8):
            answer.wants_trace = not (field.value.size == 5 and memcmp(field.value.at, <const char*> "false", 5) == 0)
    return needed == 7


cdef inline bint is_named(Field* field, const char* name, Py_ssize_t size) noexcept nogil:
    return field.key.size == size and memcmp(field.key.at, name, size) == 0


cdef class Receipts:
    """Makes receipts of plain answers; `make` is their type, `status` what success is called."""

    cdef object make
    cdef object status
    cdef str region             # the last one seen; there is hardly ever another
    cdef Head head

    def __init__(self, make, status):
        self.make = make
        self.status = status
        self.region = ""

    def read(self, bytes frame not None, int32_t opaque, Target target not None, str message_id not None) -> object:
        """The receipt that a whole frame makes of a send, or None when it is not its plain answer."""
        cdef const uint8_t* at = <const uint8_t*> PyBytes_AS_STRING(frame)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(frame)
        cdef uint32_t word
        if size < 8:
            return None
        word = load32(at + 4)
        if word >> 24 > 1 or (word & 0xFFFFFF) > size - 8 or not self.scan(at + 8, word & 0xFFFFFF, word >> 24):
            return None
        return self.of(target, message_id) if self.head.opaque == opaque else None

    cdef bint scan(self, const uint8_t* header, Py_ssize_t size, bint is_binary) noexcept nogil:
        return scan_binary(header, size, &self.head) if is_binary else scan_json(header, size, &self.head)

    cdef object of(self, Target target, object message_ids):
        """A receipt of the answer just scanned, or a list of them, or None when it is not plain."""
        cdef Answer answer
        cdef str transaction_id = None, recall_handle = None, region = None
        if not read_answer(&self.head, &answer) or answer.queue_id != target.queue_id:
            return None
        if answer.recall_handle.size:
            recall_handle = str_of(answer.recall_handle)
        if answer.region.size and answer.wants_trace:
            region = self.region_of(answer.region)
        if isinstance(message_ids, str):
            if answer.transaction_id.size:
                transaction_id = same_or_new(<str> message_ids, answer.transaction_id)
            return self.make(self.status, message_ids, str_of(answer.offset_ids), target.queue, answer.queue_offset,
                             transaction_id, recall_handle, region)
        return self.all_of(target, <list> message_ids, &answer, region)

    cdef list all_of(self, Target target, list message_ids, Answer* answer, str region):
        """One receipt for each message of a batch; None when the answer names another number of them."""
        cdef const uint8_t* at = answer.offset_ids.at
        cdef const uint8_t* end = at + answer.offset_ids.size
        cdef const uint8_t* comma
        cdef list receipts = []
        cdef int64_t queue_offset = answer.queue_offset
        cdef Text offset_id
        for message_id in message_ids:
            if at > end:
                return None
            comma = <const uint8_t*> memchr(at, c',', end - at) if at < end else NULL
            offset_id.at = at
            offset_id.size = (end if comma == NULL else comma) - at
            receipts.append(self.make(self.status, message_id, str_of(offset_id), target.queue, queue_offset,
                                      None, None, region))
            queue_offset += 1
            at = offset_id.at + offset_id.size + 1
        return receipts if at == end + 1 else None

    cdef str region_of(self, Text text):
        cdef Text known = text_of(self.region)
        if known.size != text.size or memcmp(known.at, text.at, text.size) != 0:
            self.region = str_of(text)
        return self.region


cdef str same_or_new(str known, Text text):
    """The text as a str: the known one when it is the same."""
    cdef Text same = text_of(known)
    if same.size == text.size and memcmp(same.at, text.at, text.size) == 0:
        return known
    return str_of(text)


# ---------------------------------------------------------------- a connection


cdef class Waiting:
    """A send whose answer has not come; who goes on from here finds what the attempt was."""

    cdef readonly object future
    cdef readonly Target target
    cdef readonly object message_ids
    cdef readonly int64_t born_ms
    cdef readonly double asked_s
    cdef readonly double deadline_s
    cdef readonly double latency_s      # once it is answered


cdef class SendLane:
    """The decoder of a client's connection (`protocol.command.FrameReader`), and the way of its sends.

    Frames gather until `flush` is called, which `schedule()` asks for when there is something to
    write. `arm(deadline_s)` asks for `expire` to be called then, `now_s()` is the time. A send's
    future ends with its receipt, or with the Command that answered it when that is not plain.
    """

    cdef object decode
    cdef object make_future
    cdef object schedule
    cdef object arm
    cdef object write
    cdef Receipts receipts
    cdef Output output
    cdef dict pending               # opaque -> Waiting
    cdef int32_t last_opaque
    cdef double armed_s
    cdef object scratch_owner
    cdef object scratch_view
    cdef const uint8_t* scratch
    cdef uint8_t* held              # bytes of an unfinished frame
    cdef Py_ssize_t held_size
    cdef Py_ssize_t held_capacity
    cdef object error
    cdef int64_t frame_bytes_max
    cdef int64_t header_bytes_max
    cdef readonly int64_t frame_count
    cdef readonly double heard_s            # when the last answer to a send came
    cdef object now_s
    cdef bint is_gone

    def __cinit__(self, *arguments, **keywords):
        self.held = NULL
        self.held_size = self.held_capacity = 0

    def __init__(self, Receipts receipts not None, *, decode, make_future, schedule, arm, write, now_s,
                 bytearray scratch not None, int64_t frame_bytes_max, int64_t header_bytes_max):
        cdef uint8_t[::1] view = scratch
        self.receipts = receipts
        self.decode = decode
        self.make_future = make_future
        self.schedule = schedule
        self.arm = arm
        self.write = write
        self.now_s = now_s
        self.output = Output()
        self.pending = {}
        self.armed_s = INFINITY
        self.scratch_owner = scratch
        self.scratch_view = memoryview(scratch)
        self.scratch = &view[0]
        self.frame_bytes_max = frame_bytes_max
        self.header_bytes_max = header_bytes_max

    def __dealloc__(self):
        PyMem_Free(self.held)

    # Sending.

    @property
    def pending_count(self) -> int:
        """Sends that wait for their answers."""
        return len(self.pending)

    def send(self, Target target not None, message_ids not None, str properties not None, bytes body not None,
             int32_t system_flag, int32_t flag, int64_t born_ms, double deadline_s) -> object:
        """Begin a send; its future. `message_ids` is a str, or a list of them for a batch."""
        return self.begin(
            target, message_ids, text_of(properties), body, system_flag, flag, born_ms, 0, deadline_s).future

    cdef Waiting begin(self, Target target, object message_ids, Text properties, bytes body, int32_t system_flag,
                       int32_t flag, int64_t born_ms, double asked_s, double deadline_s):
        cdef Waiting waiting = Waiting.__new__(Waiting)
        cdef int32_t opaque = self.last_opaque
        cdef bint is_first = self.output.size == 0
        while True:
            opaque = (opaque + 1) & OPAQUE_MASK
            if (opaque | OPAQUE_BIT) not in self.pending:
                break
        self.last_opaque = opaque
        opaque |= OPAQUE_BIT
        waiting.future = self.make_future()
        waiting.target = target
        waiting.message_ids = message_ids
        waiting.born_ms = born_ms
        waiting.asked_s = asked_s
        waiting.deadline_s = deadline_s
        target.write(self.output, opaque, properties, body, system_flag, flag, born_ms)
        self.pending[opaque] = waiting
        if deadline_s < self.armed_s:
            self.armed_s = deadline_s
            self.arm(deadline_s)
        self.written(is_first)
        return waiting

    def post(self, Target target not None, str properties not None, bytes body not None, int32_t system_flag,
             int32_t flag, int64_t born_ms) -> None:
        """Send what is not answered."""
        cdef bint is_first = self.output.size == 0
        target.write(self.output, 0, text_of(properties), body, system_flag, flag, born_ms)
        self.written(is_first)

    cdef int written(self, bint is_first) except -1:
        if self.output.size >= FLUSH_BYTES:
            self.write(self.output.take())
        elif is_first:
            self.schedule()
        return 0

    def flush(self) -> None:
        """Write what has gathered."""
        if self.output.size:
            self.write(self.output.take())

    def expire(self, double now_s) -> list:
        """Futures of sends whose time is up; the next deadline is armed."""
        cdef double next_s = INFINITY
        cdef Waiting waiting
        cdef list late = []
        for opaque, entry in self.pending.items():
            waiting = <Waiting> entry
            if waiting.deadline_s <= now_s:
                late.append(opaque)
            elif waiting.deadline_s < next_s:
                next_s = waiting.deadline_s
        self.armed_s = next_s
        if next_s != INFINITY:
            self.arm(next_s)
        return [self.forget(opaque) for opaque in late]

    def unanswered(self) -> list:
        """Futures of all sends that wait."""
        return [(<Waiting> entry).future for entry in self.pending.values()]

    def abandon(self) -> list:
        """Futures of all sends that wait; nothing waits any more, and nothing more is sent."""
        self.is_gone = True
        return [self.forget(opaque) for opaque in list(self.pending)]

    cdef object forget(self, opaque):
        return (<Waiting> self.pending.pop(opaque)).future

    # Receiving.

    @property
    def partial_bytes(self) -> int:
        """Bytes held of a frame that is not complete."""
        return self.held_size

    def get_buffer(self, size_hint) -> memoryview:
        """Where the next bytes go."""
        return self.scratch_view

    def close(self) -> None:
        """Forget what is held."""
        PyMem_Free(self.held)
        self.held = NULL
        self.held_size = self.held_capacity = 0

    def received(self, Py_ssize_t byte_count) -> list:
        """Settle the answers to sends; all other commands, in their order."""
        cdef const uint8_t* at = self.scratch
        cdef const uint8_t* end = self.scratch + byte_count
        cdef list commands = []
        cdef int64_t size
        cdef uint32_t word
        if self.error is not None:
            raise self.error
        if byte_count == 0:
            return commands
        if self.pending:
            self.heard_s = self.now_s()
        if self.held_size:
            self.hold(at, byte_count)
            at = self.held
            end = self.held + self.held_size
        try:
            while end - at >= 8:
                size = <int32_t> load32(at)
                word = load32(at + 4)
                self.check_lengths(size, word)
                if end - at < size + 4:
                    break
                self.frame_count += 1
                if not self.settle(at + 8, word & 0xFFFFFF, word >> 24):
                    self.hand_over(at, size + 4, commands)
                at += size + 4
        except ProtocolError as error:
            self.error = error.with_traceback(None)
            if not commands:
                raise
            return commands
        self.keep(at, end - at)
        return commands

    cdef bint settle(self, const uint8_t* header, Py_ssize_t header_size, bint is_binary) except -1:
        """End the send that a plain answer is for; False when it is for another or not plain."""
        cdef Receipts receipts = self.receipts
        cdef Waiting waiting
        if not self.pending or not receipts.scan(header, header_size, is_binary):
            return False
        if not receipts.head.flag & RESPONSE_FLAG:
            return False
        entry = self.pending.get(receipts.head.opaque)
        if entry is None:
            return False
        waiting = <Waiting> entry
        receipt = receipts.of(waiting.target, waiting.message_ids)
        if receipt is None:
            return False
        self.end(receipts.head.opaque, receipt)
        return True

    cdef int end(self, opaque, outcome) except -1:
        cdef Waiting waiting = <Waiting> self.pending.pop(opaque)
        waiting.latency_s = self.heard_s - waiting.asked_s
        if not waiting.future.done():
            waiting.future.set_result(outcome)
        return 0

    cdef int hand_over(self, const uint8_t* frame, Py_ssize_t size, list commands) except -1:
        command = self.decode(PyMemoryView_FromMemory(<char*> frame, size, PyBUF_READ))
        if command.is_response and command.opaque in self.pending:
            self.end(command.opaque, command)
        else:
            commands.append(command)
        return 0

    cdef int check_lengths(self, int64_t size, uint32_t word) except -1:
        cdef int64_t header_size = word & 0xFFFFFF
        if size < 4 + header_size or size + 4 > self.frame_bytes_max:
            raise FrameError(f"a frame of {size} bytes with a header of {header_size}; a frame may have "
                             f"{self.frame_bytes_max} bytes and must hold its header")
        if header_size > self.header_bytes_max:
            raise FrameError(f"a header of {header_size} bytes; at most {self.header_bytes_max} are read")
        if word >> 24 > 1:
            raise FrameError(f"serializer {word >> 24} is unknown; 0 is JSON, 1 is RocketMQ's binary form")
        return 0

    cdef int hold(self, const uint8_t* more, Py_ssize_t size) except -1:
        """Add to what is held."""
        cdef uint8_t* grown
        if self.held_size + size > self.held_capacity:
            grown = <uint8_t*> PyMem_Realloc(self.held, (self.held_size + size) * 2)
            if grown == NULL:
                raise MemoryError
            self.held = grown
            self.held_capacity = (self.held_size + size) * 2
        memcpy(self.held + self.held_size, more, size)
        self.held_size += size
        return 0

    cdef int keep(self, const uint8_t* rest, Py_ssize_t size) except -1:
        """Hold the beginning of a frame whose end has not come, and nothing else."""
        if size and self.held_size:
            memmove(self.held, rest, size)
            self.held_size = size
        elif size:
            self.hold(rest, size)
        elif self.held != NULL:
            self.close()
        return 0


# ---------------------------------------------------------------- plain sends


cdef class Ring:
    """The queues of one topic, which take turns, and the lanes to their brokers."""

    cdef list targets
    cdef list lanes
    cdef KeyMaker keys
    cdef Py_ssize_t turn
    cdef Py_ssize_t parts
    cdef double attempt_s


cdef class HotSends:
    """Sends of one producer group that need nothing but the next queue of a topic that is known.

    Python tells which topics those are (`learn`) and takes them back (`forget`) whenever a route, a
    connection or a broker's health has changed. `wall_ms()` and `monotonic_s()` are the clock.
    """

    cdef dict rings
    cdef object wall_ms
    cdef object monotonic_s
    cdef Output text
    cdef Py_ssize_t body_bytes_end
    cdef Py_ssize_t pending_max

    def __init__(self, *, wall_ms, monotonic_s, Py_ssize_t body_bytes_end, Py_ssize_t pending_max):
        self.rings = {}
        self.wall_ms = wall_ms
        self.monotonic_s = monotonic_s
        self.text = Output()
        self.body_bytes_end = body_bytes_end
        self.pending_max = pending_max

    def learn(self, str topic not None, list targets not None, list lanes not None, KeyMaker keys not None,
              Py_ssize_t turn, *, Py_ssize_t parts=1, double attempt_s=0.0) -> None:
        """Let sends to the topic come here; a lane is None where there is no connection yet.

        An attempt may take `attempt_s`, else one of so many equal parts of a send's time.
        """
        cdef Ring ring = Ring.__new__(Ring)
        if parts < 1 or not attempt_s >= 0:
            raise ValueError("an attempt has some of the time")
        if not targets or len(targets) != len(lanes) or turn < 0:
            raise ValueError("a topic has queues, and each queue has a place for its lane")
        for target, lane in zip(targets, lanes):
            if not isinstance(target, Target) or not (lane is None or isinstance(lane, SendLane)):
                raise TypeError("targets and lanes")
        ring.targets = targets
        ring.lanes = lanes
        ring.keys = keys
        ring.turn = turn
        ring.parts = parts
        ring.attempt_s = attempt_s
        self.rings[topic] = ring

    def knows(self, str topic) -> bool:
        """Whether sends to the topic come here, whichever queue is next."""
        cdef Ring ring = <Ring> self.rings.get(topic)
        return ring is not None and None not in ring.lanes

    def forget(self) -> None:
        """Send nothing from here until it is learnt anew."""
        self.rings.clear()

    def send(self, topic, body, str properties not None, bint waits, int32_t flag, double timeout_s) -> Waiting:
        """Begin a send; None, with nothing done, when it is not for here.

        `properties` is what goes before the unique key.
        """
        cdef Ring ring
        cdef SendLane lane
        cdef Py_ssize_t place
        cdef int64_t now_ms
        cdef double now_s
        cdef Text key, text = text_of(properties)
        entry = self.rings.get(topic)
        if entry is None or type(body) is not bytes or not 0 < PyBytes_GET_SIZE(body) < self.body_bytes_end:
            return None
        if text.size > PROPERTIES_BYTES_MAX:
            return None
        ring = <Ring> entry
        place = ring.turn % len(ring.targets)
        entry = ring.lanes[place]
        if entry is None:
            return None
        lane = <SendLane> entry
        if lane.is_gone or len(lane.pending) >= self.pending_max:
            return None
        ring.turn += 1
        now_ms = self.wall_ms()
        now_s = self.monotonic_s()
        key = ring.keys.make(now_ms)
        if ring.attempt_s and ring.attempt_s < timeout_s:
            timeout_s = ring.attempt_s
        elif not ring.attempt_s:
            timeout_s /= ring.parts
        return lane.begin(<Target> ring.targets[place], str_of(key), self.dressed(text, key, waits), <bytes> body, 0,
                          flag, now_ms, now_s, now_s + timeout_s)

    cdef Text dressed(self, Text properties, Text key, bint waits) except *:
        """All properties of a message."""
        cdef uint8_t* to
        cdef Text text
        self.text.size = 0
        to = self.text.room(properties.size + key.size + DRESS_BYTES)
        text.at = to
        to = write_text(to, <const char*> properties.at, properties.size)
        text.size = write_dress(to, key, waits) - text.at
        return text
