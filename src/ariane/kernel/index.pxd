"""An index file as the kernel sees it."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    KEPT_KEYS_MAX = 16

# A key on its way into an index file.
cdef struct KeptKey:
    int32_t hash
    uint32_t slot
    int64_t log_offset
    int64_t store_ms

@cython.final
cdef class Index:
    cdef object buffer
    cdef uint8_t* base
    cdef uint8_t* slots                 # in the file, or on the table
    cdef void* table
    cdef readonly int64_t slot_count
    cdef uint64_t slot_inverse          # for remainders of it
    cdef readonly int64_t entry_count
    cdef public int64_t reserved_end
    cdef int64_t next_entry
    cdef int64_t used_slots
    cdef int64_t first_on_desk          # entries from here to `next_entry` are on the desk
    cdef uint8_t* desk
    cdef int descriptor                 # -1: entries are written through the map
    cdef int64_t last_store_ms          # of the newest entry
    cdef int64_t last_log_offset
    cdef KeptKey[KEPT_KEYS_MAX] kept    # a ring
    cdef unsigned int first_kept
    cdef unsigned int kept_count
    cdef int rebuild(self, int64_t end_entry) except -1
    cdef int64_t room(self) noexcept nogil
    cdef void put(self, int32_t hash, int64_t log_offset, int64_t store_ms) noexcept nogil
    cdef void write_kept(self) noexcept nogil
    cdef void write_first(self) noexcept nogil
    cdef void clear_desk(self) noexcept nogil
    cdef int64_t number_at(self, int position) noexcept

cdef int32_t positive_hash(int32_t hash) noexcept nogil
