/*
 * Reads a person's lines from the terminal: editing, history, multi-line paste, and Ctrl-C as a
 * result instead of a signal. The only user of libedit.
 */
#ifndef TRI_CLI_LINE_READER_H
#define TRI_CLI_LINE_READER_H

#include <stdio.h>
#include "base/buf.h"

struct tri_line_reader;

enum tri_line { TRI_LINE_TEXT, TRI_LINE_END, TRI_LINE_INTERRUPT };

/* `out` is where the prompt and the echo go. The prompt must outlive the reader. */
TRI_MUST_CHECK enum tri_status tri_line_reader_open(struct tri_line_reader **out, FILE *echo,
                                                    const char *prompt, struct tri_error *err);
void tri_line_reader_close(struct tri_line_reader *reader);

/*
 * The next text, without its last newline, in `text` (cleared first). Lines that are waiting
 * already (a paste) and lines after one that ends in a backslash belong to it; a line that begins
 * with a slash stands alone. END: Ctrl-D or the end of the input. INTERRUPT: Ctrl-C;
 * *was_empty tells whether anything stood on the line, which is gone.
 */
enum tri_line tri_line_read(struct tri_line_reader *reader, struct tri_buf *text, int *was_empty);

#endif
