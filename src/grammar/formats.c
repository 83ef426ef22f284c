/* The "format" names that are enforced, as patterns that match whole strings. */
#include <string.h>
#include "grammar/grammar_priv.h"

#define YEAR "(000[1-9]|00[1-9]\\d|0[1-9]\\d{2}|[1-9]\\d{3})"
#define DATE                                                                                       \
    "(" YEAR "-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"          \
    "02-(0[1-9]|1\\d|2[0-8]))|(\\d\\d(0[48]|[2468][048]|[13579][26])|"                             \
    "(0[48]|[2468][048]|[13579][26])00)-02-29)"
#define TIME  "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"
#define HMS   "(\\d{1,9}H(\\d{1,9}M(\\d{1,9}S)?)?|\\d{1,9}M(\\d{1,9}S)?|\\d{1,9}S)"
#define YMD   "(\\d{1,9}Y(\\d{1,9}M(\\d{1,9}D)?)?|\\d{1,9}M(\\d{1,9}D)?|\\d{1,9}D)"
#define LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define ATOM  "[A-Za-z0-9_+-]+"
#define BYTE  "(\\d|[1-9]\\d|1\\d\\d|2[0-4]\\d|25[0-5])"
#define WORD  "[0-9A-Fa-f]{1,4}"
#define URI   "([A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})"

const char *tri__format_pattern(const char *name)
{
    static const struct {
        const char *name, *pattern;
    } formats[] = {
        /* RFC 3339; dates are those of the calendar, seconds end at 59 */
        { "date-time", DATE "T" TIME },
        { "date", DATE },
        { "time", TIME },
        { "duration", "P(\\d{1,9}W|" YMD "(T" HMS ")?|T" HMS ")" },
        /* RFC 1123, 5321 without quotes and comments */
        { "hostname", LABEL "(\\." LABEL ")*" },
        { "email", ATOM "(\\." ATOM ")*@" LABEL "(\\." LABEL ")+" },
        { "ipv4", BYTE "(\\." BYTE "){3}" },
        /* RFC 4291 without dotted tails */
        { "ipv6",
          "(" WORD ":){7}" WORD "|(" WORD ":){1,7}:|(" WORD ":){1,6}:" WORD "|(" WORD
          ":){1,5}(:" WORD "){2}|(" WORD ":){1,4}(:" WORD "){3}|(" WORD ":){1,3}(:" WORD
          "){4}|(" WORD ":){1,2}(:" WORD "){5}|" WORD ":(:" WORD "){6}|:(:" WORD "){1,7}|::" },
        { "uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}" },
        /* RFC 3986 with a scheme */
        { "uri", "[A-Za-z][A-Za-z0-9+.-]*:" URI "+(#" URI "*)?" },
    };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (!strcmp(formats[i].name, name))
            return formats[i].pattern;
    return NULL;
}
