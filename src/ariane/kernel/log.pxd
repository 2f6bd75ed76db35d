"""The mapped store as the kernel sees it: segments, queue files and index files by pointer."""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "bytes.h" nogil:
    uint16_t load16(const uint8_t* p)
    uint32_t load32(const uint8_t* p)
    uint64_t load64(const uint8_t* p)
    void save16(uint8_t* p, uint16_t value)
    void save32(uint8_t* p, uint32_t value)
    void save64(uint8_t* p, uint64_t value)
    void copy_name(uint8_t* to, const uint8_t* from_, size_t size)
    uint64_t inverse_of(uint32_t divisor)
    uint32_t remainder_of(uint32_t number, uint32_t divisor, uint64_t inverse)
    void publish()
    void expect_write(const void* p)
    void expect_read(const void* p)

cdef enum:
    QUEUE_ENTRY_BYTES = 20
    KEPT_ENTRIES_MAX = 32
    KEPT_KEYS_MAX = 16
    BLANK_BYTES = 8
    RECORD_BYTES_MIN = 91
    PADDING_SIZE = 0x7FFFFFFF       # of a queue entry that was never used
    MESSAGES_PER_READ_MAX = 1024
    BATCH_ENTRY_BYTES_MIN = 22

# What `place` answers when it has written nothing, and why.
cdef enum Refusal:
    NEEDS_SEGMENT = -1
    NEEDS_QUEUE_ROOM = -2
    NEEDS_INDEX_ROOM = -3
    TOO_LARGE = -4
    NOT_STORED = -5

cdef struct Text:
    const uint8_t* at
    Py_ssize_t size

# What the kernel wants to know of a properties text, found in one pass.
cdef struct Properties:
    Text tags
    Text keys
    Text unique_key
    Text delay
    Text timer            # of the one property that asks for a time
    int64_t timer_unit_ms # what one of it stands for; 0: it is a time of the clock
    bint waits            # WAIT is absent or not "false"
    bint is_late          # asks to come later, by level or by time
    bint has_real         # holds a mark of messages that wait: REAL_TOPIC or REAL_QID
    bint is_special       # holds a key that only the Python handler may act on
    bint ends_open        # the last pair lacks its closing 0x02

cdef extern from "texts.h" nogil:
    ctypedef struct Shape:
        size_t size
        uint8_t* text
        uint8_t* fixed

# A shape, and what was found in the text it was taken from. None of it asks to come later.
cdef struct Alike:
    Shape shape
    Properties found

# A record before the log gives it its place.
cdef struct Draft:
    Text topic
    Text body
    Text properties
    Text suffix           # more properties, written right after
    Text born_host        # 4 or 16 address bytes and a port
    Text keys
    Text unique_key
    int64_t tags_code
    int64_t born_ms
    int64_t prepared_offset
    int32_t queue_id
    int32_t flag
    int32_t system_flag
    int32_t reconsume_times

# Where a pull may stop.
cdef struct ReadLimits:
    int32_t count_max
    int64_t bytes_max
    int32_t memory_count_max
    int64_t memory_bytes_max
    int32_t disk_count_max
    int64_t disk_bytes_max
    int64_t memory_window
    int64_t scan_count_max

# The parts of a record that have no fixed place.
cdef struct Fields:
    Text topic
    Text body
    Text properties
    int32_t queue_id
    int64_t store_ms

cdef struct ReadResult:
    int32_t count
    int32_t scanned
    int64_t bytes
    int64_t next_offset

cdef class Maps:
    cdef list buffers
    cdef uint8_t** pointers
    cdef Py_ssize_t count
    cdef Py_ssize_t capacity
    cdef readonly int64_t file_bytes
    cdef readonly int64_t first_position
    cdef uint8_t* at(self, int64_t position) noexcept nogil

@cython.final
cdef class Log(Maps):
    cdef public int64_t end
    cdef public int64_t visible
    cdef public int64_t last_store_ms
    cdef public int64_t record_bytes_max
    cdef uint8_t[20] store_host
    cdef int store_host_size
    cdef int64_t[64] delays_ms
    cdef int delay_count
    cdef uint8_t* staging
    cdef object staging_buffer
    cdef uint8_t* desk              # records from `stored` to `end`, on their way to the file
    cdef int64_t desk_bytes
    cdef int64_t stored
    cdef int descriptor             # the newest segment's; -1: records are written through the map
    cdef readonly int fault         # errno of the write that failed
    cdef int64_t long_bytes         # of long writes, and of those that were slow
    cdef int64_t slow_bytes

@cython.final
cdef class Queue(Maps):
    cdef uint8_t* tail              # the newest file, and the entries it holds
    cdef int64_t tail_first
    cdef int64_t tail_end
    cdef int64_t end_offset         # the next one to be written
    cdef public int64_t reserved_end
    cdef readonly int32_t queue_id
    cdef int32_t index_prefix_hash
    cdef public bint is_waiting
    cdef bint is_schedule
    cdef public int64_t min_offset
    cdef int kept_count
    cdef int kept_max
    cdef uint8_t* kept_to           # where the first of the kept entries goes
    cdef uint8_t* kept              # where they lie until then: near or on the desk
    cdef uint8_t* desk
    cdef int descriptor             # of the newest file; -1: entries are written through the map
    cdef bint has_mapped            # entries were written through the map since somebody asked
    cdef uint8_t[KEPT_ENTRIES_MAX * QUEUE_ENTRY_BYTES] near
    cdef readonly bytes topic
    cdef void find_tail(self) noexcept
    cdef void write_kept(self) noexcept nogil

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

@cython.final
cdef class Tags:
    cdef int64_t* codes
    cdef Py_ssize_t count
    cdef bint match(self, int64_t code) noexcept nogil

cdef void find_properties(Text text, Properties* found) noexcept nogil
cdef void take_shape(Text text, Alike* alike) noexcept nogil
cdef bint find_alike(Text text, Alike* alike, Properties* found) noexcept nogil
cdef int64_t tags_code_of(Log log, Queue queue, Properties* found, int64_t store_ms) noexcept nogil
cdef int64_t record_size(Log log, Draft* draft) noexcept nogil
cdef int key_count(Draft* draft) noexcept nogil
cdef bint next_entry(Text* rest, Draft* draft) noexcept nogil
cdef bint has_entry_room(Queue queue, int64_t count) noexcept nogil
cdef uint8_t* next_kept_of(Queue queue) noexcept nogil
cdef void expect_queue(Queue queue) noexcept nogil
cdef int64_t next_store_ms(Log log, int64_t now_ms) noexcept nogil
cdef bint store_records(Log log) noexcept nogil
cdef int64_t place(Log log, Queue queue, Index index, Draft* draft, int64_t store_ms) noexcept nogil
cdef void read_entries(Log log, Queue queue, int64_t first, Tags tags, const ReadLimits* limits,
                       Text* slices, ReadResult* result) noexcept nogil
cdef int64_t visible_end(Log log, Queue queue) noexcept nogil
cdef int64_t read_fields(const uint8_t* record, Fields* fields) noexcept nogil
cdef int64_t readable_size(Log log, int64_t log_offset, int64_t end) noexcept nogil
