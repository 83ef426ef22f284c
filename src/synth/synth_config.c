/*
 * config.json of the made-up model: the person's config with another layer count, other layer kinds
 * or other numbers. Everything else stays as it was, in its order.
 */
#include "synth/synth_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/buf.h"
#include "base/json.h"
#include "base/mem.h"

static enum tri_status config_path(char *out, size_t out_bytes, const char *given,
                                   struct tri_error *err)
{
    struct stat sb;
    bool folder = stat(given, &sb) == 0 && S_ISDIR(sb.st_mode);
    if (snprintf(out, out_bytes, "%s%s", given, folder ? "/config.json" : "") >= (int)out_bytes)
        return tri_fail(err, TRI_ARG, "the config's path is too long");
    return TRI_OK;
}

/* A number, true or false in place of what the key held; a dot goes into an object. */
static enum tri_status set_value(json_t *text, const char *pair, struct tri_error *err)
{
    char key[128];
    const char *equals = strchr(pair, '='), *dot = NULL;
    json_t *object = text, *value = NULL;
    if (!equals || equals == pair || equals - pair >= (int)sizeof key)
        return tri_fail(err, TRI_ARG, "--set %s: write KEY=VALUE", pair);
    snprintf(key, sizeof key, "%.*s", (int)(equals - pair), pair);
    dot = strchr(key, '.');
    if (dot) {
        key[dot - key] = 0;
        object = json_object_get(text, key);
    }
    const char *last = dot ? dot + 1 : key;
    if (!json_object_get(object, last))
        return tri_fail(err, TRI_ARG, "--set %s: the config's text_config has no such key", pair);
    value = json_loads(equals + 1, JSON_DECODE_ANY, NULL);
    if (!json_is_number(value) && !json_is_boolean(value)) {
        json_decref(value);
        return tri_fail(err, TRI_ARG, "--set %s: the value must be a number, true or false", pair);
    }
    if (json_object_set_new(object, last, value))
        return tri_fail(err, TRI_NOMEM, "no memory for the config");
    return TRI_OK;
}

/* num_hidden_layers and both lists of layer numbers (1-based). */
static enum tri_status set_layers(json_t *text, const struct tri_spec *spec,
                                  const struct tri_synth_options *o, struct tri_error *err)
{
    int64_t layers = o->layers ? o->layers : spec->layers;
    json_t *kda = json_array(), *full = json_array();
    json_t *linear = json_object_get(text, "linear_attn_config");
    size_t period = o->pattern ? strlen(o->pattern) : (size_t)spec->layers;
    enum tri_status st = TRI_OK;
    for (int64_t i = 0; i < layers; i++) {
        size_t at = (size_t)i % period;
        bool is_kda = o->pattern ? o->pattern[at] == 'k' : spec->layer[at].attn == TRI_ATTN_KDA;
        json_array_append_new(is_kda ? kda : full, json_integer(i + 1));
    }
    if (!linear && json_array_size(kda))
        st = tri_fail(err, TRI_ARG,
                      "--pattern: the config has no linear_attn_config to shape a "
                      "KDA layer");
    if (linear) {
        json_object_set(linear, "kda_layers", kda);
        json_object_set(linear, "full_attn_layers", full);
    }
    json_object_set_new(text, "num_hidden_layers", json_integer(layers));
    json_decref(kda);
    json_decref(full);
    return st;
}

/* A smaller vocabulary may not have the special ids: they become its last one. */
static void clamp_ids(json_t *config, const json_t *text)
{
    static const char *const keys[] = { "bos_token_id", "eos_token_id", "pad_token_id" };
    const json_t *vocab = json_object_get(text, "vocab_size");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && json_is_integer(vocab); i++) {
        const json_t *id = json_object_get(config, keys[i]);
        if (json_is_integer(id) && json_integer_value(id) >= json_integer_value(vocab))
            json_object_set_new(config, keys[i], json_integer(json_integer_value(vocab) - 1));
    }
}

static enum tri_status change(json_t *config, const struct tri_spec *spec,
                              const struct tri_synth_options *o, struct tri_error *err)
{
    json_t *text = json_object_get(config, "text_config");
    enum tri_status st = TRI_OK;
    if (!text)
        text = config;
    if (o->text_only)
        json_object_del(config, "vision_config");
    if (o->layers || o->pattern)
        st = set_layers(text, spec, o, err);
    for (int i = 0; i < o->sets && !st; i++)
        st = set_value(text, o->set[i], err);
    clamp_ids(config, text);
    if (text != config)
        clamp_ids(text, text);
    return st;
}

static int to_buf(const char *data, size_t bytes, void *arg)
{
    return tri_buf_add(arg, data, bytes);
}

static enum tri_status print_config(char **out, const json_t *config, struct tri_error *err)
{
    struct tri_buf buf;
    tri_buf_init(&buf, TRI_SPEC_MAX_CONFIG_BYTES);
    if (json_dump_callback(config, to_buf, &buf, JSON_INDENT(1)) || tri_buf_putc(&buf, '\n')) {
        tri_buf_fini(&buf);
        return tri_fail(err, TRI_NOMEM, "no memory for the config");
    }
    *out = buf.data;
    return TRI_OK;
}

enum tri_status tri__synth_config(char **text, struct tri_spec *spec,
                                  const struct tri_synth_options *options, struct tri_error *err)
{
    char path[4096], *read = NULL, *made = NULL;
    size_t bytes = 0;
    json_t *config = NULL;
    enum tri_status st = config_path(path, sizeof path, options->config, err);
    if (!st)
        st = tri_spec_read_text(&read, &bytes, path, TRI_SPEC_MAX_CONFIG_BYTES, err);
    if (!st)
        st = tri_spec_parse(spec, path, read, bytes, &options->notes, err);
    if (!st)
        st = tri_json_parse(&config, path, read, bytes, TRI_SPEC_MAX_CONFIG_BYTES, err);
    if (!st)
        st = change(config, spec, options, err);
    if (!st)
        st = print_config(&made, config, err);
    if (!st)
        st = tri_spec_parse(spec, path, made, strlen(made), NULL, err);
    json_decref(config);
    tri_free(read);
    if (st)
        tri_free(made);
    else
        *text = made;
    return st;
}
