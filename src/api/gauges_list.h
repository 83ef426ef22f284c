/*
 * The names in /metrics: vLLM's, so that ready dashboards work (docs.vllm.ai, design/metrics), and
 * our own for what it has no word for. Included by gauges.c only.
 */
#ifndef TRI_API_GAUGES_LIST_H
#define TRI_API_GAUGES_LIST_H

#include "sched/sched.h"

static const double ttft_s[] = { .001, .005, .01, .02, .04, .06, .08, .1,  .25, .5,   .75,  1,
                                 2.5,  5,    7.5, 10,  20,  40,  80,  160, 640, 2560, 5120, 10240 };
static const double itl_s[] = { .01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80 };
static const double e2e_s[] = { .3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680 };
static const double token_counts[] = { 1,     2,      5,      10,     20,     50,    100,
                                       200,   500,    1000,   2000,   5000,   10000, 20000,
                                       50000, 100000, 200000, 500000, 1000000 };
static const double step_tokens[TRI_SCHED_STEP_BUCKETS] = TRI_SCHED_STEP_BOUNDS;
static const double few[] = { 1, 2, 4, 8 };

#define HISTOGRAMS(X)                                                                              \
    X(TTFT, "vllm:time_to_first_token_seconds", "Time to first token.", ttft_s)                    \
    X(ITL, "vllm:inter_token_latency_seconds", "Time between two tokens.", itl_s)                  \
    X(TPOT, "vllm:time_per_output_token_seconds", "Time between two tokens (older name).", itl_s)  \
    X(REQUEST_TPOT, "vllm:request_time_per_output_token_seconds",                                  \
      "Mean time per token of a request.", itl_s)                                                  \
    X(E2E, "vllm:e2e_request_latency_seconds", "Time of a request, all in all.", e2e_s)            \
    X(QUEUE, "vllm:request_queue_time_seconds", "Time spent waiting for a slot.", e2e_s)           \
    X(PREFILL, "vllm:request_prefill_time_seconds", "Time from slot to first token.", e2e_s)       \
    X(DECODE, "vllm:request_decode_time_seconds", "Time from first token to last.", e2e_s)         \
    X(PROMPT, "vllm:request_prompt_tokens", "Prompt tokens of a request.", token_counts)           \
    X(GENERATION, "vllm:request_generation_tokens", "Tokens made for a request.", token_counts)    \
    X(INFERENCE, "vllm:request_inference_time_seconds", "Time from slot to last token.", e2e_s)    \
    X(PARAM_N, "vllm:request_params_n", "Choices asked for.", few)                                 \
    X(PARAM_MAX, "vllm:request_params_max_tokens", "max_tokens, where it was given.",              \
      token_counts)                                                                                \
    X(LONGEST, "vllm:request_max_num_generation_tokens", "Tokens of a request's longest choice.",  \
      token_counts)                                                                                \
    X(STEP_TOKENS, "vllm:iteration_tokens_total", "Rows of a forward pass.", step_tokens)          \
    X(HTTP, "http_request_duration_seconds", "Time of an HTTP request.", e2e_s)

