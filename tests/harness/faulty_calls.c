/* Preloaded into a server: makes its system calls fail while a test says so.
 *
 * FAULTS_FILE is shared with the test: for each kind of call a chance in a thousand, an errno (0 for a
 * write that is cut short) and milliseconds to wait before. Calls on files outside FAULTS_UNDER are
 * left alone; accept4 and dup have no file that counts.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum kind { OPEN, WRITE, SYNC, DUP, ACCEPT, RESERVE, MAP, KINDS };

struct fault { volatile int32_t per_mille, error, wait_ms, done; };

static struct fault *faults;
static const char *under = "";
static size_t under_size;

#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (real == NULL) real = (result (*)(__VA_ARGS__)) dlsym(RTLD_NEXT, name)

__attribute__((constructor)) static void prepare(void) {
    const char *path = getenv("FAULTS_FILE"), *prefix = getenv("FAULTS_UNDER");
    if (path == NULL || prefix == NULL) return;
    int (*real_open)(const char *, int, ...) = (int (*)(const char *, int, ...)) dlsym(RTLD_NEXT, "open");
    int descriptor = real_open(path, O_RDWR | O_CLOEXEC);
    if (descriptor < 0) return;
    void *(*real_map)(void *, size_t, int, int, int, off_t) =
        (void *(*)(void *, size_t, int, int, int, off_t)) dlsym(RTLD_NEXT, "mmap");
    void *memory = real_map(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (memory == MAP_FAILED) return;
    under = prefix;
    under_size = strlen(prefix);
    faults = memory;
}

static int is_ours(int descriptor) {
    char link[40], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size >= (ssize_t) under_size && memcmp(path, under, under_size) == 0;
}

/* Whether this call is to fail; it has waited by then. */
static int strikes(enum kind kind, int descriptor) {
    static __thread unsigned seed;
    if (faults == NULL || faults[kind].per_mille == 0) return 0;
    if (seed == 0) seed = (unsigned) (uintptr_t) &seed ^ 1;
    if (rand_r(&seed) % 1000 >= faults[kind].per_mille) return 0;
    if (descriptor >= 0 && !is_ours(descriptor)) return 0;
    __sync_fetch_and_add(&faults[kind].done, 1);
    int32_t wait_ms = faults[kind].wait_ms;
    if (wait_ms) {
        struct timespec time = {wait_ms / 1000, wait_ms % 1000 * 1000000L};
        nanosleep(&time, NULL);
        return 0;
    }
    errno = faults[kind].error;
    return 1;
}

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(int, #name, const char *, int, ...); \
        va_list more; va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (strncmp(path, under, under_size) == 0 && under_size && strikes(OPEN, -1)) return -1; \
        return real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENATS(name) \
    int name(int directory, const char *path, int flags, ...) { \
        REAL(int, #name, int, const char *, int, ...); \
        va_list more; va_start(more, flags); \
        mode_t mode = va_arg(more, mode_t); va_end(more); \
        if (strncmp(path, under, under_size) == 0 && under_size && strikes(OPEN, -1)) return -1; \
        return real(directory, path, flags, mode); \
    }
OPENATS(openat)
OPENATS(openat64)

/* With no errno a write takes half of what it was given, as a disk does that fills up under it. */
#define PWRITES(name) \
    ssize_t name(int descriptor, const void *data, size_t size, off_t position) { \
        REAL(ssize_t, #name, int, const void *, size_t, off_t); \
        if (strikes(WRITE, descriptor)) { \
            if (errno) return -1; \
            size = size > 1 ? size / 2 : size; \
        } \
        return real(descriptor, data, size, position); \
    }
PWRITES(pwrite)
PWRITES(pwrite64)

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    if (descriptor > 2 && strikes(WRITE, descriptor)) {
        if (errno) return -1;
        size = size > 1 ? size / 2 : size;
    }
    return real(descriptor, data, size);
}

#define SYNCS(name) \
    int name(int descriptor) { \
        REAL(int, #name, int); \
        return strikes(SYNC, descriptor) ? -1 : real(descriptor); \
    }
SYNCS(fsync)
SYNCS(fdatasync)

/* Python makes copies by fcntl. */
#define FCNTLS(name) \
    int name(int descriptor, int command, ...) { \
        REAL(int, #name, int, int, ...); \
        va_list more; va_start(more, command); \
        void *argument = va_arg(more, void *); va_end(more); \
        if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && strikes(DUP, descriptor)) return -1; \
        return real(descriptor, command, argument); \
    }
FCNTLS(fcntl)
FCNTLS(fcntl64)

int accept4(int descriptor, struct sockaddr *address, socklen_t *size, int flags) {
    REAL(int, "accept4", int, struct sockaddr *, socklen_t *, int);
    return strikes(ACCEPT, -1) ? -1 : real(descriptor, address, size, flags);
}

#define RESERVES(name) \
    int name(int descriptor, off_t first, off_t size) { \
        REAL(int, #name, int, off_t, off_t); \
        return strikes(RESERVE, descriptor) ? errno : real(descriptor, first, size); \
    }
RESERVES(posix_fallocate)
RESERVES(posix_fallocate64)

#define MAPS(name) \
    void *name(void *hint, size_t size, int protection, int flags, int descriptor, off_t offset) { \
        REAL(void *, #name, void *, size_t, int, int, int, off_t); \
        if (descriptor >= 0 && (protection & PROT_WRITE) && strikes(MAP, descriptor)) return MAP_FAILED; \
        return real(hint, size, protection, flags, descriptor, offset); \
    }
MAPS(mmap)
MAPS(mmap64)
