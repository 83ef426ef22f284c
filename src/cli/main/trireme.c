/* The program's main: everything else lives in rooms, so that tests can link it. */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    return tri_cli_main(argc, argv);
}
