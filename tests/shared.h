/*
 * Where the reference material is, for tests that need it. It is not shipped with the project:
 * a test without it says SKIP and exits 77, which CTest reports as skipped.
 */
#ifndef TRI_TESTS_SHARED_H
#define TRI_TESTS_SHARED_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Ends the test program with SKIP when `file` (relative to shared/) is absent. */
static inline void shared_or_skip(const char *file)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", TRI_TEST_SHARED, file);
    if (access(path, R_OK) == 0)
        return;
    printf("SKIP: %s is absent (reference material is not part of the repository)\n", path);
    exit(77);
}

#endif
