/*
 * Text to pre-tokens: first the reference's cuts of giant inputs, then K3's pattern, run by PCRE2.
 * A match error is an error of the whole text: skipping a byte would give wrong ids in silence.
 * PCRE2 10.42 knows Unicode 14; letters added later are classed as unassigned, which differs from
 * the reference for those letters only.
 */
#include "text/text_priv.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include "base/mem.h"

/* The reference's TIKTOKEN_MAX_ENCODE_CHARS and MAX_NO_WHITESPACES_CHARS, in code points. */
enum { SLICE_CHARS = 400000, RUN_CHARS = 25000 };
enum { JIT_STACK_START_BYTES = 64 << 10, JIT_STACK_MAX_BYTES = 1 << 20 };

/*
 * spec section 5. The reference writes class intersections, which PCRE2 10.42 has not. Both letter
 * classes are written as complements instead: [Lu Lt Lm Lo M without Han] is everything that is
 * none of Ll, N, P, S, Z, C and not of script Han. \p{sc:Han} is the script; a plain \p{Han} would
 * take script extensions. SPACE is White_Space (\s with UCP would add U+180E).
 */
#define SPACE     "\\p{Z}\\t-\\r\\x{85}"
#define NO_LETTER "\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}\\p{sc:Han}"
#define UPPER     "[^\\p{Ll}" NO_LETTER "]"
#define LOWER     "[^\\p{Lu}\\p{Lt}" NO_LETTER "]"
#define LEAD      "[^\\r\\n\\p{L}\\p{N}]?"
#define TAIL      "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
static const char pattern[] =
    "\\p{sc:Han}+"
    "|" LEAD UPPER "*" LOWER "+" TAIL "|" LEAD UPPER "+" LOWER "*" TAIL "|\\p{N}{1,3}"
    "| ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*"
    "|[" SPACE "]*[\\r\\n]+"
    "|[" SPACE "]+(?![^" SPACE "])"
    "|[" SPACE "]+";

struct tri__splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
};

struct tri__split_work {
    const struct tri__splitter *splitter;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static void *pcre_alloc(size_t bytes, void *arg)
{
    (void)arg;
    return tri_malloc(bytes);
}

static void pcre_free(void *ptr, void *arg)
{
    (void)arg;
    tri_free(ptr);
}

enum tri_status tri__splitter_open(struct tri__splitter **out, struct tri_error *err)
{
    struct tri__splitter *s = tri_calloc(1, sizeof *s);
    if (s)
        s->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *context =
        s && s->memory ? pcre2_compile_context_create(s->memory) : NULL;
    if (!context) {
        tri__splitter_close(s);
        return tri_fail(err, TRI_NOMEM, "no memory for the split pattern");
    }
    int code = 0;
    PCRE2_SIZE at = 0;
    /* Anchored here, not at the match: JIT code is only used without match options. */
    s->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!s->code) {
        tri__splitter_close(s);
        if (code == PCRE2_ERROR_HEAP_FAILED)
            return tri_fail(err, TRI_NOMEM, "no memory for the split pattern");
        return tri_fail(err, TRI_UNSUPPORTED,
                        "this PCRE2 does not take the split pattern (error %d at %zu)", code, at);
    }
    /* Where executable memory is forbidden, pcre2_match interprets: slower, the same answer. */
    (void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
    *out = s;
    return TRI_OK;
}

void tri__splitter_close(struct tri__splitter *splitter)
{
    if (!splitter)
        return;
    pcre2_code_free(splitter->code);
    pcre2_general_context_free(splitter->memory);
    tri_free(splitter);
}

enum tri_status tri__split_work_open(struct tri__split_work **out,
                                     const struct tri__splitter *splitter, struct tri_error *err)
{
    struct tri__split_work *w = tri_calloc(1, sizeof *w);
    if (w) {
        w->splitter = splitter;
        w->data = pcre2_match_data_create(1, splitter->memory);
        w->context = pcre2_match_context_create(splitter->memory);
        w->stack =
            pcre2_jit_stack_create(JIT_STACK_START_BYTES, JIT_STACK_MAX_BYTES, splitter->memory);
    }
    if (!w || !w->data || !w->context || !w->stack) {
        tri__split_work_close(w);
        return tri_fail(err, TRI_NOMEM, "no memory to split text");
    }
    pcre2_jit_stack_assign(w->context, NULL, w->stack);
    *out = w;
    return TRI_OK;
}

void tri__split_work_close(struct tri__split_work *work)
{
    if (!work)
        return;
    pcre2_match_data_free(work->data);
    pcre2_match_context_free(work->context);
    pcre2_jit_stack_free(work->stack);
    tri_free(work);
}

enum tri_status tri__split_next(struct tri__split_work *work, const char *text, size_t bytes,
                                size_t *token_bytes, struct tri_error *err)
{
    int rc = pcre2_match(work->splitter->code, (PCRE2_SPTR)text, bytes, 0, PCRE2_NO_UTF_CHECK,
                         work->data, work->context);
    size_t end = rc > 0 ? pcre2_get_ovector_pointer(work->data)[1] : 0;
    if (!end) {
        char why[120] = "";
        pcre2_get_error_message(rc, (PCRE2_UCHAR *)why, sizeof why);
        return tri_fail(err, rc == PCRE2_ERROR_NOMEMORY ? TRI_NOMEM : TRI_LIMIT,
                        "the text cannot be split into words: PCRE2 error %d, %s", rc, why);
    }
    *token_bytes = end;
    return TRI_OK;
}

/*
 * Slices of SLICE_CHARS code points; inside one, a new piece starts where a run of white space or
 * of anything else becomes longer than RUN_CHARS. Runs are counted anew in each slice.
 */
size_t tri__slice_next(struct tri__slicer *slicer, const char *text, size_t bytes)
{
    const char *at = text, *end = text + bytes;
    while (at < end) {
        const char *here = at;
        bool space = tri__text_is_space(tri__text_utf8_next(&at));
        if (!slicer->slice_left) {
            slicer->slice_left = SLICE_CHARS;
            slicer->run = 0;
            slicer->in_space = space;
            if (here > text) {
                return (size_t)(here - text);
            }
        }
        if (space != slicer->in_space) {
            slicer->in_space = space;
            slicer->run = 0;
        } else if (slicer->run == RUN_CHARS) {
            slicer->run = 0;
            return (size_t)(here - text);
        }
        slicer->run++;
        slicer->slice_left--;
    }
    return bytes;
}
