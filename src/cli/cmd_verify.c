/*
 * trireme verify: is a download whole? Checksums when a folder has them (SHA256SUMS, or what the
 * hub's own downloader leaves beside the files), the structure of every shard in any case, and
 * every record of the packs beside them.
 */
#include "cli/cli.h"

#include <argp.h>
#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/sha.h"
#include "cli/human.h"
#include "cli/model_flags.h"
#include "cli/usage.h"
#include "model/model.h"
#include "os/pool.h"
#include "weights/weights.h"

enum {
    MAX_FILES = 4096,
    MAX_SUMS_BYTES = 4 << 20,
    MAX_METADATA_BYTES = 4096,
    KEY_JSON = 0x400,
    KEY_SHARD_DIR
};

/* The lists of a pack's vectors are counted, and are small: no ceiling is wanted here. */
static const uint64_t LISTS_BYTES = UINT64_C(1) << 50;

struct verify_args {
    const char *folder;
    struct tri_folders shard_dirs;
    bool json;
    int64_t threads;
};

/* One file with a published checksum: 64 hex digits are SHA-256, 40 the git blob's SHA-1. Or one
 * without any, but with a twin: the same file in another folder must have the same bytes. */
struct summed {
    char *name;
    const char *folder; /* NULL: in none */
    const char *twin;   /* its folder; NULL: none is needed */
    char want[TRI_SHA_HEX_BYTES];
    enum tri_status status;
    struct tri_error err;
};

struct verify {
    const struct verify_args *args;
    struct summed file[MAX_FILES];
    int64_t n;
    const char *source; /* "SHA256SUMS", "hub metadata", NULL: none */
    uint64_t total_bytes;
    _Atomic uint64_t done_bytes;
    double begin_s;
    _Atomic double drawn_s;
    struct tri_packs_report packs;
    json_t *pack_faults; /* texts */
};

/* The model's own folder, then those with more shards. */
static const char *folder_of(const struct verify *v, int i)
{
    return i == 0 ? v->args->folder : v->args->shard_dirs.name[i - 1];
}

static int folders(const struct verify *v)
{
    return 1 + v->args->shard_dirs.n;
}

static bool is_there(const char *folder, const char *name)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* What people call it: a name in the model's folder, a path elsewhere. */
static const char *shown(const struct verify *v, const struct summed *f, char path[8192])
{
    if (!f->folder || f->folder == v->args->folder)
        return f->name;
    snprintf(path, 8192, "%s/%s", f->folder, f->name);
    return path;
}

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)text[i]))
            return false;
    return true;
}

static bool has_sum(const struct verify *v, const struct summed *like)
{
    for (int64_t i = 0; i < v->n; i++)
        if (v->file[i].folder == like->folder && !strcmp(v->file[i].name, like->name) &&
            !strcmp(v->file[i].want, like->want))
            return true;
    return false;
}

static enum tri_status add_file(struct verify *v, const struct summed *f, struct tri_error *err)
{
    if (has_sum(v, f))
        return TRI_OK;
    if (v->n == MAX_FILES)
        return tri_fail(err, TRI_LIMIT, "more than %d files with checksums", MAX_FILES);
    v->file[v->n] = *f;
    v->file[v->n].name = tri_strndup(f->name, strlen(f->name));
    if (!v->file[v->n].name)
        return tri_fail(err, TRI_NOMEM, "no memory for the list of files");
    v->n++;
    return TRI_OK;
}

/* A list is about every copy of the file, in whichever folder; one that is in none is missing. */
static enum tri_status add_sum(struct verify *v, const char *name, size_t name_bytes,
                               const char *hex, size_t digits, struct tri_error *err)
{
    struct summed f = { .name = tri_strndup(name, name_bytes) };
    if (!f.name)
        return tri_fail(err, TRI_NOMEM, "no memory for the list of files");
    for (size_t i = 0; i < digits; i++)
        f.want[i] = (char)tolower((unsigned char)hex[i]);
    enum tri_status st = TRI_OK;
    bool found = false;
    for (int i = 0; i < folders(v) && !st; i++) {
        f.folder = folder_of(v, i);
        if (!is_there(f.folder, f.name))
            continue;
        found = true;
        st = add_file(v, &f, err);
    }
    f.folder = NULL;
    if (!found && !st)
        st = add_file(v, &f, err);
    tri_free(f.name);
    return st;
}

