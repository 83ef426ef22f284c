/* Saves and loads a conversation; the format is in chat_file.h. */
#include "cli/chat_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/json.h"
#include "base/mem.h"
#include "cli/out_file.h"

enum { MAX_PATH_BYTES = 4096 };

static const char *const efforts[] = { "none", "low", "high", "max" };

static json_t *message_json(const struct tri_chat_message *m)
{
    json_t *one = json_object(), *ids = json_array();
    json_object_set_new(one, "message", json_string(m->json));
    json_object_set_new(one, "system", json_boolean(m->system));
    for (size_t i = 0; i < m->ids.count_tokens; i++)
        json_array_append_new(ids, json_integer(m->ids.data[i]));
    json_object_set_new(one, "ids", ids);
    return one;
}

static json_t *conversation_json(const struct tri_conversation *c, uint64_t seed)
{
    json_t *all = json_object(), *list = json_array();
    json_object_set_new(all, "trireme_chat", json_integer(1));
    json_object_set_new(all, "thinking", json_boolean(c->thinking));
    json_object_set_new(all, "effort", json_string(efforts[c->effort]));
    json_object_set_new(all, "seed", json_integer((json_int_t)seed));
    json_object_set_new(all, "tools", c->tools ? json_string(c->tools) : json_null());
    for (size_t i = 0; i < c->n; i++)
        json_array_append_new(list, message_json(&c->messages[i]));
    json_object_set_new(all, "messages", list);
    return all;
}

static enum tri_status write_json(const char *path, const json_t *json, struct tri_error *err)
{
    struct tri_out_file out;
    enum tri_status st = tri_out_file_open(&out, path, 0600, err);
    if (st != TRI_OK)
        return st;
    errno = 0;
    if (json_dumpf(json, out.f, JSON_COMPACT) == 0 && fputc('\n', out.f) != EOF)
        return tri_out_file_commit(&out, err);
    st = tri_fail_errno(err, TRI_IO, errno ? errno : EIO, "cannot write %s", path);
    tri_out_file_drop(&out);
    return st;
}

/* Only a file of the same kind is replaced: a slip must not cost anyone a text. */
static enum tri_status check_replace(const char *path, const char *begins, struct tri_error *err)
{
    struct stat sb;
    char head[16] = "";
    if (stat(path, &sb) != 0)
        return TRI_OK;
    if (!S_ISREG(sb.st_mode))
        return tri_fail(err, TRI_IO, "%s is no regular file: choose another name", path);
    FILE *f = fopen(path, "rb");
    size_t got = f ? fread(head, 1, sizeof head - 1, f) : 0;
    if (f)
        fclose(f);
    if (sb.st_size == 0 || (got && !strncmp(head, begins, strlen(begins))))
        return TRI_OK;
    return tri_fail(err, TRI_IO, "%s exists and was not made by /save: choose another name", path);
}

static enum tri_status state_path(char out[MAX_PATH_BYTES + 16], const char *path,
                                  struct tri_error *err)
{
    if (strlen(path) >= MAX_PATH_BYTES)
        return tri_fail(err, TRI_LIMIT, "a path of at most %d bytes, please", MAX_PATH_BYTES - 1);
    snprintf(out, MAX_PATH_BYTES + 16, "%s.state", path);
    return TRI_OK;
}

enum tri_status tri_chat_save(const char *path, const struct tri_conversation *c,
                              const struct tri_talk *talk, uint64_t seed, struct tri_error *err)
{
    char state[MAX_PATH_BYTES + 16];
    enum tri_status st = state_path(state, path, err);
    if (st == TRI_OK)
        st = check_replace(path, "{\"trireme_chat\"", err);
    if (st == TRI_OK)
        st = check_replace(state, "TRISTAT", err);
    if (st != TRI_OK)
        return st;
    json_t *all = conversation_json(c, seed);
    const char *base = strrchr(state, '/');
    json_object_set_new(all, "state", json_string(base ? base + 1 : state));
    st = tri_sequence_save(talk->sequence, state, err);
    if (st == TRI_OK)
        st = write_json(path, all, err);
    json_decref(all);
    return st;
}

/* --- load ----------------------------------------------------------------------------------- */

