/*
 * The strict reader of a Hugging Face config: a field that nobody asked for and that is not known
 * to cost nothing is refused, because a plan that silently ignores a number is a wrong plan.
 */
#include "arch/arch_priv.h"

#include <string.h>

/* Fields without effect on bytes, operations or state: training, generation and naming. */
static const char *const harmless[] = {
    "_name_or_path",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "auto_map",
    "aux_loss_alpha",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "dtype",
    "early_stopping",
    "embd_pdrop",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "ep_size",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "hidden_act",
    "hidden_dropout",
    "id2label",
    "ignore_index",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "label2id",
    "length_penalty",
    "max_length",
    "min_length",
    "model_type",
    "model_max_length",
    "no_repeat_ngram_size",
    "norm_topk_prob",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "output_scores",
    "pad_token_id",
    "partial_rotary_factor",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "pruned_heads",
    "remove_invalid_values",
    "repetition_penalty",
    "resid_pdrop",
    "return_dict",
    "return_dict_in_generate",
    "rms_norm_eps",
    "rope_interleave",
    "rope_parameters",
    "rope_scaling",
    "rope_theta",
    "routed_scaling_factor",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "scoring_func",
    "sep_token_id",
    "seq_aux",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tf_legacy_loss",
    "tie_encoder_decoder",
    "tie_weights",
    "tokenizer_class",
    "top_k",
    "top_p",
    "topk_group",
    "topk_method",
    "n_group",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "typical_p",
    "unsloth_fixed",
    "unsloth_version",
    "use_bfloat16",
    "use_cache",
    "image_placeholder",
    "media_placeholder_token_id",
    "image_token_id",
    "use_unified_vision_chunk",
    "video_placeholder",
    "language_config",
    "max_window_layers",
};

void tri__arch_cfg_open(struct tri__arch_cfg *cfg, const json_t *object, const char *source,
                        struct tri_error *err)
{
    memset(cfg, 0, sizeof *cfg);
    cfg->object = object;
    cfg->source = source;
    cfg->err = err;
    if (!json_is_object(object))
        cfg->status = tri_fail(err, TRI_FORMAT, "%s: the config is not a JSON object", source);
}

const json_t *tri__arch_get(struct tri__arch_cfg *cfg, const char *key)
{
    if (cfg->asked_count < TRI__ARCH_MAX_KEYS)
        cfg->asked[cfg->asked_count++] = key;
    const json_t *value = json_object_get(cfg->object, key);
    return json_is_null(value) ? NULL : value;
}

bool tri__arch_has(struct tri__arch_cfg *cfg, const char *key)
{
    return tri__arch_get(cfg, key) != NULL;
}

int64_t tri__arch_int(struct tri__arch_cfg *cfg, const char *key, int64_t min, int64_t max,
                      int64_t fallback)
{
    const json_t *value = tri__arch_get(cfg, key);
    if (cfg->status)
        return min;
    if (!value && fallback == -1) {
        cfg->status = tri_fail(cfg->err, TRI_FORMAT, "%s: %s is missing", cfg->source, key);
        return min;
    }
    if (!value)
        return fallback;
    if (!json_is_integer(value) || json_integer_value(value) < min ||
        json_integer_value(value) > max) {
        cfg->status =
            tri_fail(cfg->err, TRI_FORMAT, "%s: %s must be a whole number from %lld to %lld",
                     cfg->source, key, (long long)min, (long long)max);
        return min;
    }
    return json_integer_value(value);
}

bool tri__arch_bool(struct tri__arch_cfg *cfg, const char *key, bool fallback)
{
    const json_t *value = tri__arch_get(cfg, key);
    if (!value || cfg->status)
        return fallback;
    if (!json_is_boolean(value)) {
        cfg->status =
            tri_fail(cfg->err, TRI_FORMAT, "%s: %s must be true or false", cfg->source, key);
        return fallback;
    }
    return json_is_true(value);
}

const char *tri__arch_text(struct tri__arch_cfg *cfg, const char *key, const char *fallback)
{
    const json_t *value = tri__arch_get(cfg, key);
    if (!value || cfg->status)
        return fallback;
    if (!json_is_string(value)) {
        cfg->status = tri_fail(cfg->err, TRI_FORMAT, "%s: %s must be text", cfg->source, key);
        return fallback;
    }
    return json_string_value(value);
}

static bool listed(const char *const *list, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], key))
            return true;
    return false;
}

