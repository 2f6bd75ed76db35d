"""What the checker does once per message: files beside what the log says they should hold.

All of it looks at bytes alone, a stretch at a time, so that whoever owns a stretch may let go of it afterwards.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp

from ariane.kernel.layout cimport PADDING_SIZE, QUEUE_ENTRY_BYTES, load32, load64

cdef enum:
    INDEX_ENTRY_BYTES = 20
    SLOT_BYTES = 4


def used_entries(const uint8_t[::1] entries not None) -> int:
    """How many entries of a queue file come before the first that is empty."""
    cdef int64_t count = entries.shape[0] // QUEUE_ENTRY_BYTES, i
    for i in range(count):
        if load32(&entries[i * QUEUE_ENTRY_BYTES] + 8) == 0:
            return i
    return count


def agreeing_entries(const uint8_t[::1] entries not None, const uint8_t[::1] expected, int64_t first, int64_t end,
                     int64_t compared_from, int64_t log_first) -> tuple[int, int]:
    """Go from entry `first` on while nothing differs; (where that ends, how many of these are of records in the log).

    Entries that need not be looked at are passed over: those before `compared_from`, and those of records below
    `log_first` or of none.
    """
    cdef int64_t i = first, count = 0
    cdef const uint8_t* at
    while i < end:
        at = &entries[i * QUEUE_ENTRY_BYTES]
        if i >= compared_from and <int64_t> load64(at) >= log_first and load32(at + 8) != PADDING_SIZE:
            if expected is None or memcmp(at, &expected[i * QUEUE_ENTRY_BYTES], QUEUE_ENTRY_BYTES):
                break
            count += 1
        i += 1
    return i, count


cdef class Chains:
    """The slots and chains of an index file as its entries would have them; these come in order, from entry 1 on."""

    cdef uint32_t* newest
    cdef uint32_t slot_count
    cdef uint32_t next_entry

    def __cinit__(self, int64_t slot_count):
        if not 0 < slot_count <= 0x7FFFFFFF:
            raise ValueError(f"an index file has {slot_count} slots")
        self.slot_count = <uint32_t> slot_count
        self.next_entry = 1
        self.newest = <uint32_t*> calloc(slot_count, sizeof(uint32_t))
        if self.newest == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.newest)

    def follow(self, const uint8_t[::1] entries not None) -> int:
        """Take the next entries; the first that does not lead to the one before it in its chain, 0 if all do."""
        cdef int64_t count = entries.shape[0] // INDEX_ENTRY_BYTES, i
        cdef const uint8_t* at
        cdef uint32_t slot, astray = 0
        for i in range(count):
            at = &entries[i * INDEX_ENTRY_BYTES]
            slot = (load32(at) & 0x7FFFFFFF) % self.slot_count
            if load32(at + 16) != self.newest[slot] and astray == 0:
                astray = self.next_entry
            self.newest[slot] = self.next_entry
            self.next_entry += 1
        return astray

    def wrong_slot(self, const uint8_t[::1] slots not None) -> int:
        """The first slot that is not where its chain begins, given all of them; -1 if all are."""
        cdef int64_t i
        for i in range(min(<int64_t> self.slot_count, slots.shape[0] // SLOT_BYTES)):
            if load32(&slots[i * SLOT_BYTES]) != self.newest[i]:
                return i
        return -1


cdef class Keys:
    """Compares the keys that the log has with those of index files. Both come in log order, in stretches."""

    cdef object stretches           # an iterator of what the files have
    cdef object stretch             # held while pointers lead into it
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef int32_t* hashes            # of the record that is being compared
    cdef int64_t hash_count
    cdef int64_t hash_room
    cdef readonly int64_t count     # keys the log has

    def __cinit__(self, stretches):
        self.stretches = iter(stretches)
        self.at = self.end = NULL
        self.hashes = NULL
        self.hash_count = self.hash_room = 0

    def __dealloc__(self):
        free(self.hashes)

    def lacking(self, const uint8_t[::1] entries not None) -> list[tuple[int, int]]:
        """(log offset, keys) of each record whose keys the files lack, given the next of those that should be there.

        No record has its keys in two calls.
        """
        cdef const uint8_t* first = NULL
        cdef const uint8_t* last
        cdef const uint8_t* stop
        cdef int64_t log_offset, known
        cdef bint is_whole
        found = []
        if entries.shape[0] == 0:
            return found
        first = &entries[0]
        stop = first + entries.shape[0] // INDEX_ENTRY_BYTES * INDEX_ENTRY_BYTES
        while first < stop:
            log_offset = <int64_t> load64(first + 4)
            last = first + INDEX_ENTRY_BYTES
            while last < stop and <int64_t> load64(last + 4) == log_offset:
                last += INDEX_ENTRY_BYTES
            self.take(log_offset)
            is_whole, known = True, 0
            while first < last:
                if not is_among(first, last):  # one text twice is one key
                    known += 1
                    is_whole = is_whole and self.has(<int32_t> load32(first))
                first += INDEX_ENTRY_BYTES
            self.count += known
            if not is_whole:
                found.append((log_offset, known))
        return found

    def finish(self) -> None:
        """Go to the end of the files."""
        while self.advance():
            self.at = self.end

    cdef bint advance(self) except -1:
        """Whether there is an entry, after the next stretch was taken if that is needed."""
        cdef const uint8_t[::1] view
        while self.at == self.end:
            self.stretch = None
            self.at = self.end = NULL
            stretch = next(self.stretches, None)
            if stretch is None:
                return False
            view = stretch
            if view.shape[0] >= INDEX_ENTRY_BYTES:
                self.stretch = view
                self.at = &view[0]
                self.end = self.at + view.shape[0] // INDEX_ENTRY_BYTES * INDEX_ENTRY_BYTES
        return True

    cdef int take(self, int64_t log_offset) except -1:
        """Take the hashes that the files have of a record, passing over those before it."""
        cdef int32_t* hashes
        self.hash_count = 0
        while self.advance() and <int64_t> load64(self.at + 4) <= log_offset:
            if <int64_t> load64(self.at + 4) == log_offset:
                if self.hash_count == self.hash_room:
                    hashes = <int32_t*> realloc(self.hashes, (self.hash_room * 2 or 16) * sizeof(int32_t))
                    if hashes == NULL:
                        raise MemoryError
                    self.hashes = hashes
                    self.hash_room = self.hash_room * 2 or 16
                self.hashes[self.hash_count] = <int32_t> load32(self.at)
                self.hash_count += 1
            self.at += INDEX_ENTRY_BYTES
        return 0

    cdef bint has(self, int32_t hash) noexcept nogil:
        cdef int64_t i
        for i in range(self.hash_count):
            if self.hashes[i] == hash:
                return True
        return False


cdef bint is_among(const uint8_t* entry, const uint8_t* end) noexcept nogil:
    """Whether a later entry, before `end`, has the same hash."""
    cdef const uint8_t* other = entry + INDEX_ENTRY_BYTES
    while other < end:
        if load32(other) == load32(entry):
            return True
        other += INDEX_ENTRY_BYTES
    return False
