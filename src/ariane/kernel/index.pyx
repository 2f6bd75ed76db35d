"""Index files: which records have a key. Format: docs/formats/index.md."""

cimport cython
from cpython.buffer cimport PyBUF_READ, PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uintptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy, memset

from ariane.kernel.hashing cimport java_hash_from
from ariane.kernel.layout cimport (
    SECTOR_BYTES, expect_write, inverse_of, load32, load64, publish, remainder_of, save32, save64,
)

cdef extern from "<sys/mman.h>" nogil:
    """
    #ifndef MADV_HUGEPAGE
    #define MADV_HUGEPAGE 0     /* no advice */
    #endif
    """
    int MADV_HUGEPAGE
    int madvise(void* first, size_t size, int advice)

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int descriptor, const void* buffer, size_t size, int64_t position)
    int close(int descriptor)

cdef enum:
    INDEX_HEADER_BYTES = 40
    INDEX_SLOT_BYTES = 4
    INDEX_ENTRY_BYTES = 20
    HUGE_PAGE_BYTES = 1 << 21
    DESK_ENTRIES = 1600     # 32,000 bytes: some pages at a time


@cython.final
cdef class Index:
    """One index file: hash slots, each the newest end of a chain of entries.

    A key waits here until a few more have come: its slot lies anywhere in 20 MB, and is on its way from memory
    meanwhile. Whoever asks for anything in the file finds every key in it.

    The slots of a file that takes keys lie on a table in memory (docs/decisions/0022), and are in the file once a
    checkpoint finds it full or the store stops. They only say what the entries say: after a kill they are made anew.
    Entries gather on a desk and go into the file by a system call: a page that was written through the map must be
    taken from every processor's tables when it is synced.
    """

    def __init__(self, buffer, int64_t slot_count, int64_t entry_count):
        cdef Py_buffer view
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE | PyBUF_WRITABLE)
        cdef Py_ssize_t size = view.len
        self.base = <uint8_t*> view.buf
        PyBuffer_Release(&view)
        if not 0 < slot_count <= 0xFFFFFFFF:
            raise ValueError(f"an index file has {slot_count} slots; it needs at least one")
        if size != index_file_bytes(slot_count, entry_count):
            raise ValueError(f"an index file of {size} bytes, not {index_file_bytes(slot_count, entry_count)}")
        self.buffer = memoryview(buffer)
        self.slots = self.base + INDEX_HEADER_BYTES
        self.slot_count = slot_count
        self.slot_inverse = inverse_of(<uint32_t> slot_count)
        self.entry_count = entry_count
        self.reserved_end = entry_count
        self.first_kept = self.kept_count = 0
        self.descriptor = -1
        self.desk = <uint8_t*> PyMem_Malloc(DESK_ENTRIES * INDEX_ENTRY_BYTES)
        if self.desk == NULL:
            raise MemoryError
        self.first_on_desk = self.next_entry = 0
        self.reload()

    def reload(self) -> None:
        """Take the counters from the header (an empty file counts from entry 1)."""
        self.write_kept()
        self.first_on_desk = self.next_entry = max(1, min(<int64_t> <int32_t> load32(self.base + 36), self.entry_count))
        self.used_slots = max(0, <int32_t> load32(self.base + 32))

    def __dealloc__(self):
        if self.descriptor >= 0:
            close(self.descriptor)
        PyMem_Free(self.desk)
        free(self.table)

    def write_by(self, int descriptor) -> None:
        """Write entries by calls on this descriptor, which is the index's to close; -1: through the map."""
        self.write_kept()
        if self.descriptor >= 0:
            close(self.descriptor)
        self.descriptor = descriptor

    def take_slots(self) -> None:
        """Have the slots on a table from now on, for there are keys to come."""
        cdef int64_t size = self.slot_count * INDEX_SLOT_BYTES
        if self.table != NULL:
            return
        self.table = calloc(1, size + HUGE_PAGE_BYTES)
        if self.table == NULL:
            raise MemoryError
        self.slots = <uint8_t*> ((<uintptr_t> self.table + HUGE_PAGE_BYTES - 1) // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES)
        madvise(self.slots, size, MADV_HUGEPAGE)  # a wish: where there are none, small ones do
        if self.next_entry > 1:
            memcpy(self.slots, self.base + INDEX_HEADER_BYTES, size)

    @property
    def has_table(self) -> bool:
        """Whether the slots are on a table, and the file knows nothing of them."""
        return self.table != NULL

    @property
    def slot_bytes(self) -> memoryview:
        """The slots of an index that takes no more keys, wherever they lie, until `leave_table`."""
        return PyMemoryView_FromMemory(<char*> self.slots, self.slot_count * INDEX_SLOT_BYTES, PyBUF_READ)

    def leave_table(self) -> None:
        """Go by the slots in the file, which have become those on the table."""
        free(self.table)
        self.table = NULL
        self.slots = self.base + INDEX_HEADER_BYTES

    def put_slots_back(self) -> None:
        """Have the slots in the file again; pages that hold them already are not written."""
        cdef int64_t size = self.slot_count * INDEX_SLOT_BYTES, at = 0, count
        cdef uint8_t* to = self.base + INDEX_HEADER_BYTES
        self.write_kept()
        if self.table == NULL:
            return
        while at < size:
            count = min(SECTOR_BYTES, size - at)
            if memcmp(to + at, self.slots + at, count):
                memcpy(to + at, self.slots + at, count)
            at += count
        self.leave_table()

    def release(self) -> None:
        """Let go of the map; the index must not be used any more."""
        self.put_slots_back()
        self.write_by(-1)
        self.base = self.slots = NULL
        self.buffer.release()

    begin_ms = property(lambda self: (<Index> self).number_at(0), doc="Store time of the first entry.")
    end_ms = property(lambda self: (<Index> self).number_at(8), doc="Store time of the last.")
    begin_offset = property(lambda self: (<Index> self).number_at(16), doc="Log offset of the first.")
    end_offset = property(lambda self: (<Index> self).number_at(24), doc="Log offset of the last.")

    cdef int64_t number_at(self, int position) noexcept:
        self.write_kept()
        return <int64_t> load64(self.base + position)

    @property
    def next(self) -> int:
        """The entry to be written next; entry 0 is never used."""
        self.write_kept()
        return self.next_entry

    @property
    def is_full(self) -> bool:
        """Whether a new file is needed."""
        return self.next_entry + self.kept_count >= self.entry_count

    def preset(self, int64_t store_ms, int64_t log_offset) -> None:
        """Give an empty file the end of the one before it, as RocketMQ does."""
        save64(self.base, store_ms)
        save64(self.base + 8, store_ms)
        save64(self.base + 16, log_offset)
        save64(self.base + 24, log_offset)

    def put_key(self, bytes topic, bytes key, int64_t log_offset, int64_t store_ms) -> bool:
        """Index one key; False when the file has no room for it."""
        if self.room() < 1:
            return False
        self.put(key_hash_of(topic, key), log_offset, store_ms)
        self.write_kept()
        return True

    def query(self, bytes topic, bytes key, int64_t begin_ms, int64_t end_ms, int limit) -> list[int]:
        """Log offsets whose key hashes alike and whose time (to the second) is in range, newest first."""
        self.write_kept()
        cdef int32_t hash = key_hash_of(topic, key)
        cdef int64_t first_ms = <int64_t> load64(self.base)
        cdef int64_t entry = <int32_t> load32(slot_address(self, slot_of(self, hash)))
        cdef int64_t previous, at_ms
        cdef uint8_t* at
        found = []
        while 0 < entry < self.next_entry and len(found) < limit:
            at = entry_address(self, entry)
            at_ms = first_ms + <int64_t> <int32_t> load32(at + 12) * 1000
            if at_ms + 999 < begin_ms:
                break
            if <int32_t> load32(at) == hash and at_ms <= end_ms:
                found.append(<int64_t> load64(at + 4))
            previous = <int32_t> load32(at + 16)
            if previous >= entry:  # chains only lead back; anything else is damage
                break
            entry = previous
        return found

    def entry(self, int64_t entry) -> tuple[int, int, int, int]:
        """(key hash, log offset, seconds after `begin_ms`, previous entry) as stored."""
        if not 0 < entry < self.entry_count:
            raise IndexError(f"index entry {entry} of {self.entry_count}")
        self.write_kept()
        cdef uint8_t* at = entry_address(self, entry)
        return (<int32_t> load32(at), <int64_t> load64(at + 4), <int32_t> load32(at + 12),
                <int32_t> load32(at + 16))

    def repair(self, int64_t log_end, int64_t begin_ms) -> int:
        """Rebuild slots, chains and header from the entries that can be trusted; returns how many.

        Entries are written in log order and never change. The first that is empty or torn, steps back or
        points outside the log ends what can be trusted, and the record it stops in is dropped
        whole, since some of its keys may be missing. `begin_ms` is the store time of the first
        entry's record. The caller zeroes the file from entry `next` on.
        """
        self.write_kept()
        cdef int64_t entry = 1, last = -1, offset
        cdef int64_t limit = self.entry_count
        save64(self.base, begin_ms)
        cdef uint8_t* at
        while entry < limit:
            at = entry_address(self, entry)
            offset = <int64_t> load64(at + 4)
            # A hash of zero is an entry never written, or one whose first sector never reached the disk.
            if offset < last or offset >= log_end or <int32_t> load32(at) <= 0 or <int32_t> load32(at + 12) < 0:
                break
            last = offset
            entry += 1
        if entry < limit:
            while entry > 1 and <int64_t> load64(entry_address(self, entry - 1) + 4) == last:
                entry -= 1
        self.rebuild(entry)
        return entry - 1

    def cut(self, int64_t next_entry) -> None:
        """Keep entries [1, next_entry) and rebuild slots and chains over them.

        The caller knows that these are sound, and zeroes the file from `next` on.
        """
        self.write_kept()
        self.rebuild(max(1, min(next_entry, self.entry_count)))

    def truncate(self, int64_t log_end) -> None:
        """Drop entries that point at or beyond `log_end`; the caller zeroes the file from `next` on."""
        self.write_kept()
        cdef int64_t entry = self.next_entry
        while entry > 1 and <int64_t> load64(entry_address(self, entry - 1) + 4) >= log_end:
            entry -= 1
        if entry != self.next_entry:
            self.rebuild(entry)

    cdef int rebuild(self, int64_t end_entry) except -1:
        """Make slots, chains and counters say exactly what entries [1, end_entry) say.

        Words that are right already are not written: a page left alone need not be synced.
        """
        cdef int64_t entry, i
        cdef uint8_t* at
        cdef uint32_t slot
        cdef int64_t begin_ms = <int64_t> load64(self.base)
        cdef uint32_t* newest = <uint32_t*> calloc(self.slot_count, sizeof(uint32_t))
        if newest == NULL:
            raise MemoryError
        with nogil:
            self.used_slots = 0
            for entry in range(1, end_entry):
                at = entry_address(self, entry)
                slot = slot_of(self, <int32_t> load32(at))
                if newest[slot] == 0:
                    self.used_slots += 1
                amend32(at + 16, newest[slot])
                newest[slot] = <uint32_t> entry
            for i in range(self.slot_count):
                amend32(self.slots + i * INDEX_SLOT_BYTES, newest[i])
        free(newest)
        self.first_on_desk = self.next_entry = end_entry
        if end_entry > 1:
            at = entry_address(self, end_entry - 1)
            save64(self.base + 16, load64(entry_address(self, 1) + 4))
            save64(self.base + 24, load64(at + 4))
            save64(self.base + 8, begin_ms + <int64_t> load32(at + 12) * 1000)
        else:
            memset(self.base, 0, 32)
        save32(self.base + 32, <uint32_t> self.used_slots)
        save32(self.base + 36, <uint32_t> self.next_entry)
        return 0

    cdef int64_t room(self) noexcept nogil:
        """How many more entries may be written."""
        return min(self.reserved_end, self.entry_count) - self.next_entry - self.kept_count

    cdef void put(self, int32_t hash, int64_t log_offset, int64_t store_ms) noexcept nogil:
        """Take one key. The caller has made sure of room."""
        cdef KeptKey* key
        if self.kept_count == KEPT_KEYS_MAX:
            self.write_first()
        key = &self.kept[(self.first_kept + self.kept_count) % KEPT_KEYS_MAX]
        key.hash = hash
        key.slot = slot_of(self, hash)
        key.log_offset = log_offset
        key.store_ms = store_ms
        self.kept_count += 1
        expect_write(slot_address(self, key.slot))

    cdef void write_kept(self) noexcept nogil:
        """Write the keys kept here, and have every entry in the file."""
        while self.kept_count:
            self.write_first()
        self.clear_desk()

    cdef void clear_desk(self) noexcept nogil:
        """Put the entries on the desk into the file, and say so in its header."""
        cdef int64_t size = (self.next_entry - self.first_on_desk) * INDEX_ENTRY_BYTES
        cdef uint8_t* to
        if size == 0:
            return
        to = entry_address(self, self.first_on_desk)
        if self.descriptor < 0 or pwrite(self.descriptor, self.desk, size, to - self.base) != size:
            memcpy(to, self.desk, size)  # what a call cannot write a sync will tell of
        publish()
        self.first_on_desk = self.next_entry
        save32(self.base + 32, <uint32_t> self.used_slots)
        save32(self.base + 36, <uint32_t> self.next_entry)
        save64(self.base + 8, self.last_store_ms)
        save64(self.base + 24, self.last_log_offset)

    cdef void write_first(self) noexcept nogil:
        """Put the oldest key kept on the desk, at the head of its slot's chain."""
        cdef KeptKey* key = &self.kept[self.first_kept]
        cdef int64_t log_offset = key.log_offset, store_ms = key.store_ms
        self.first_kept = (self.first_kept + 1) % KEPT_KEYS_MAX
        self.kept_count -= 1
        if self.next_entry - self.first_on_desk == DESK_ENTRIES:
            self.clear_desk()
        cdef uint8_t* at = self.desk + (self.next_entry - self.first_on_desk) * INDEX_ENTRY_BYTES
        cdef uint8_t* slot = slot_address(self, key.slot)
        cdef int64_t seconds = 0
        if self.next_entry == 1:
            save64(self.base, store_ms)
            save64(self.base + 16, log_offset)
        else:
            seconds = (store_ms - <int64_t> load64(self.base)) // 1000
            seconds = 0 if seconds < 0 else seconds if seconds < 0x7FFFFFFF else 0x7FFFFFFF
        if load32(slot) == 0:
            self.used_slots += 1
        save32(at, <uint32_t> key.hash)
        save64(at + 4, log_offset)
        save32(at + 12, <uint32_t> seconds)
        save32(at + 16, load32(slot))
        save32(slot, <uint32_t> self.next_entry)
        self.next_entry += 1
        self.last_store_ms = store_ms
        self.last_log_offset = log_offset


def index_file_bytes(slot_count: int, entry_count: int) -> int:
    """The length of an index file with so many slots and entries."""
    return INDEX_HEADER_BYTES + slot_count * INDEX_SLOT_BYTES + entry_count * INDEX_ENTRY_BYTES


cdef int32_t positive_hash(int32_t hash) noexcept nogil:
    """Java's Math.abs, where the one number without a positive twin becomes 0."""
    if hash == <int32_t> 0x80000000:
        return 0
    return -hash if hash < 0 else hash


cdef int32_t key_hash_of(bytes topic, bytes key):
    cdef int32_t hash = java_hash_from(0, <const uint8_t*> PyBytes_AS_STRING(topic), len(topic))
    hash = java_hash_from(hash, <const uint8_t*> b"#", 1)
    return positive_hash(java_hash_from(hash, <const uint8_t*> PyBytes_AS_STRING(key), len(key)))


cdef inline uint32_t slot_of(Index index, int32_t hash) noexcept nogil:
    """Hashes are never negative, but a damaged file's bytes may be."""
    return remainder_of(hash & 0x7FFFFFFF, <uint32_t> index.slot_count, index.slot_inverse)


cdef inline uint8_t* slot_address(Index index, uint32_t slot) noexcept nogil:
    return index.slots + <int64_t> slot * INDEX_SLOT_BYTES


cdef inline void amend32(uint8_t* at, uint32_t value) noexcept nogil:
    if load32(at) != value:
        save32(at, value)


cdef inline uint8_t* entry_address(Index index, int64_t entry) noexcept nogil:
    return index.base + INDEX_HEADER_BYTES + index.slot_count * INDEX_SLOT_BYTES + entry * INDEX_ENTRY_BYTES
