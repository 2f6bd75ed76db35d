"""Pops and acknowledgements as the lane hands them over."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from ariane.kernel.frames cimport Head, Output
from ariane.kernel.layout cimport Text
from ariane.kernel.log cimport Log
from ariane.kernel.queue cimport Queue
from ariane.kernel.reading cimport ReadLimits, Tags


# What a pop takes of one queue.
cdef struct Taken:
    int32_t queue_id
    int32_t count
    int64_t first
    int64_t next_offset
    int64_t bytes
    Text* slices


cdef class Checkpoint:
    cdef readonly str topic
    cdef readonly str group
    cdef readonly int64_t first
    cdef readonly int64_t popped_ms
    cdef readonly int64_t invisible_ms
    cdef public int64_t journal_offset
    cdef public int64_t log_offset
    cdef public uint64_t settled
    cdef tuple distances            # of the messages from `first`; None when none was left out
    cdef readonly int32_t queue_id
    cdef readonly int32_t count
    cdef public int32_t revive_queue_id
    cdef public int32_t attempts
    cdef uint64_t bit(self, int64_t queue_offset)
    cdef bint closed(self) noexcept


cdef class PopGrant:
    cdef readonly str topic
    cdef readonly str group
    cdef bytes topic_text
    cdef bytes group_text
    cdef readonly list queues
    cdef dict offsets
    cdef Tags tags
    cdef Queue retry_queue
    cdef dict retry_offsets
    cdef readonly int64_t message_count
    cdef readonly int64_t byte_count


cdef class PopLane:
    cdef Log log
    cdef dict open
    cdef list revive_queues
    cdef list known_ends
    cdef object on_lent
    cdef bytes revive_topic
    cdef bytes host
    cdef bytes broker_name          # as JSON
    cdef readonly dict pops         # pop_key_of(...) -> PopGrant
    cdef readonly dict acks         # ack_key_of(...) -> PopGrant
    cdef PopGrant last
    cdef public int64_t turn
    cdef readonly int64_t hot_count
    cdef ReadLimits limits
    cdef uint8_t* note
    cdef uint8_t* text
    cdef bint carry_out(self, Head* head, Text body, int64_t now_ms, Output output) except -1
    cdef bint pop(self, Head* head, int64_t now_ms, Output output) except -1
    cdef int look(self, PopGrant grant, int64_t queue_id, int64_t count_max, Taken* taken, Text* slices,
                  int64_t* rest, int32_t* message_count) except -1
    cdef int lend(self, PopGrant grant, Queue queue, Taken* taken, int64_t now_ms, int64_t invisible_ms,
                  int32_t revive_queue_id) except -1
    cdef int answer_pop(self, Head* head, Output output, Taken* taken, int taken_count, Text* slices,
                        int32_t message_count, int64_t byte_count, int64_t now_ms, int64_t invisible_ms,
                        int32_t revive_queue_id, int64_t rest) except -1
    cdef bint ack(self, Head* head, int64_t now_ms, Output output) except -1
    cdef bint batch_ack(self, Head* head, Text body, int64_t now_ms, Output output) except -1
    cdef PopGrant ack_grant(self, Text group, Text topic)
    cdef Checkpoint find(self, PopGrant grant, int64_t queue_id, int64_t first, int64_t popped_ms)
    cdef bint can_settle(self, Checkpoint checkpoint, int64_t count) except -1
    cdef int settle(self, PopGrant grant, Checkpoint checkpoint, uint64_t bits, int64_t now_ms) except -1
    cdef bint has_room(self, Queue queue, int64_t count) noexcept
    cdef int64_t append(self, Queue queue, int64_t body_size, const char* tag, Py_ssize_t tag_size,
                        int64_t deliver_ms, int64_t now_ms) except -100
