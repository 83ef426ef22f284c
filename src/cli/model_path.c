/* Finds the model folder that a command uses when none is named. See model_path.h. */
#include "cli/model_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum tri_status put(char out[TRI_MODEL_PATH_MAX_BYTES], const char *path,
                           struct tri_error *err)
{
    size_t bytes = strlen(path) + 1;
    if (bytes > TRI_MODEL_PATH_MAX_BYTES)
        return tri_fail(err, TRI_LIMIT, "the model's path has %zu bytes, at most %d are read",
                        bytes - 1, TRI_MODEL_PATH_MAX_BYTES - 1);
    memcpy(out, path, bytes);
    return TRI_OK;
}

/* The installed place: bin/trireme and share/trireme are neighbours. Empty if it cannot be told. */
static void installed(char out[TRI_MODEL_PATH_MAX_BYTES])
{
    static const char tail[] = "/../share/trireme/models/nano";
    ssize_t bytes = readlink("/proc/self/exe", out, TRI_MODEL_PATH_MAX_BYTES - sizeof tail);
    out[bytes > 0 ? bytes : 0] = 0;
    char *slash = strrchr(out, '/');
    if (slash)
        memcpy(slash, tail, sizeof tail);
}

enum tri_status tri_model_path(char out[TRI_MODEL_PATH_MAX_BYTES], const char *named,
                               struct tri_error *err)
{
    const char *from_env = getenv("TRIREME_MODEL");
    if (!named && from_env && *from_env)
        named = from_env;
    if (named)
        return put(out, named, err);
    char beside[TRI_MODEL_PATH_MAX_BYTES];
    installed(beside);
    const char *const places[] = { beside, TRI_SOURCE_DIR "/models/nano", "models/nano" };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (*places[i] && access(places[i], R_OK) == 0)
            return put(out, places[i], err);
    return tri_fail(err, TRI_IO,
                    "no model named, and the nano model is at none of its places (TRIREME_MODEL, "
                    "share/trireme/models/nano beside the program, models/nano): name a folder");
}