/* GNU coreutils' form: 64 hex digits, blank, blank or '*', name. A path in a name is refused. */
static enum tri_status read_sums(struct verify *v, const char *path, struct tri_error *err)
{
    char *text = NULL, *rest;
    size_t bytes = 0, line = 0;
    enum tri_status st = tri_read_plain_file(&text, &bytes, path, MAX_SUMS_BYTES, err);
    rest = text;
    while (!st && rest && *rest) {
        char *s = strsep(&rest, "\n");
        size_t n = strcspn(s, "\r");
        line++;
        if (n == 0 || s[0] == '#')
            continue;
        const char *name = s + 66;
        if (n < 67 || !is_hex(s, 64) || s[64] != ' ' || (s[65] != ' ' && s[65] != '*'))
            st = tri_fail(err, TRI_FORMAT, "%s: line %zu is not '<64 hex digits>  <file>'", path,
                          line);
        else if (memchr(name, '/', n - 66) || name[0] == '.')
            st = tri_fail(err, TRI_FORMAT, "%s: line %zu names a file outside of the folder", path,
                          line);
        else
            st = add_sum(v, name, n - 66, s, 64, err);
    }
    tri_free(text);
    return st;
}

/* <folder>/.cache/huggingface/download/<file>.metadata: commit, etag, time, one a line. */
static enum tri_status read_hub(struct verify *v, const char *folder, struct tri_error *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/.cache/huggingface/download", folder);
    DIR *dir = opendir(path);
    enum tri_status st = TRI_OK;
    for (struct dirent *e = dir ? readdir(dir) : NULL; e && !st; e = readdir(dir)) {
        char *text = NULL, full[8192];
        size_t bytes = 0, n = strlen(e->d_name);
        if (n < 10 || strcmp(e->d_name + n - 9, ".metadata"))
            continue;
        snprintf(full, sizeof full, "%s/%s", path, e->d_name);
        if (tri_read_plain_file(&text, &bytes, full, MAX_METADATA_BYTES, NULL))
            continue;
        char *tag = strchr(text, '\n');
        tag = tag ? tag + 1 : text;
        size_t digits = strcspn(tag, "\r\n");
        if ((digits == 64 || digits == 40) && is_hex(tag, digits))
            st = add_sum(v, e->d_name, n - 9, tag, digits, err);
        tri_free(text);
    }
    if (dir)
        closedir(dir);
    return st;
}

/* The first folder before number `i` that holds this file too, if no list tells what it must be. */
static const char *twin_of(const struct verify *v, int i, const char *name)
{
    for (int64_t f = 0; f < v->n; f++)
        if (v->file[f].folder == folder_of(v, i) && !strcmp(v->file[f].name, name))
            return NULL;
    for (int j = 0; j < i; j++)
        if (is_there(folder_of(v, j), name))
            return folder_of(v, j);
    return NULL;
}

static enum tri_status find_twins(struct verify *v, struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    for (int i = 1; i < folders(v) && !st; i++) {
        DIR *dir = opendir(folder_of(v, i));
        for (struct dirent *e = dir ? readdir(dir) : NULL; e && !st; e = readdir(dir)) {
            size_t n = strlen(e->d_name);
            struct summed f = { .name = e->d_name, .folder = folder_of(v, i) };
            if (n > 12 && !strcmp(e->d_name + n - 12, ".safetensors"))
                f.twin = twin_of(v, i, e->d_name);
            if (f.twin)
                st = add_file(v, &f, err);
        }
        if (dir)
            closedir(dir);
    }
    return st;
}

