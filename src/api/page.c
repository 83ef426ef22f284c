/* The web page: files of web/ and Chart.js, embedded in the program. */
#include "api/api_priv.h"

#include <string.h>

#define PAGE_FILES(X)                                                                              \
    X("/", index, "text/html; charset=utf-8")                                                      \
    X("/style.css", style, "text/css; charset=utf-8")                                              \
    X("/app.js", app, "text/javascript; charset=utf-8")                                            \
    X("/chart.js", chartjs, "text/javascript; charset=utf-8")

#define PAGE_EXTERN(path, symbol, type)                                                            \
    extern const unsigned char tri__page_##symbol[];                                               \
    extern const size_t tri__page_##symbol##_bytes;
PAGE_FILES(PAGE_EXTERN)
#undef PAGE_EXTERN

struct page_file {
    const char *path;
    const unsigned char *data;
    const size_t *bytes;
    const char *type;
};

static const struct page_file files[] = {
#define PAGE_ROW(path, symbol, type)                                                               \
    { path, tri__page_##symbol, &tri__page_##symbol##_bytes, type },
    PAGE_FILES(PAGE_ROW)
#undef PAGE_ROW
};

static const struct page_file *find(const struct tri_http_head *h)
{
    bool get = (h->method.bytes == 3 && !memcmp(h->method.at, "GET", 3)) ||
               (h->method.bytes == 4 && !memcmp(h->method.at, "HEAD", 4));
    for (size_t i = 0; get && i < sizeof files / sizeof files[0]; i++)
        if (h->path.bytes == strlen(files[i].path) &&
            !memcmp(h->path.at, files[i].path, h->path.bytes))
            return &files[i];
    return NULL;
}

bool tri__page_has(const struct tri_http_head *head)
{
    return find(head) != NULL;
}

bool tri__serve_page(struct tri_http_request *q)
{
    const struct page_file *file = find(tri_http_head(q));
    if (!file)
        return false;
    tri_http_add_field(q, "Content-Security-Policy",
                       "default-src 'none'; script-src 'self'; style-src 'self'; connect-src "
                       "'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                       "frame-ancestors 'none'");
    tri_http_add_field(q, "Referrer-Policy", "no-referrer");
    tri_http_add_field(q, "Cache-Control", "no-cache");
    tri_http_reply(q, 200, file->type, file->data, *file->bytes);
    return true;
}
