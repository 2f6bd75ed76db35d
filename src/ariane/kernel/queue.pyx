"""Consume queues: 20 bytes for each message, which say where its record lies. Format: docs/formats/."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove, memset

from ariane.kernel.hashing cimport java_hash_from
from ariane.kernel.layout cimport PADDING_SIZE, QUEUE_ENTRY_BYTES, load32, load64, publish, save32, save64
from ariane.kernel.maps cimport Maps

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, int64_t position)
    int close(int descriptor)

cdef enum:
    QUEUE_DESK_ENTRIES = 800
    QUEUE_CALL_ENTRIES = 64 # fewer are worth no call
KEPT_MAX = KEPT_ENTRIES_MAX


@cython.final
cdef class Tally:
    """How many entries the queues of a store have, and which queues grew since somebody took note.

    Looking at all of tens of thousands of queues would hold the loop up. Every queue that is made with a tally is a
    member until it leaves, so a queue in the list is alive. Entries that a start puts in are not counted: `recount`.
    """

    def __cinit__(self):
        self.grown = NULL

    def __dealloc__(self):
        PyMem_Free(self.grown)

    def take_grown(self) -> list[Queue]:
        """The queues that grew since the last call."""
        cdef list taken = [None] * self.grown_count
        cdef Py_ssize_t i
        for i in range(self.grown_count):
            (<Queue> self.grown[i]).is_grown = False
            taken[i] = <Queue> self.grown[i]
        self.grown_count = 0
        return taken

    def recount(self, queues) -> None:
        """Count all members anew."""
        cdef Queue queue
        self.queue_count = self.entry_count = 0
        for queue in queues:
            self.count_end(0, queue.end_offset)

    def leave(self, Queue queue not None) -> None:
        """Let go of a queue, whose entries are gone."""
        cdef Py_ssize_t i
        assert queue.tally is self
        self.count_end(queue.end_offset, 0)
        for i in range(self.grown_count):
            if self.grown[i] == <PyObject*> queue:
                self.grown_count -= 1
                self.grown[i] = self.grown[self.grown_count]
                break
        self.member_count -= 1
        queue.tally = None

    cdef int join(self) except -1:
        cdef PyObject** grown
        if self.member_count == self.capacity:
            grown = <PyObject**> PyMem_Realloc(self.grown, (self.capacity * 2 or 64) * sizeof(PyObject*))
            if grown == NULL:
                raise MemoryError
            self.grown = grown
            self.capacity = self.capacity * 2 or 64
        self.member_count += 1
        return 0

    cdef void count_end(self, int64_t before, int64_t end) noexcept nogil:
        """A queue ends elsewhere."""
        self.entry_count += end - before
        self.queue_count += (1 if end else 0) - (1 if before else 0)


@cython.final
cdef class Queue(Maps):
    """One consume queue. Entry N is 20 bytes at position N * 20; `end` is the next one to be written.

    The newest few are kept here and go into the file together: a store of many queues writes one page among
    thousands for each of them, and finding that page costs more than the entry (docs/decisions/0020). Readers find
    them here; whoever asks where the queue ends has them in the file. A queue that grows fast has a desk for more of
    them, and writes many at a time by a system call (docs/decisions/0025). A fresh queue has no file: its first
    entries are only here until one was made (docs/decisions/0029).

    Invariant: the kept entries are the last ones before `end_offset`.
    """

    def __init__(self, bytes topic not None, int32_t queue_id, int64_t file_bytes, *, bint is_schedule=False,
                 Tally tally=None):
        if file_bytes % QUEUE_ENTRY_BYTES:
            raise ValueError("a queue file holds whole entries")
        self.file_bytes = file_bytes
        self.topic = topic
        self.queue_id = queue_id
        self.is_schedule = is_schedule
        self.index_prefix_hash = java_hash_from(0, <const uint8_t*> PyBytes_AS_STRING(topic), len(topic))
        self.index_prefix_hash = java_hash_from(self.index_prefix_hash, <const uint8_t*> b"#", 1)
        self.end_offset = self.assigned = self.min_offset = self.reserved_end = 0
        self.kept_count = 0
        self.kept = self.near
        self.kept_max = KEPT_ENTRIES_MAX
        self.desk = NULL
        self.descriptor = -1
        self.has_mapped = False
        self.is_waiting = False
        self.is_fresh = self.is_grown = False
        self.kept_first = 0
        if tally is not None:
            tally.join()
        self.tally = tally
        self.find_tail()

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        PyMem_Free(self.desk)

    def write_by(self, int descriptor) -> None:
        """Write into the newest file by calls on this descriptor, the queue's to close; -1: through the map."""
        self.write_kept()
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = -1
        self.kept = self.near
        self.kept_max = KEPT_ENTRIES_MAX
        if descriptor < 0:
            PyMem_Free(self.desk)
            self.desk = NULL
            return
        if self.desk == NULL:
            self.desk = <uint8_t*> PyMem_Malloc(QUEUE_DESK_ENTRIES * QUEUE_ENTRY_BYTES)
            if self.desk == NULL:
                close(descriptor)
                raise MemoryError
        self.descriptor = descriptor
        self.kept = self.desk
        self.kept_max = QUEUE_DESK_ENTRIES

    @property
    def writes_by_calls(self) -> bool:
        """Whether many entries are written at a time, by calls."""
        return self.descriptor >= 0

    def take_mapped(self) -> bool:
        """Whether entries were written through the map since the last call."""
        cdef bint has_mapped = self.has_mapped
        self.has_mapped = False
        return has_mapped

    def begin_fresh(self) -> None:
        """Take first entries without a file, `KEPT_MAX` at most; one must be made meanwhile, and adopted."""
        assert not self.count and not self.end_offset
        self.is_fresh = True
        self.reserved_end = min(KEPT_ENTRIES_MAX, self.file_bytes // QUEUE_ENTRY_BYTES)

    def kept_bytes(self) -> bytes:
        """The entries that are only here, as a file has them."""
        return PyBytes_FromStringAndSize(<char*> self.kept, self.kept_count * QUEUE_ENTRY_BYTES)

    def adopt(self, buffer, int64_t written_count) -> None:
        """Take the first file of a fresh queue, in which so many of the kept entries are already."""
        assert self.is_fresh and written_count <= self.kept_count
        Maps.add(self, 0, buffer)
        self.is_fresh = False
        self.find_tail()
        self.kept_count -= <int> written_count
        self.kept_first += written_count
        memmove(self.kept, self.kept + written_count * QUEUE_ENTRY_BYTES, self.kept_count * QUEUE_ENTRY_BYTES)

    def begin_at(self, int64_t queue_offset) -> None:
        """Go on elsewhere; what was kept belongs to files that are no more."""
        self.kept_count = 0
        self.is_fresh = False
        self.min_offset = self.reserved_end = queue_offset
        self.end = queue_offset

    @property
    def has_entries(self) -> bool:
        """Whether it ever had one: in a file, or here until there is a file."""
        return self.count > 0 or self.is_fresh

    def add(self, int64_t position, buffer) -> None:
        """Take the next file, which begins at `position`; a first file may begin anywhere."""
        self.write_by(-1)
        Maps.add(self, position, buffer)
        self.find_tail()

    def drop_first(self) -> None:
        """Forget the oldest file."""
        self.write_kept()
        Maps.drop_first(self)
        self.find_tail()

    def drop_last(self) -> None:
        """Forget the newest file."""
        self.write_by(-1)
        Maps.drop_last(self)
        self.find_tail()

    def settle(self) -> None:
        """Put the entries kept here into the file, for whoever reads it without asking."""
        self.write_kept()

    @property
    def end(self) -> int:
        """The next entry to be written; those before it are in the file, if there is one."""
        self.write_kept()
        return self.end_offset

    @end.setter
    def end(self, int64_t queue_offset) -> None:
        self.write_kept()
        self.end_at(queue_offset)
        self.assigned = queue_offset

    cdef void end_at(self, int64_t queue_offset) noexcept nogil:
        """Let the next entry be another one; none is kept."""
        if self.tally is not None:
            self.tally.count_end(self.end_offset, queue_offset)
        self.end_offset = queue_offset

    cdef uint8_t* at(self, int64_t position) noexcept nogil:
        """The byte at a position, NULL when there is none; kept entries are where they are until the next append."""
        cdef int64_t kept = position - self.kept_first * QUEUE_ENTRY_BYTES
        if self.kept_count and 0 <= kept < self.kept_count * QUEUE_ENTRY_BYTES:
            return self.kept + kept
        return Maps.at(self, position)

    cdef void write_kept(self) noexcept nogil:
        """Put the entries kept here into the file; those of a fresh queue stay."""
        cdef int64_t done = 0, count, position
        cdef uint8_t* to
        if self.kept_count == 0 or self.is_fresh:
            return
        while done < self.kept_count:
            position = (self.kept_first + done) * QUEUE_ENTRY_BYTES
            to = Maps.at(self, position)
            count = (self.file_bytes - (position - self.first_position) % self.file_bytes) // QUEUE_ENTRY_BYTES
            count = min(count, self.kept_count - done)
            self.write_entries(self.kept + done * QUEUE_ENTRY_BYTES, to, count)
            done += count
        self.kept_count = 0

    cdef void write_entries(self, const uint8_t* kept, uint8_t* to, int64_t count) noexcept nogil:
        cdef int64_t size = count * QUEUE_ENTRY_BYTES, i
        if (count >= QUEUE_CALL_ENTRIES and self.tail <= to < self.tail + self.file_bytes
                and pwrite(self.descriptor, kept, size, to - self.tail) == size):
            return
        self.has_mapped = True  # also by what a call cannot write; a sync will tell why
        for i in range(count):
            memcpy(to, kept, 8)
            memcpy(to + 12, kept + 12, 8)
            publish()
            memcpy(to + 8, kept + 8, 4)  # the size last, as `save_entry` does
            kept += QUEUE_ENTRY_BYTES
            to += QUEUE_ENTRY_BYTES

    cdef void find_tail(self) noexcept:
        """Keep the newest file at hand: a queue among thousands is found with few cache misses."""
        self.tail = self.pointers[self.count - 1] if self.count else NULL
        self.tail_end = (self.first_position + self.count * self.file_bytes) // QUEUE_ENTRY_BYTES
        self.tail_first = self.tail_end - (self.file_bytes // QUEUE_ENTRY_BYTES if self.count else 0)

    def entry(self, int64_t queue_offset) -> tuple[int, int, int] | None:
        """(log offset, record size, tags code) of one entry, or None when it is not there."""
        cdef uint8_t* at = self.at(queue_offset * QUEUE_ENTRY_BYTES)
        if at == NULL or load32(at + 8) == 0:
            return None
        return <int64_t> load64(at), <int32_t> load32(at + 8), <int64_t> load64(at + 12)

    def pad(self, int64_t first, int64_t end) -> None:
        """Mark entries as never used, so that a queue may begin above zero or step over a hole."""
        cdef int64_t offset
        cdef uint8_t* at
        self.write_kept()
        for offset in range(first, end):
            at = self.at(offset * QUEUE_ENTRY_BYTES)
            if at == NULL:
                raise IndexError(f"queue entry {offset} is not mapped")
            save64(at, 0)
            save32(at + 8, PADDING_SIZE)
            save64(at + 12, 0)

    def clear(self, int64_t first, int64_t end) -> None:
        """Zero entries [first, end): zero is how a queue ends."""
        cdef int64_t offset
        cdef uint8_t* at
        self.write_kept()
        for offset in range(first, end):
            at = self.at(offset * QUEUE_ENTRY_BYTES)
            if at != NULL:
                memset(at, 0, QUEUE_ENTRY_BYTES)

    def first_from(self, int64_t log_offset) -> int:
        """The first entry in [min_offset, end) that points at or beyond `log_offset`."""
        cdef int64_t low = max(self.min_offset, self.first_position // QUEUE_ENTRY_BYTES)
        cdef int64_t high = self.end_offset
        cdef int64_t middle
        while low < high:
            middle = (low + high) // 2
            if points_below(self, middle, log_offset):
                low = middle + 1
            else:
                high = middle
        return low


cdef bint has_entry_room(Queue queue, int64_t count) noexcept nogil:
    """Whether the next `count` entries have a place: blocks and a mapped file, or the memory of a fresh queue."""
    cdef int64_t last = queue.end_offset + count - 1
    return last < queue.reserved_end and (
        queue.tail_first <= last < queue.tail_end or queue.is_fresh or Maps.at(queue, last * QUEUE_ENTRY_BYTES) != NULL)


cdef void keep_entry(Queue queue, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil:
    """Take the next entry, for which there is room; it is in the file once `kept_max` are, or somebody asks."""
    if queue.kept_count == queue.kept_max:
        queue.write_kept()
    if queue.kept_count == 0:
        queue.kept_first = queue.end_offset
    save_entry(queue.kept + queue.kept_count * QUEUE_ENTRY_BYTES, log_offset, size, tags)
    queue.kept_count += 1
    if queue.tally is not None:
        queue.tally.count_end(queue.end_offset, queue.end_offset + 1)
        if not queue.is_grown:
            queue.is_grown = True
            queue.tally.grown[queue.tally.grown_count] = <PyObject*> queue
            queue.tally.grown_count += 1
    queue.end_offset += 1


cdef void save_entry(uint8_t* at, int64_t log_offset, int64_t size, int64_t tags) noexcept nogil:
    save64(at, log_offset)
    save64(at + 12, tags)
    publish()
    save32(at + 8, <uint32_t> size)


cdef bint points_below(Queue queue, int64_t queue_offset, int64_t log_offset) noexcept nogil:
    cdef uint8_t* at = queue.at(queue_offset * QUEUE_ENTRY_BYTES)
    return at != NULL and <int32_t> load32(at + 8) > 0 and <int64_t> load64(at) < log_offset