static enum tri_status find_sums(struct verify *v, struct tri_error *err)
{
    enum tri_status st = TRI_OK;
    for (int i = 0; i < folders(v) && !st; i++) {
        char path[4096];
        int64_t before = v->n;
        snprintf(path, sizeof path, "%s/SHA256SUMS", folder_of(v, i));
        bool list = access(path, R_OK) == 0;
        st = list ? read_sums(v, path, err) : read_hub(v, folder_of(v, i), err);
        if (!v->source && (list || v->n > before))
            v->source = list ? "SHA256SUMS" : "hub metadata";
    }
    return st ? st : find_twins(v, err);
}

static int count_bytes(void *arg, uint64_t bytes)
{
    struct verify *v = arg;
    uint64_t done = atomic_fetch_add(&v->done_bytes, bytes) + bytes;
    double now = tri_clock_s();
    if (v->args->json || !isatty(STDERR_FILENO) || now - atomic_load(&v->drawn_s) < 0.2)
        return 0;
    atomic_store(&v->drawn_s, now);
    char a[32], b[32], c[32];
    double rate = (double)done / (now - v->begin_s + 1e-9);
    fprintf(stderr, "\r\033[Khashing: %s of %s, %s/s, %.0f s left", tri_human_bytes(a, done),
            tri_human_bytes(b, v->total_bytes), tri_human_bytes(c, (uint64_t)rate),
            (double)(v->total_bytes - done) / (rate + 1));
    return 0;
}

static void check_twins(struct verify *v, struct summed *f)
{
    char path[8192], other[8192], got[TRI_SHA_HEX_BYTES];
    snprintf(path, sizeof path, "%s/%s", f->folder, f->name);
    snprintf(other, sizeof other, "%s/%s", f->twin, f->name);
    f->status = tri_sha_file(got, TRI_SHA256, path, NULL, 0, count_bytes, v, &f->err);
    if (!f->status)
        f->status = tri_sha_file(f->want, TRI_SHA256, other, NULL, 0, count_bytes, v, &f->err);
    if (!f->status && strcmp(got, f->want))
        f->status = tri_fail(&f->err, TRI_FORMAT,
                             "%s: differs from %s: one of the two is damaged, and no checksum says "
                             "which",
                             path, other);
}

static void check_file(struct verify *v, struct summed *f)
{
    if (f->twin) {
        check_twins(v, f);
        return;
    }
    char path[8192], named[8192], got[TRI_SHA_HEX_BYTES], prefix[64];
    struct stat sb;
    bool git = strlen(f->want) == 40;
    snprintf(path, sizeof path, "%s/%s", f->folder ? f->folder : "", f->name);
    if (!f->folder || stat(path, &sb)) {
        f->status = tri_fail(&f->err, TRI_IO, "%s: is missing", f->name);
        return;
    }
    int n = snprintf(prefix, sizeof prefix, "blob %lld", (long long)sb.st_size);
    f->status = tri_sha_file(got, git ? TRI_SHA1 : TRI_SHA256, path, git ? prefix : NULL,
                             (size_t)n + 1, count_bytes, v, &f->err);
    if (!f->status && strcmp(got, f->want))
        f->status = tri_fail(&f->err, TRI_FORMAT,
                             "%s: damaged: its checksum is %.16s..., published is %.16s...; "
                             "download it again",
                             shown(v, f, named), got, f->want);
}

static void check_files(void *arg, int64_t begin, int64_t end, int thread)
{
    struct verify *v = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        check_file(v, &v->file[i]);
}

static enum tri_status hash_all(struct verify *v, struct tri_error *err)
{
    struct tri_pool *pool = NULL;
    enum tri_status st = tri_pool_open(&pool, (int)v->args->threads, err);
    if (st)
        return st;
    for (int64_t i = 0; i < v->n; i++) {
        char path[8192];
        struct stat sb;
        const struct summed *f = &v->file[i];
        snprintf(path, sizeof path, "%s/%s", f->folder ? f->folder : "", f->name);
        uint64_t bytes = !f->folder || stat(path, &sb) ? 0 : (uint64_t)sb.st_size;
        v->total_bytes += f->twin ? 2 * bytes : bytes;
    }
    v->begin_s = tri_clock_s();
    tri_pool_for(pool, v->n, 1, check_files, v);
    tri_pool_close(pool);
    if (isatty(STDERR_FILENO) && !v->args->json)
        fprintf(stderr, "\r\033[K");
    return TRI_OK;
}

