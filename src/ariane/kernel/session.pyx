"""One connection being served: plain sends and pulls are answered in one compiled call per read.

A frame takes the lane when everything about it is plain: a known open topic, a queue with room, no
property that asks for more; or a pull that Python has granted before and that finds messages. Any
other frame is handed back, in its place in the stream, as a Command for the broker's handlers. Those
handlers are the specification: for a frame both can carry out, the bytes on disk and on the wire
are the same (tests/property/test_lane.py).

A read goes from `readable` to `received`, `work`, `carry_out` (`sends.pyx`, `pulls.pyx`), and back to `finish`.
Answers gather in the lane's scratch and leave in one write when the bytes of a read are used up. Messages that come
alone in their read share the write to the log, and their answers leave when it is made (`Lane.end_round`); answers to
messages that must reach the disk first leave by `park`, with the log offset they wait for. While the peer takes its
answers too slowly, nothing more of what it asked for is carried out.

Invariants: an idle session owns no memory but its own; bytes that wait are in a buffer of the session's, and counted;
a session that raised is closed, and no other has lost or got an answer by it.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove

from ariane.errors import FrameError, ProtocolError
from ariane.kernel.frames cimport Head, Output, scan_binary, scan_json
from ariane.kernel.lane cimport READ_BYTES_MAX, Lane, Scratch
from ariane.kernel.layout cimport Text, load32
from ariane.kernel.pulls cimport LITE_PULL, PULL, pull
from ariane.kernel.sends cimport SEND, SEND_BATCH, SEND_V2, send_message
from ariane.kernel.sockets cimport Channel

cdef enum:
    POP = 200050
    RESPONSE_FLAG = 1
    ONE_WAY_FLAG = 2

cdef enum:
    SHARE_BYTES = 1 << 17       # of a read, unless a frame needs more: others are to have their turn
    ANSWERS_BYTES_MAX = 1 << 20 # for one read, for the same reason: then we go on a little later
    SPARE_BYTES_MAX = 1 << 16   # that a buffer may have and not use
    REPLY_BYTES_MAX = 1 << 20   # gathered before they are handed over anyway, so that a slow peer is noticed
    SHARED_BYTES_MAX = 1 << 13  # of messages: more are worth a write of their own, and replies at once
    READS_BYTES_MAX = 1 << 13   # of messages: the peer unpacks them while the next are looked up


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
            # What was carried out is answered now, but for what waits for the disk; the rest of the stream is out
            # of step and goes with the connection.
            try:
                if self.answers is not None:
                    self.lane.end_round()
                self.leave()
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
        lane.scratch.now_ms = lane.begin()
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
        frame.is_plain = (self.lane.scratch.now_ms > 0 and scan_header(start + 8, word, head)
                          and not head.flag & RESPONSE_FLAG)
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
            return send_message(self.lane, self.born_host, &frame.head, frame.body)
        if code == PULL or code == LITE_PULL:
            return pull(self.lane, self.peer, &frame.head, frame.start, frame.end - frame.start)
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
            return self.leave()
        self.answers = scratch.now.take()
        self.parked = scratch.later.take()
        self.parked_offset = scratch.later_offset
        lane.sessions.append(self)
        if unstored >= SHARED_BYTES_MAX:
            lane.end_round()
        elif len(lane.sessions) == 1:
            self.after_round(lane.end_round)
        return 0

    cdef int leave(self) except -1:
        """Let the answers go at once."""
        cdef Lane lane = self.lane
        cdef Scratch scratch = lane.scratch
        lane.show()
        self.send_now()
        if scratch.later.size:
            lane.park(self.peer, scratch.later.take(), scratch.later_offset)
        lane.tell()
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

    # ------------------------------------------------------------ pop

    cdef bint pop(self, Head* head, Text body) except -1:
        """A pop or an acknowledgement, which waits for the disk where a send would; a pop need not."""
        cdef Lane lane = self.lane
        cdef Scratch scratch = lane.scratch
        if head.code == POP:
            lane.show()  # an acknowledgement reads nothing of the log
        if head.flag & ONE_WAY_FLAG or not lane.pops.carry_out(
                head, body, lane.scratch.now_ms, scratch.later if lane.parks and head.code != POP else scratch.now):
            return False
        scratch.later_offset = lane.log.end
        lane.has_placed = True
        return True


cdef inline bint scan_header(const uint8_t* at, uint32_t word, Head* head) noexcept nogil:
    if word >> 24:
        return scan_binary(at, word & 0xFFFFFF, head)
    return scan_json(at, word & 0xFFFFFF, head)
