/*
 * Numbers as Python prints them: an integer of any size keeps its digits, a float becomes the
 * shortest decimal that reads back as the same double (David Gay's mode 0, which repr uses). Works
 * on digits and exponents without a decimal point, so that no locale can change it.
 */
#include "text/text_priv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DIGITS = 17 }; /* enough for every double */

/* digits * 10^exponent, correctly rounded. */
static double from_digits(const char *digits, int count, long exponent)
{
    char text[MAX_DIGITS + 32];
    snprintf(text, sizeof text, "%.*se%ld", count, digits, exponent);
    return strtod(text, NULL);
}

/* Adds one unit in the last place; true if that made one digit more (9.99 to 10.0). */
static bool next_up(char *digits, int count)
{
    int i = count - 1;
    while (i >= 0 && digits[i] == '9')
        digits[i--] = '0';
    if (i >= 0) {
        digits[i]++;
        return false;
    }
    digits[0] = '1';
    return true;
}

/*
 * The shortest digits that read back as v (finite, > 0), without trailing zeros; their number is
 * returned. *point is where the decimal point stands: 0.d1d2... * 10^point.
 *
 * For each length the nearest decimal is tried, and the next above it: beside a power of two the
 * gap below is half the gap above, so the nearest may miss while its upper neighbour reads back.
 */
static int shortest(double v, char digits[MAX_DIGITS + 1], int *point)
{
    for (int count = 1;; count++) {
        char text[MAX_DIGITS + 16];
        snprintf(text, sizeof text, "%.*e", count - 1, v);
        const char *e = strchr(text, 'e');
        digits[0] = text[0];
        if (count > 1) /* whatever stands between the first digit and the others */
            memcpy(digits + 1, e - (count - 1), (size_t)count - 1);
        *point = (int)strtol(e + 1, NULL, 10) + 1;
        bool found = count == MAX_DIGITS || from_digits(digits, count, *point - count) == v;
        if (!found) {
            *point += next_up(digits, count);
            found = from_digits(digits, count, *point - count) == v;
        }
        if (!found)
            continue;
        while (count > 1 && digits[count - 1] == '0')
            count--;
        return count;
    }
}

/* repr of a finite double >= 0: fixed for 1e-4 <= v < 1e16, as in Python. */
static enum tri_status put_repr(struct tri_buf *out, double v)
{
    char digits[MAX_DIGITS + 1] = "0";
    int point = 1, count = v > 0 ? shortest(v, digits, &point) : 1;
    if (point <= -4 || point > 16) {
        tri_buf_add(out, digits, 1);
        if (count > 1) {
            tri_buf_putc(out, '.');
            tri_buf_add(out, digits + 1, (size_t)count - 1);
        }
        return tri_buf_printf(out, "e%+03d", point - 1);
    }
    if (point <= 0)
        tri_buf_puts(out, "0.");
    for (int i = point; i < 0; i++)
        tri_buf_putc(out, '0');
    for (int i = 0; i < count || i < point; i++) {
        if (i == point && i)
            tri_buf_putc(out, '.');
        tri_buf_putc(out, i < count ? digits[i] : '0');
    }
    return count <= point ? tri_buf_puts(out, ".0") : out->failed;
}

/* The exponent written at `text`, kept far inside a long: beyond it all is 0 or infinite anyway. */
static long read_exponent(const char *text, size_t bytes)
{
    const long most = 1000000000;
    long value = 0;
    size_t i = bytes && (text[0] == '-' || text[0] == '+');
    for (; i < bytes; i++)
        value = value < most ? value * 10 + (text[i] - '0') : most;
    return bytes && text[0] == '-' ? -value : value;
}

/* Reads an unsigned JSON float. All its digits count for the rounding, so all go to strtod. */
static enum tri_status read_float(const char *text, size_t bytes, double *out)
{
    struct tri_buf plain;
    tri_buf_init(&plain, bytes + 32);
    long fraction = 0, exponent = 0;
    bool after_point = false;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == 'e' || text[i] == 'E') {
            exponent = read_exponent(text + i + 1, bytes - i - 1);
            break;
        }
        if (text[i] == '.') {
            after_point = true;
            continue;
        }
        tri_buf_putc(&plain, text[i]);
        fraction += after_point;
    }
    tri_buf_printf(&plain, "e%ld", exponent - fraction);
    enum tri_status st = plain.failed;
    if (!st)
        *out = strtod(plain.data, NULL);
    tri_buf_fini(&plain);
    return st;
}

enum tri_status tri__json_put_number(struct tri_buf *out, const struct tri__json *value)
{
    const char *text = value->text;
    size_t bytes = value->bytes;
    bool negative = bytes && *text == '-';
    if (value->type == TRI__JSON_INT) {
        if (bytes == 2 && negative && text[1] == '0')
            return tri_buf_putc(out, '0');
        return tri_buf_add(out, text, bytes);
    }
    if (text[negative] == 'N' || text[negative] == 'I') /* NaN, Infinity */
        return tri_buf_add(out, text, bytes);
    double v = 0;
    enum tri_status st = read_float(text + negative, bytes - negative, &v);
    if (st)
        return out->failed = st;
    if (negative)
        tri_buf_putc(out, '-');
    return isinf(v) ? tri_buf_puts(out, "Infinity") : put_repr(out, v);
}