/* Headers, offsets, names and shapes of every shard, as opening the model would check them. */
static enum tri_status check_structure(const struct verify_args *a, uint64_t *bytes,
                                       struct tri_error *err)
{
    char config[4096];
    struct tri_spec *spec = tri_calloc(1, sizeof *spec);
    struct tri_checkpoint *ckpt = NULL;
    snprintf(config, sizeof config, "%s/config.json", a->folder);
    enum tri_status st = spec ? tri_spec_load(spec, config, NULL, err)
                              : tri_fail(err, TRI_NOMEM, "no memory for the model's shape");
    if (!st)
        st = tri_checkpoint_open_spread(&ckpt, a->folder, &a->shard_dirs, spec, 0, NULL, err);
    if (!st)
        *bytes = tri_checkpoint_bytes(ckpt);
    tri_checkpoint_close(ckpt);
    tri_free(spec);
    return st;
}

static void on_pack_fault(void *arg, const char *text)
{
    struct verify *v = arg;
    json_array_append_new(v->pack_faults, json_string(text));
    if (!v->args->json)
        fprintf(stderr, "trireme: %s\n", text);
}

static enum tri_status check_packs(struct verify *v, struct tri_error *err)
{
    struct tri_budget *budget = NULL;
    struct tri_model_options o = { .threads = (int)v->args->threads,
                                   .shard_dirs = v->args->shard_dirs };
    v->packs.fault = on_pack_fault;
    v->packs.arg = v;
    enum tri_status st = tri_budget_open(&budget, LISTS_BYTES, err);
    if (!st)
        st = tri_model_check_packs(v->args->folder, &o, budget, &v->packs, err);
    tri_budget_close(budget);
    return st;
}

static int64_t report_files(const struct verify *v)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < v->n; i++) {
        const struct summed *f = &v->file[i];
        if (!f->status)
            continue;
        bad++;
        if (!v->args->json)
            fprintf(stderr, "trireme: %s\n", f->err.text);
    }
    return bad;
}

static void report_json(const struct verify *v, const struct tri_error *structure, uint64_t bytes,
                        int64_t bad)
{
    json_t *list = json_array();
    char path[8192];
    size_t at;
    json_t *text;
    for (int64_t i = 0; i < v->n; i++)
        if (v->file[i].status)
            json_array_append_new(list, json_pack("{s:s,s:s}", "file", shown(v, &v->file[i], path),
                                                  "why", v->file[i].err.text));
    json_array_foreach(v->pack_faults, at, text)
        json_array_append_new(list, json_pack("{s:n,s:O}", "file", "why", text));
    if (structure->status)
        json_array_append_new(list, json_pack("{s:n,s:s}", "file", "why", structure->text));
    json_t *packs = json_pack("{s:I,s:I,s:I,s:I}", "packs", (json_int_t)v->packs.packs, "records",
                              (json_int_t)v->packs.records, "bytes", (json_int_t)v->packs.bytes,
                              "faults", (json_int_t)v->packs.faults);
    json_t *all = json_pack("{s:b,s:s?,s:I,s:I,s:I,s:o,s:o}", "ok",
                            bad == 0 && !structure->status && !v->packs.faults, "checksums",
                            v->source, "files", (json_int_t)v->n, "damaged", (json_int_t)bad,
                            "bytes", (json_int_t)bytes, "packed", packs, "faults", list);
    json_dumpf(all, stdout, JSON_COMPACT);
    printf("\n");
    json_decref(all);
}

