/*
 * Runs a fuzz harness over the files of folders, with any compiler: how `make test` keeps every
 * input that ever mattered. Also tries the empty input and, for each seed, its every prefix up to
 * a small count, which finds most missing length checks.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { PREFIXES = 64 };

/* The harness gets an exact heap copy, so that one byte too far is seen by the sanitiser. */
static void feed(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes ? bytes : 1);
    if (!copy)
        abort();
    if (bytes)
        memcpy(copy, data, bytes);
    LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

static void replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "replay: cannot open %s\n", path);
        exit(1);
    }
    size_t cap = (size_t)16 << 20;
    uint8_t *data = malloc(cap);
    size_t bytes = data ? fread(data, 1, cap, f) : 0;
    fclose(f);
    feed(data, bytes);
    for (size_t i = 0; i < PREFIXES && bytes > PREFIXES; i++)
        feed(data, bytes * i / PREFIXES);
    free(data);
}

int main(int argc, char **argv)
{
    unsigned long files = 0;
    feed(NULL, 0);
    for (int i = 1; i < argc; i++) {
        DIR *dir = opendir(argv[i]);
        if (!dir) {
            fprintf(stderr, "replay: no folder %s\n", argv[i]);
            return 1;
        }
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            char path[4096];
            struct stat sb;
            snprintf(path, sizeof path, "%s/%s", argv[i], e->d_name);
            if (stat(path, &sb) == 0 && S_ISREG(sb.st_mode)) {
                replay(path);
                files++;
            }
        }
        closedir(dir);
    }
    printf("replayed %lu seeds\n", files);
    return files ? 0 : 1;
}
