/*
 * The terminal: what may be printed there, styles, and Ctrl-C. Model text is foreign text: on a
 * terminal its control characters are shown, never obeyed.
 */
#ifndef TRI_CLI_TERMINAL_H
#define TRI_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

bool tri_is_terminal(FILE *stream);

/*
 * Writes text. With `safe`, C0 controls but newline and tab, DEL and the C1 controls (U+0080 to
 * U+009F) become \xNN; all other bytes pass. `text` is whole UTF-8 characters.
 */
void tri_write_text(FILE *out, const char *text, size_t bytes, bool safe);

/* Dim text on and off; nothing when `on_terminal` is false. */
void tri_dim(FILE *out, bool on, bool on_terminal);

/*
 * Ctrl-C: from tri_interrupt_catch on it is only counted. The third one without a
 * tri_interrupt_clear in between ends the program, so that a long step cannot lock it in.
 */
void tri_interrupt_catch(void);
bool tri_interrupted(void);
void tri_interrupt_clear(void);

/* A signal that ends the program from here on first gives the terminal back as it is now. */
void tri_terminal_keep(void);

#endif
