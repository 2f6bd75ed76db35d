"""Pulls that wait, in the tables they are found by: what a pull's coming and going costs.

Which of them are looked at when is for `broker/long_polling.py`.
"""

cimport cython
from libc.stdint cimport int64_t

cdef double SLOT_S_ = 0.05
SLOT_S = SLOT_S_            # expiry is this exact: answered at most one slot late


@cython.final
cdef class Held:
    """A request waiting for messages in one queue; `again` repeats it from a queue offset on.

    `shortcut` does the same when that is plain, and has the answer's bytes; None when it is not.
    """

    cdef readonly object request
    cdef readonly object connection
    cdef readonly tuple queue           # (topic, queue id)
    cdef public int64_t queue_offset    # everything before it has been looked at
    cdef readonly double until_s
    cdef readonly object again
    cdef readonly object shortcut

    def __init__(self, request, str topic not None, queue_id, int64_t queue_offset, double until_s, again, shortcut):
        self.request = request
        self.connection = request.connection
        self.queue = (topic, queue_id)
        self.queue_offset = queue_offset
        self.until_s = until_s
        self.again = again
        self.shortcut = shortcut


cdef class HeldTable:
    """Held pulls by queue, by expiry and by connection, each in the order in which they came.

    Invariant: a pull is in one set of each table, or in none; only such a pull is among those to
    look at again (`woken`) or to end (`ending`). `queue_of` finds a queue in the store; one with
    pulls in the table has its `is_waiting` set.
    """

    cdef readonly int64_t count
    cdef readonly dict queues           # (topic, queue id) -> its pulls, as the keys of a dictionary
    cdef readonly dict slots            # number -> those whose time is up within it
    cdef readonly dict connections
    cdef readonly dict woken
    cdef readonly dict ending
    cdef public set unseen              # queues that grew by what is not visible yet
    cdef public object is_watched_by_others
    cdef object queue_of
    cdef int64_t count_max
    cdef int64_t connection_max

    def __init__(self, queue_of, *, int64_t count_max, int64_t connection_max):
        self.queues = {}
        self.slots = {}
        self.connections = {}
        self.woken = {}
        self.ending = {}
        self.unseen = set()
        self.queue_of = queue_of
        self.count_max = count_max
        self.connection_max = connection_max
        self.is_watched_by_others = lambda topic, queue_id: False

    def __len__(self):
        return self.count

    cpdef bint add(self, Held held) except -1:
        """Take a pull in; False when there are too many."""
        cdef dict own = self.connections.get(held.connection)
        if self.count >= self.count_max or (own is not None and len(own) >= self.connection_max):
            return False
        if own is None:
            own = self.connections[held.connection] = {}
            held.connection.on_close.append(self.connection_closed)
        own[held] = None
        put(self.queues, held.queue, held)
        put(self.slots, slot_of(held), held)
        self.count += 1
        watched = self.queue_of(*held.queue)
        watched.is_waiting = True
        if watched.end > held.queue_offset:  # it grew before, by what is not visible yet
            self.unseen.add(held.queue)
        return True

    cpdef remove(self, Held held):
        """Forget a pull, for whatever reason."""
        self.count -= 1
        if self.woken:
            self.woken.pop(held, None)
        if self.ending:
            self.ending.pop(held, None)
        take(self.slots, slot_of(held), held)
        if take(self.queues, held.queue, held):
            self.queue_of(*held.queue).is_waiting = self.is_watched_by_others(*held.queue)
        (<dict> self.connections[held.connection]).pop(held, None)

    def answer(self, queues, int most) -> None:
        """Answer the pulls of queues that grew, where no more than `most` wait, as far as needs no handler.

        What is for one connection is written together: each write may wake a peer.
        """
        cdef dict waiting, answers = {}
        cdef Held held
        for queue in queues:
            waiting = self.queues.get(queue)
            if waiting is None or len(waiting) > most:
                continue
            for held in list(waiting):
                frame = held.shortcut(held.queue_offset)
                if frame is not None:
                    self.remove(held)
                    frames = answers.get(held.connection)
                    if frames is None:
                        answers[held.connection] = [frame]
                    else:
                        frames.append(frame)
        for connection, frames in answers.items():
            connection.write(b"".join(frames))

    def connection_closed(self, connection) -> None:
        """Forget the pulls of a connection that is gone."""
        for held in list(self.connections.get(connection, ())):
            self.remove(held)
        self.connections.pop(connection, None)


cdef inline int64_t slot_of(Held held) noexcept:
    return <int64_t> (held.until_s / SLOT_S_)


cdef int put(dict table, key, Held held) except -1:
    cdef dict pulls = table.get(key)
    if pulls is None:
        pulls = table[key] = {}
    pulls[held] = None
    return 0


cdef bint take(dict table, key, Held held) except -1:
    """Whether it was the last one there."""
    cdef dict pulls = table[key]
    del pulls[held]
    if pulls:
        return False
    del table[key]
    return True
