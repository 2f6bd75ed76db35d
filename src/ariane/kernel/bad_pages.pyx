"""Pages of the log that the disk cannot give.

Segments are read through their maps, where a bad sector, or a file that somebody cut short, is a signal (SIGBUS) that
ends the process: one pull of one old message would end the broker, and again after each start. Here such a page is
replaced by one of zeros, and whoever reads it goes on. `is_lost` tells whether a record has bytes there: such a
message is missed like one that retention has taken.
Only maps that are read are guarded: a page that is written through its map must not vanish without a word. And only
once a store is open: a recovery that took such a page for the end of the log would throw away what is behind it.
"""

from libc.stdint cimport int64_t, uint8_t

import weakref

cdef extern from *:
    """
    #include <signal.h>
    #include <string.h>
    #include <sys/mman.h>

    #define GUARDED_MAX 65536           /* of 1 GiB: 64 TiB of log */
    #define GUARD_PAGE_BYTES 4096
    #define BAD_PAGES_MAX 4096          /* remembered; a disk with more has ended its service */

    typedef struct { char* volatile first; char* volatile end; } Guarded;

    static Guarded guarded[GUARDED_MAX];
    static volatile int guarded_count;
    static volatile long bad_page_count;
    static char* volatile bad_page_at[BAD_PAGES_MAX];
    static struct sigaction before;

    /* Only what may be called in a handler of signals: no locks, no memory, one system call. */
    static void on_bus_error(int number, siginfo_t* info, void* context) {
        char* at = (char*) info->si_addr;
        for (int i = 0; i < guarded_count; i++) {
            if (guarded[i].first <= at && at < guarded[i].end) {
                char* page = (char*) ((size_t) at & ~(size_t) (GUARD_PAGE_BYTES - 1));
                if (mmap(page, GUARD_PAGE_BYTES, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED) {
                    bad_page_at[bad_page_count % BAD_PAGES_MAX] = page;
                    __sync_fetch_and_add(&bad_page_count, 1);
                    return;
                }
            }
        }
        sigaction(SIGBUS, &before, NULL);   /* not ours: it comes again, and ends as it would have */
    }

    static int begin_guarding(void) {
        struct sigaction action;
        memset(&action, 0, sizeof action);
        action.sa_sigaction = on_bus_error;
        action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        return sigaction(SIGBUS, &action, &before);
    }

    static int guard_range(char* first, char* end) {
        for (int i = 0; i < GUARDED_MAX; i++) {
            if (guarded[i].first == NULL) {
                guarded[i].end = end;
                __sync_synchronize();
                guarded[i].first = first;
                if (i >= guarded_count)
                    guarded_count = i + 1;
                return 1;
            }
        }
        return 0;
    }

    /* Each page is touched first, so that one nobody has looked at yet is found before it is copied. */
    static int has_bad_page(const char* first, size_t size) {
        char sum = *(const volatile char*) (first + size - 1);
        for (size_t at = 0; at < size; at += GUARD_PAGE_BYTES)
            sum ^= *(const volatile char*) (first + at);
        (void) sum;
        long count = bad_page_count < BAD_PAGES_MAX ? bad_page_count : BAD_PAGES_MAX;
        for (long i = 0; i < count; i++) {
            const char* page = bad_page_at[i];
            if (page != NULL && page < first + size && first < page + GUARD_PAGE_BYTES)
                return 1;
        }
        return 0;
    }

    static void forget_range(char* first) {
        for (int i = 0; i < guarded_count; i++) {
            if (guarded[i].first == first) {
                for (long page = 0; page < BAD_PAGES_MAX; page++)
                    if (first <= bad_page_at[page] && bad_page_at[page] < guarded[i].end)
                        bad_page_at[page] = NULL;
                guarded[i].end = NULL;
                __sync_synchronize();
                guarded[i].first = NULL;
            }
        }
    }
    """
    int begin_guarding() nogil
    int guard_range(char* first, char* end) nogil
    void forget_range(char* first) nogil
    bint has_bad_page(const char* first, size_t size) nogil
    long bad_page_count

cdef bint _is_guarding = False


def guard(memoryview buffer not None) -> None:
    """Read zeros where the disk cannot give a page of this map, for as long as it is mapped."""
    global _is_guarding
    if not _is_guarding:
        if begin_guarding() != 0:
            raise OSError("cannot handle SIGBUS")
        _is_guarding = True
    cdef uint8_t[::1] memory = buffer
    cdef char* first = <char*> &memory[0]
    if guard_range(first, first + memory.shape[0]):
        # Before the map goes: callbacks are called newest first.
        weakref.finalize(buffer.obj, _forget, <size_t> first).atexit = False


cdef bint is_lost(const uint8_t* record, int64_t size) noexcept nogil:
    """Whether the disk could not give some of a record."""
    return has_bad_page(<const char*> record, size)


def bad_pages() -> int:
    """How many pages the disk could not give since the process began."""
    return bad_page_count


def _forget(size_t first) -> None:
    forget_range(<char*> first)
