/*
 * Preloaded into trireme by a test: while the file that REALLOC_FAULT names exists, realloc finds
 * no memory for REALLOC_LEAST bytes or more. Growing buffers are what asks for that much.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void *realloc(void *p, size_t bytes)
{
    static void *(*real)(void *, size_t);
    const char *least = getenv("REALLOC_LEAST"), *fault = getenv("REALLOC_FAULT");
    if (!real)
        *(void **)&real = dlsym(RTLD_NEXT, "realloc");
    if (least && fault && bytes >= strtoul(least, NULL, 10) && access(fault, F_OK) == 0) {
        errno = ENOMEM;
        return NULL;
    }
    return real(p, bytes);
}
