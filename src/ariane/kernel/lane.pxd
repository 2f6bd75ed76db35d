"""What sessions share: see lane.pyx."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ariane.kernel.frames cimport Head, Output
from ariane.kernel.index cimport Index
from ariane.kernel.layout cimport Text
from ariane.kernel.log cimport Log
from ariane.kernel.pop cimport PopLane
from ariane.kernel.properties cimport Alike, Properties
from ariane.kernel.queue cimport Queue
from ariane.kernel.reading cimport ReadLimits, ReadResult, Tags
from ariane.kernel.waiting cimport Waiting

cdef enum:
    READ_BYTES_MAX = 1 << 18
    TOPIC_BYTES_MAX = 127

# An open topic by a hash of its name.
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

@cython.final
cdef class TopicSlot:
    # What every send touches lies together: with a thousand topics each line is a walk to memory.
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count
    cdef readonly list queues
    cdef readonly bytes name
    cdef Py_ssize_t text_size
    cdef uint8_t[TOPIC_BYTES_MAX] text

@cython.final
cdef class Grant:
    cdef readonly list queues
    cdef Tags tags
    cdef int64_t subscription_version
    cdef object commit          # (queue id, consume offset): the request brought progress along
    cdef dict pulled            # queue id -> where the group's pulls stand
    cdef int32_t group_flags
    cdef int32_t topic_flags
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count

@cython.final
cdef class Scratch:
    cdef object view            # of `read`, for those who read for a session
    cdef uint8_t* read          # READ_BYTES_MAX of them
    cdef int64_t now_ms         # when the read began; negative while nothing may take the lane
    cdef Output now             # answers that may leave
    cdef Output later           # answers that wait for the disk, as far as `later_offset`
    cdef int64_t later_offset
    cdef uint8_t* text          # a value without its escapes
    cdef Properties* in_batch   # what was found in the batch being placed
    cdef Alike alike            # what its messages mostly look like
    cdef bint is_lent
    cdef int lend(self) except -1
    cdef void give_back(self) noexcept
    cdef void clear(self) noexcept

@cython.final
cdef class Lane:
    cdef Log log
    cdef public Index index
    cdef readonly dict topics   # name -> TopicSlot
    cdef readonly dict grants   # grant_key_of(...) -> Grant
    cdef public PopLane pops    # None: pops and acknowledgements are all for the handlers
    cdef readonly Waiting waiting
    cdef public bint parks
    cdef public bint shows_at_once
    cdef public bint tells_placed
    cdef readonly int64_t held_bytes
    cdef readonly int64_t hot_count
    cdef object decode
    cdef object begin
    cdef object make_room
    cdef object on_placed
    cdef object on_timed
    cdef object on_arrivals
    cdef object park
    cdef object hold
    cdef bytes suffix
    cdef bytes region
    cdef bytes trace
    cdef bytes host
    cdef int64_t message_bytes_max
    cdef int64_t frame_bytes_max
    cdef int64_t header_bytes_max
    cdef int64_t held_bytes_max
    cdef ReadLimits limits
    cdef Scratch scratch
    cdef Output late            # the answer to a pull that waited
    cdef int fault              # of the log, when it was last looked at
    cdef list sessions          # of this round, whose answers wait for its end
    cdef list arrivals
    cdef bint has_placed
    cdef bint has_timed
    cdef Place* places          # the open topics again
    cdef Py_ssize_t place_count
    cdef int find_places(self, Py_ssize_t count) except -1
    cdef void find_place(self, TopicSlot slot) noexcept
    cdef TopicSlot find_topic(self, Text name)
    cdef int show(self) except -1
    cdef int placed(self, Queue queue) except -1
    cdef int tell(self) except -1
    cdef bint answer_pull(self, Head* head, Asked* asked, Grant grant, Output output) except -1
    cdef bint must_wait(self, Asked* asked, Grant grant) except -1
    cdef int write_found(self, Head* head, Queue queue, Grant grant, Text* slices, ReadResult* result,
                         Output output) except -1

@cython.final
cdef class HeldPull:
    cdef Lane lane
    cdef bytes grant_key
    cdef readonly bytes frame   # as it came; None when a handler has read it
    cdef Asked asked
    cdef int32_t opaque
    cdef bint is_binary
