"""Pulls that are plain and granted: read here, answered by the lane or held."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from ariane.kernel.frames cimport Field, Head, named, number, wide_number
from ariane.kernel.lane cimport Asked, Grant, HeldPull, Lane
from ariane.kernel.layout cimport Text, is_word

cdef enum:
    ONE_WAY_FLAG = 2
    COMMIT_OFFSET = 1           # of a pull's sysFlag
    SUBSCRIPTION = 4
    CLASS_FILTER = 8


cdef bint pull(Lane lane, peer, Head* head, const uint8_t* frame, Py_ssize_t frame_size) except -1:
    """Answer a pull, or have it held; False, with nothing done, when it is not plain."""
    cdef Field* group = NULL
    cdef Field* topic = NULL
    cdef Field* subscription = NULL
    cdef Asked asked = Asked(-1, -1, -1, -1, 0)
    cdef int64_t commit_offset = 0, suspend_ms = -1, ignored
    cdef bint has_commit = False
    cdef Field* field
    cdef int i
    cdef Grant grant
    cdef HeldPull waiting
    for i in range(head.field_count):
        field = &head.fields[i]
        if named(field, "consumerGroup", 13):
            group = field
        elif named(field, "topic", 5):
            topic = field
        elif named(field, "queueId", 7):
            if not number(field, &asked.queue_id):
                return False
        elif named(field, "queueOffset", 11):
            if not wide_number(field, &asked.first):
                return False
        elif named(field, "maxMsgNums", 10):
            if not number(field, &asked.count_max):
                return False
        elif named(field, "sysFlag", 7):
            if not number(field, &asked.system_flag):
                return False
        elif named(field, "commitOffset", 12):
            if not wide_number(field, &commit_offset):
                return False
            has_commit = True
        elif named(field, "suspendTimeoutMillis", 20):
            if not wide_number(field, &suspend_ms):
                return False
        elif named(field, "subVersion", 10):
            if not wide_number(field, &asked.version):
                return False
        elif named(field, "subscription", 12):
            subscription = field
        elif named(field, "expressionType", 14):
            if field.value.size and not is_word(field.value, "TAG", 3):
                return False
        elif named(field, "maxMsgBytes", 11) or named(field, "requestSource", 13):
            if not number(field, &ignored):
                return False
    if (group == NULL or topic == NULL or group.is_escaped or topic.is_escaped
            or (subscription != NULL and subscription.is_escaped) or head.flag & ONE_WAY_FLAG
            or asked.queue_id < 0 or asked.first < 0 or asked.count_max < 0 or not has_commit or suspend_ms < 0
            or asked.system_flag < 0 or asked.system_flag & CLASS_FILTER):
        return False
    key = grant_key(group.value, topic.value, subscription if asked.system_flag & SUBSCRIPTION else NULL)
    grant = lane.grants.get(key)
    if grant is None:
        return False
    if not lane.answer_pull(head, &asked, grant, lane.scratch.now):
        if lane.hold is None or not lane.must_wait(&asked, grant):
            return False
        waiting = HeldPull(lane, key, head.opaque, head.is_binary, queue_id=asked.queue_id,
                           count_max=asked.count_max, system_flag=asked.system_flag, version=asked.version)
        waiting.frame = PyBytes_FromStringAndSize(<const char*> frame, frame_size)
        lane.hold(peer, grant.queues[asked.queue_id], asked.first, suspend_ms, waiting)
    if asked.system_flag & COMMIT_OFFSET:
        grant.commit(asked.queue_id, commit_offset)
    return True


cdef bytes grant_key(Text group, Text topic, Field* subscription):
    cdef Py_ssize_t size = group.size + 1 + topic.size + 1
    if subscription != NULL:
        size += subscription.value.size
    cdef bytes key = PyBytes_FromStringAndSize(NULL, size)
    cdef char* to = PyBytes_AS_STRING(key)
    memcpy(to, group.at, group.size)
    to += group.size
    to[0] = 0
    memcpy(to + 1, topic.at, topic.size)
    to += 1 + topic.size
    to[0] = 0
    if subscription != NULL:
        to[0] = 1
        memcpy(to + 1, subscription.value.at, subscription.value.size)
    return key