#define COUNTERS(X)                                                                                \
    X(SUCCESS_STOP, "vllm:request_success_total", "Requests by how they ended.",                   \
      ",finished_reason=\"stop\"")                                                                 \
    X(SUCCESS_LENGTH, "vllm:request_success_total", "", ",finished_reason=\"length\"")             \
    X(SUCCESS_ABORT, "vllm:request_success_total", "", ",finished_reason=\"abort\"")               \
    X(SUCCESS_ERROR, "vllm:request_success_total", "", ",finished_reason=\"error\"")               \
    X(PROMPT_TOKENS, "vllm:prompt_tokens_total", "Prompt tokens of admitted requests.", "")        \
    X(GENERATION_TOKENS, "vllm:generation_tokens_total", "Tokens sampled.", "")                    \
    X(CACHE_QUERIES, "vllm:prefix_cache_queries_total", "Prompt tokens looked up.", "")            \
    X(CACHE_HITS, "vllm:prefix_cache_hits_total", "Of these, tokens already computed.", "")        \
    X(PREEMPTIONS, "vllm:num_preemptions_total", "Preempted requests.", "")                        \
    X(CORRUPTED, "vllm:corrupted_requests_total", "Requests ended by NaN or Inf in logits.", "")   \
    X(REJECTED_QUEUE, "vllm:admission_rejections_total", "Requests refused.",                      \
      ",reason=\"queue_full\"")                                                                    \
    X(REJECTED_LENGTH, "vllm:admission_rejections_total", "",                                      \
      ",reason=\"context_length_exceeded\"")                                                       \
    X(REJECTED_DRAIN, "vllm:admission_rejections_total", "", ",reason=\"draining\"")               \
    X(REJECTED_OTHER, "vllm:admission_rejections_total", "", ",reason=\"other\"")                  \
    X(CHECKPOINTS_TAKEN, "trireme_checkpoints_taken_total", "States kept for reuse.", "")          \
    X(CHECKPOINTS_EVICTED, "trireme_checkpoints_evicted_total", "States dropped for room.", "")    \
    X(HIT_SLOT, "trireme_cache_hit_tokens_total", "Prompt tokens found computed, by where.",       \
      ",tier=\"slot\"")                                                                            \
    X(HIT_RAM, "trireme_cache_hit_tokens_total", "", ",tier=\"ram\"")                              \
    X(HIT_DISK, "trireme_cache_hit_tokens_total", "", ",tier=\"disk\"")                            \
    X(FILES_WRITTEN, "trireme_checkpoint_files_written_total", "States written to files.", "")     \
    X(FILES_EVICTED, "trireme_checkpoint_files_evicted_total", "Files removed for room.", "")      \
    X(FILES_FAILED, "trireme_checkpoint_files_failed_total", "Files that could not be written.",   \
      "")                                                                                          \
    X(FILES_LEFT_OUT, "trireme_checkpoint_files_left_out_total",                                   \
      "States not written: too many were waiting.", "")                                            \
    X(FILES_DAMAGED, "trireme_checkpoint_files_damaged_total",                                     \
      "Files removed because they could not be believed.", "")                                     \
    X(FILE_BYTES_WRITTEN, "trireme_checkpoint_written_bytes_total", "Bytes of states written.",    \
      "")                                                                                          \
    X(FILE_BYTES_READ, "trireme_checkpoint_read_bytes_total", "Bytes of states read back.", "")    \
    X(APART, "trireme_requests_prepared_apart_total",                                              \
      "Requests read, or their grammar compiled, on a thread of their own.", "")                   \
    X(GRAMMARS, "trireme_grammars_compiled_total", "Forms of answers compiled.", "")               \
    X(GRAMMAR_HITS, "trireme_grammar_cache_hits_total", "Forms that were still kept.", "")         \
    X(DRAFTS, "vllm:spec_decode_num_drafts_total", "Drafts (there is no speculation: 0).", "")     \
    X(DRAFTED, "vllm:spec_decode_num_draft_tokens_total", "Drafted tokens (0).", "")               \
    X(ACCEPTED, "vllm:spec_decode_num_accepted_tokens_total", "Accepted of them (0).", "")         \
    X(STEPS, "trireme_steps_total", "Forward passes.", "")                                         \
    X(PREFILLED, "trireme_computed_tokens_total", "Rows computed in forward passes.",              \
      ",phase=\"prefill\"")                                                                        \
    X(DECODED, "trireme_computed_tokens_total", "", ",phase=\"decode\"")                           \
    X(PREFILL_S, "trireme_engine_seconds_total", "Time of forward passes and sampling.",           \
      ",phase=\"prefill\"")                                                                        \
    X(DECODE_S, "trireme_engine_seconds_total", "", ",phase=\"decode\"")                           \
    X(SAMPLE_S, "trireme_engine_seconds_total", "", ",phase=\"sample\"")                           \
    X(EXPERT_HITS, "trireme_expert_cache_hits_total", "Experts found in RAM.", "")                 \
    X(EXPERT_MISSES, "trireme_expert_cache_misses_total", "Experts read from a drive.", "")        \
    X(EXPERT_BYTES, "trireme_disk_read_bytes_total", "Bytes of experts read from drives.", "")     \
    X(EXPERT_EVICTIONS, "trireme_expert_evictions_total", "Experts dropped from RAM.", "")         \
    X(EXPERT_WASTED, "trireme_expert_wasted_prefetches_total", "Read ahead, dropped unused.", "")  \
    X(EXPERT_WAIT_S, "trireme_expert_wait_seconds_total", "Time steps stood still for a drive.",   \
      "")                                                                                          \
    X(EXPERT_READ_S, "trireme_expert_reading_seconds_total", "Time with a read in flight.", "")

#define GAUGES(X)                                                                                  \
    X(RUNNING, "vllm:num_requests_running", "Requests being computed.", "")                        \
    X(WAITING, "vllm:num_requests_waiting", "Requests waiting for a slot.", "")                    \
    X(CACHE_USE, "vllm:kv_cache_usage_perc", "Share of all slots' tokens in use, 0 to 1.", "")     \
    X(CACHE_USE_OLD, "vllm:gpu_cache_usage_perc", "The same (older name).", "")                    \
    X(STEP_AGE, "trireme_step_age_seconds", "Since the last step while something runs, or 0.", "") \
    X(PREPARING, "trireme_requests_preparing", "Long prompts being read and encoded.", "")         \
    X(GRAMMARS_KEPT, "trireme_grammars_kept", "Compiled forms of answers that are kept.", "")      \
    X(EXPERT_SLOTS, "trireme_expert_slots", "Experts that fit into RAM.", "")                      \
    X(EXPERT_RECORDS, "trireme_expert_records", "Experts there are.", "")                          \
    X(CHECKPOINTS, "trireme_checkpoints", "States kept for reuse now.", "")                        \
    X(CHECKPOINT_BYTES, "trireme_checkpoint_bytes", "Their memory.", "")                           \
    X(FILES, "trireme_checkpoint_files", "States kept in files.", "")                              \
    X(FILE_BYTES, "trireme_checkpoint_file_bytes", "Their size.", "")                              \
    X(ROOM, "trireme_state_room_bytes", "Memory for tokens of all slots.", "")                     \
    X(ROOM_USED, "trireme_state_room_used_bytes", "Of it, promised to requests or kept.", "")      \
    X(CONNECTIONS, "trireme_http_connections", "Open connections.", "")                            \
    X(MEMORY_CEILING, "trireme_memory_ceiling_bytes", "The memory budget.", "")                    \
    X(RSS, "process_resident_memory_bytes", "Resident memory.", NULL)                              \
    X(FDS, "process_open_fds", "Open file descriptors.", NULL)                                     \
    X(START, "process_start_time_seconds", "Start, in seconds of the epoch.", NULL)

#endif
