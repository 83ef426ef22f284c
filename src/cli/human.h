/* Numbers as people read them, for tables and messages of the commands. */
#ifndef TRI_CLI_HUMAN_H
#define TRI_CLI_HUMAN_H

#include <stdint.h>

enum { TRI_HUMAN_BYTES = 32 };

/* "1,560,860,324,864". Returns out. */
const char *tri_human_count(char out[TRI_HUMAN_BYTES], uint64_t n);
/* "1.42 TiB": binary units, three digits. Returns out. */
const char *tri_human_bytes(char out[TRI_HUMAN_BYTES], uint64_t bytes);

#endif
