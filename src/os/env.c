/* See env.h. */
#include "os/env.h"

#include <stdlib.h>

const char *tri_env(const char *name)
{
    return getenv(name);
}
