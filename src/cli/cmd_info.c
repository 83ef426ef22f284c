/* trireme info */
#include "cli/cli.h"

#include <stdio.h>

int tri_cmd_info(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("trireme %s\n", TRI_VERSION);
    return TRI_EXIT_OK;
}
