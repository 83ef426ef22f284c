/* Inside spec: typed reading of config keys, with one-line refusals. */
#ifndef TRI_SPEC_SPEC_PRIV_H
#define TRI_SPEC_SPEC_PRIV_H

#include <jansson.h>
#include "spec/spec.h"

/* One object of the config; a key is told as file: section.key. The first failure stays in st. */
struct tri__spec_reader {
    const char *file, *section; /* section "" or "text_config." */
    const json_t *object;
    enum tri_status st;
    const struct tri_notes *notes;
    struct tri_error *err;
};

/* What a key holds when it is absent or null. */
#define TRI__SPEC_REQUIRED INT64_MIN

struct tri__spec_int_key {
    const char *key;
    size_t offset; /* of an int64_t in the structure being filled */
    int64_t lo, hi, absent;
};

/* NULL when absent or JSON null. */
const json_t *tri__spec_get(const struct tri__spec_reader *r, const char *key);

void tri__spec_ints(struct tri__spec_reader *r, void *base, const struct tri__spec_int_key *keys,
                    size_t count);
bool tri__spec_bool(struct tri__spec_reader *r, const char *key, bool absent);
/* A finite number in [lo, hi]. */
double tri__spec_number(struct tri__spec_reader *r, const char *key, double lo, double hi,
                        double absent);
/* A string, or `absent`; valid as long as the object. */
const char *tri__spec_text(struct tri__spec_reader *r, const char *key, const char *absent);

/* Fills everything that text_config decides; s->experts_packed must already be set. */
void tri__spec_read_text_config(struct tri__spec_reader *r, struct tri_spec *s);

/* Records "file: section.key is VALUE; <allowed>". */
void tri__spec_refuse(struct tri__spec_reader *r, enum tri_status status, const char *key,
                      const char *format, ...) TRI_PRINTF(4, 5);

#endif