static void report_whole(const struct verify *v, uint64_t bytes)
{
    char size[32];
    printf("%s: whole, %s of tensors; ", v->args->folder, tri_human_bytes(size, bytes));
    if (v->source)
        printf("%" PRId64 " files equal their checksums (%s)\n", v->n, v->source);
    else
        printf("no checksums in the folder, so only the structure of its shards was checked%s\n",
               v->n ? ", and that copies are equal" : "");
    if (v->packs.packs)
        printf("%s: %" PRId64 " packs of these shards, %" PRId64 " records (%s) equal their "
               "checksums\n",
               v->args->folder, v->packs.packs, v->packs.records,
               tri_human_bytes(size, v->packs.bytes));
}

static const struct argp_option options[] = {
    { "shard-dir", KEY_SHARD_DIR, "DIR", 0, "A further folder with shards of the model; repeatable",
      0 },
    { "json", KEY_JSON, 0, 0, "One JSON object instead of text", 0 },
    { "threads", 't', "N", 0, "Files hashed side by side (default: all CPUs allowed)", 0 },
    { 0 }
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct verify_args *a = state->input;
    switch (key) {
    case KEY_JSON:
        a->json = true;
        return 0;
    case KEY_SHARD_DIR:
        tri_take_shard_dir(state, arg, &a->shard_dirs);
        return 0;
    case 't':
        if (!tri_parse_int(arg, 1, TRI_POOL_MAX_THREADS, &a->threads))
            argp_error(state, "--threads %s: 1 to %d", arg, TRI_POOL_MAX_THREADS);
        return 0;
    case ARGP_KEY_ARG:
        if (a->folder)
            argp_error(state, "one model folder; '%s' is too many", arg);
        a->folder = arg;
        return 0;
    case ARGP_KEY_END:
        if (!a->folder)
            argp_error(state, "which model folder?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp verify_argp = {
    options,
    parse,
    "MODEL",
    "Checks a downloaded model: every checksum of SHA256SUMS or of the hub's metadata if there are "
    "any, the structure of every shard, and each record of the packs that `trireme pack` left. "
    "Copies of a shard in several folders are all checked, without checksums against each other. "
    "Exit code 1: something is wrong.\v"
    "Example:\n  trireme verify kimi-k3/ --shard-dir /mnt/b/kimi-k3 --json",
    NULL,
    NULL,
    NULL
};

static int verify_all(struct verify *v, struct tri_error *err)
{
    const struct verify_args *a = v->args;
    struct tri_error structure = { 0 };
    uint64_t bytes = 0;
    enum tri_status st = find_sums(v, err);
    if (!st)
        st = hash_all(v, err);
    if (st)
        return tri_cli_fail(err);
    int64_t bad = report_files(v);
    /* A pack belongs to shards whose headers are known. */
    if (!check_structure(a, &bytes, &structure))
        st = check_packs(v, err);
    else if (!a->json)
        fprintf(stderr, "trireme: %s\n", structure.text);
    if (st)
        return tri_cli_fail(err);
    bool whole = !bad && !structure.status && !v->packs.faults;
    if (a->json)
        report_json(v, &structure, bytes, bad);
    else if (whole)
        report_whole(v, bytes);
    return whole ? TRI_EXIT_OK : TRI_EXIT_FAILED;
}

int tri_cmd_verify(int argc, char **argv)
{
    struct verify_args a = { 0 };
    struct tri_error err = { 0 };
    tri_cli_parse(&verify_argp, argc, argv, TRI_EXIT_USAGE, &a);
    struct verify *v = tri_calloc(1, sizeof *v);
    if (!v) {
        (void)tri_fail(&err, TRI_NOMEM, "no memory");
        return tri_cli_fail(&err);
    }
    v->args = &a;
    v->pack_faults = json_array();
    int code = verify_all(v, &err);
    for (int64_t i = 0; i < v->n; i++)
        tri_free(v->file[i].name);
    json_decref(v->pack_faults);
    tri_free(v);
    return code;
}