enum tri_status tri__arch_cfg_finish(struct tri__arch_cfg *cfg, bool lenient,
                                     const struct tri_notes *notes)
{
    if (cfg->status)
        return cfg->status;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)cfg->object, key, value)
    {
        if (listed(cfg->asked, (size_t)cfg->asked_count, key) ||
            listed(harmless, sizeof harmless / sizeof harmless[0], key))
            continue;
        char safe[80];
        tri_printable(safe, sizeof safe, key, strlen(key));
        if (!lenient)
            return tri_fail(cfg->err, TRI_UNSUPPORTED,
                            "%s: the field %s is not known here, so a plan could be wrong; "
                            "--lenient goes on without it",
                            cfg->source, safe);
        tri_note(notes, "%s: the field %s is not known and was left out", cfg->source, safe);
    }
    return TRI_OK;
}

/* ---- quantization_config -------------------------------------------------------------------- */

static uint32_t grouped_bits64(int bits, int group, int extra_bits)
{
    return (uint32_t)(bits * 64 + (group > 0 ? 64 * extra_bits / group : 0));
}

/* compressed-tensors (Kimi, RedHat): the first group's weights tell bits and group size. */
static enum tri_status compressed_tensors(struct tri__arch_store *out, struct tri__arch_cfg *cfg,
                                          const json_t *quant)
{
    const char *key;
    json_t *group;
    json_t *groups = json_object_get(quant, "config_groups");
    json_object_foreach(groups, key, group)
    {
        const json_t *weights = json_object_get(group, "weights");
        int bits = (int)json_integer_value(json_object_get(weights, "num_bits"));
        int size = (int)json_integer_value(json_object_get(weights, "group_size"));
        const char *type = json_string_value(json_object_get(weights, "type"));
        bool floats = type && !strcmp(type, "float");
        if (bits == 4 && size > 0 && size <= 1024) {
            out->experts = !floats ? TRI_NUM_INT4 : size == 32 ? TRI_NUM_MXFP4 : TRI_NUM_NVFP4;
            out->expert_bits64 = grouped_bits64(4, size, floats ? 8 : 16);
        } else if (bits == 8) {
            out->experts = floats ? TRI_NUM_FP8 : TRI_NUM_INT8;
            out->expert_bits64 = 8 * 64;
        } else {
            return tri_fail(cfg->err, TRI_UNSUPPORTED,
                            "%s: quantization_config with %d-bit weights is not known", cfg->source,
                            bits);
        }
        return TRI_OK;
    }
    return tri_fail(cfg->err, TRI_FORMAT, "%s: quantization_config has no config_groups",
                    cfg->source);
}

/*
 * Which linears are quantised differs by method: compressed-tensors of the Kimi family leaves
 * attention and shared experts in bf16 (their ignore list); fp8, awq and gptq take every linear.
 */
enum tri_status tri__arch_store_read(struct tri__arch_store *out, struct tri__arch_cfg *cfg)
{
    *out = (struct tri__arch_store){ TRI_NUM_BF16, TRI_NUM_BF16, 16 * 64, 16 * 64, 0 };
    const json_t *quant = tri__arch_get(cfg, "quantization_config");
    if (cfg->status || !quant)
        return cfg->status;
    const char *method = json_string_value(json_object_get(quant, "quant_method"));
    if (method && !strcmp(method, "fp8")) {
        const json_t *block = json_object_get(quant, "weight_block_size");
        out->dense = out->experts = TRI_NUM_FP8;
        out->dense_bits64 = out->expert_bits64 = 8 * 64;
        int64_t side = json_integer_value(json_array_get(block, 0));
        out->block = side > 0 && side <= 4096 ? (int)side : 0;
        return TRI_OK;
    }
    if (method && (!strcmp(method, "awq") || !strcmp(method, "gptq"))) {
        int64_t bits = json_integer_value(json_object_get(quant, "bits"));
        int64_t group = json_integer_value(json_object_get(quant, "group_size"));
        if ((bits != 4 && bits != 8) || group < 16 || group > 1024)
            return cfg->status = tri_fail(cfg->err, TRI_UNSUPPORTED,
                                          "%s: %s with %lld bits and groups of %lld is not known",
                                          cfg->source, method, (long long)bits, (long long)group);
        out->dense = out->experts = bits == 4 ? TRI_NUM_INT4 : TRI_NUM_INT8;
        out->dense_bits64 = out->expert_bits64 =
            grouped_bits64((int)bits, (int)group, 16 + (int)bits); /* scale and zero point */
        return TRI_OK;
    }
    if (method && !strcmp(method, "compressed-tensors"))
        return cfg->status = compressed_tensors(out, cfg, quant);
    char safe[40];
    method = method ? method : "none named";
    return cfg->status =
               tri_fail(cfg->err, TRI_UNSUPPORTED,
                        "%s: quant_method %s is not known (fp8, awq, gptq, compressed-tensors are)",
                        cfg->source, tri_printable(safe, sizeof safe, method, strlen(method)));
}
