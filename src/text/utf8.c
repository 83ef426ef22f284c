/*
 * UTF-8: validity, code points, Python's idea of white space, and the hold that keeps unfinished
 * characters back while text streams. Well-formed sequences: Unicode 15, table 3-7.
 */
#include "text/text_priv.h"

#include <string.h>

/* Bytes of the sequence that this byte leads; 0 if it cannot lead one. */
static unsigned sequence_bytes(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead >= 0xC2 && lead <= 0xDF)
        return 2;
    if (lead >= 0xE0 && lead <= 0xEF)
        return 3;
    return lead >= 0xF0 && lead <= 0xF4 ? 4 : 0;
}

/* May `c` follow the `have` bytes of a sequence led by `lead`? Only the second byte is special. */
static bool continues(unsigned char lead, unsigned have, unsigned char c)
{
    unsigned char low = 0x80, high = 0xBF;
    if (have == 1) {
        if (lead == 0xE0)
            low = 0xA0;
        else if (lead == 0xED)
            high = 0x9F;
        else if (lead == 0xF0)
            low = 0x90;
        else if (lead == 0xF4)
            high = 0x8F;
    }
    return c >= low && c <= high;
}

/* How many of the bytes are ASCII before the first that is not. */
static size_t ascii_run(const char *text, size_t bytes)
{
    size_t i = 0;
    for (uint64_t word; i + sizeof word <= bytes; i += sizeof word) {
        memcpy(&word, text + i, sizeof word);
        if (word & UINT64_C(0x8080808080808080))
            break;
    }
    while (i < bytes && (unsigned char)text[i] < 0x80)
        i++;
    return i;
}

size_t tri_utf8_valid(const char *text, size_t bytes)
{
    size_t at = 0;
    for (;;) {
        at += ascii_run(text + at, bytes - at);
        if (at == bytes)
            return bytes;
        unsigned char lead = (unsigned char)text[at];
        unsigned need = sequence_bytes(lead), have = 1;
        while (have < need && at + have < bytes &&
               continues(lead, have, (unsigned char)text[at + have]))
            have++;
        if (have != need)
            return at;
        at += need;
    }
}

uint32_t tri__text_utf8_next(const char **at)
{
    const unsigned char *p = (const unsigned char *)*at;
    unsigned need = sequence_bytes(p[0]);
    static const unsigned char lead_bits[] = { 0, 0x7F, 0x1F, 0x0F, 0x07 };
    uint32_t c = p[0] & lead_bits[need];
    for (unsigned i = 1; i < need; i++)
        c = c << 6 | (p[i] & 0x3F);
    *at += need ? need : 1;
    return c;
}

bool tri__text_is_space(uint32_t c)
{
    if (c < 0x80)
        return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
    return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool tri__text_is_blank(const char *text, size_t bytes)
{
    for (const char *at = text; at < text + bytes;)
        if (!tri__text_is_space(tri__text_utf8_next(&at)))
            return false;
    return true;
}

enum tri_status tri_utf8_finish(struct tri_utf8_hold *hold, struct tri_buf *out)
{
    if (hold->bytes)
        tri_buf_add(out, "\xEF\xBF\xBD", 3);
    hold->bytes = 0;
    return out->failed;
}

enum tri_status tri_utf8_push(struct tri_utf8_hold *hold, const char *data, size_t bytes,
                              struct tri_buf *out)
{
    for (size_t i = 0; i < bytes;) {
        unsigned char c = (unsigned char)data[i];
        if (hold->bytes) {
            if (!continues(hold->data[0], hold->bytes, c)) {
                tri_utf8_finish(hold, out);
                continue; /* c is looked at again, as a first byte */
            }
            hold->data[hold->bytes++] = c;
            i++;
            if (hold->bytes == sequence_bytes(hold->data[0])) {
                tri_buf_add(out, hold->data, hold->bytes);
                hold->bytes = 0;
            }
            continue;
        }
        size_t good = tri_utf8_valid(data + i, bytes - i);
        tri_buf_add(out, data + i, good);
        i += good;
        if (i == bytes)
            break;
        hold->data[0] = (unsigned char)data[i++];
        hold->bytes = 1;
        if (!sequence_bytes(hold->data[0]))
            tri_utf8_finish(hold, out);
    }
    return out->failed;
}