static enum tri_status read_ids(struct tri_ids *ids, const json_t *list, const char *path,
                                struct tri_error *err)
{
    size_t i;
    json_t *id;
    json_array_foreach(list, i, id)
    {
        json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value > INT32_MAX)
            return tri_fail(err, TRI_FORMAT, "%s: an id that is no token id", path);
        if (tri_ids_add(ids, (int32_t)value) != TRI_OK)
            return tri_fail(err, TRI_NOMEM, "no memory for %s", path);
    }
    return TRI_OK;
}

static enum tri_status read_message(struct tri_conversation *c, const json_t *one, const char *path,
                                    struct tri_error *err)
{
    const json_t *text = json_object_get(one, "message"), *ids = json_object_get(one, "ids");
    if (!json_is_string(text) || !json_is_array(ids))
        return tri_fail(err, TRI_FORMAT, "%s: message %zu lacks its text or its ids", path, c->n);
    json_t *whole = NULL; /* one object and no more: the text goes into a list as it is */
    const char *words = json_string_value(text);
    enum tri_status st =
        tri_json_parse(&whole, path, words, strlen(words), TRI_CHAT_MAX_BYTES, err);
    bool object = json_is_object(whole);
    json_decref(whole);
    if (st != TRI_OK || !object)
        return tri_fail(err, TRI_FORMAT, "%s: message %zu is no JSON object", path, c->n);
    struct tri_chat_message m = { .json = tri_strdup(json_string_value(text)),
                                  .system = json_is_true(json_object_get(one, "system")) };
    st = m.json ? read_ids(&m.ids, ids, path, err)
                : tri_fail(err, TRI_NOMEM, "no memory for %s", path);
    if (st == TRI_OK)
        st = tri_conversation_add(c, &m, err);
    if (st != TRI_OK) {
        tri_free(m.json);
        tri_ids_fini(&m.ids);
    }
    return st;
}

static bool read_effort(enum tri_effort *out, const char *text)
{
    for (size_t i = 0; text && i < sizeof efforts / sizeof efforts[0]; i++) {
        if (strcmp(text, efforts[i]) != 0)
            continue;
        *out = (enum tri_effort)i;
        return true;
    }
    return false;
}

static enum tri_status read_conversation(struct tri_conversation *c, const json_t *all,
                                         const char *path, struct tri_error *err)
{
    const json_t *list = json_object_get(all, "messages"), *tools = json_object_get(all, "tools");
    if (json_integer_value(json_object_get(all, "trireme_chat")) != 1 || !json_is_array(list) ||
        !read_effort(&c->effort, json_string_value(json_object_get(all, "effort"))))
        return tri_fail(err, TRI_FORMAT, "%s is no conversation saved by /save", path);
    c->thinking = json_is_true(json_object_get(all, "thinking"));
    enum tri_status st = TRI_OK;
    if (json_is_string(tools))
        st = tri_conversation_declare(c, path, json_string_value(tools), err);
    for (size_t i = 0; i < json_array_size(list) && st == TRI_OK; i++)
        st = read_message(c, json_array_get(list, i), path, err);
    return st;
}

enum tri_status tri_chat_load(const char *path, struct tri_conversation *c, struct tri_talk *talk,
                              uint64_t *seed, struct tri_error *note, struct tri_error *err)
{
    char state[MAX_PATH_BYTES + 16];
    json_t *all = NULL;
    struct tri_conversation loaded = { 0 };
    enum tri_status st = state_path(state, path, err);
    if (st == TRI_OK)
        st = tri_json_load(&all, path, TRI_CHAT_MAX_BYTES, err);
    if (st != TRI_OK)
        return st;
    st = read_conversation(&loaded, all, path, err);
    if (st == TRI_OK) {
        *seed = (uint64_t)json_integer_value(json_object_get(all, "seed"));
        tri_conversation_fini(c);
        *c = loaded;
        /* A failure is told, and leaves an empty sequence: the next prompt computes all. */
        *note = (struct tri_error){ 0 };
        enum tri_status used = tri_sequence_load(talk->sequence, state, note);
        (void)used;
    } else {
        tri_conversation_fini(&loaded);
    }
    json_decref(all);
    return st;
}
