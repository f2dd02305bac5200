// SPDX-License-Identifier: Apache-2.0
#pragma once

// The one list of metric names, of their label names and of histogram buckets.
// Names, kinds and meanings are vLLM's where it has the metric (with the prefix
// "specwire_" for "vllm:"). What a reply reports is counted before its last
// message is sent; no series repeats another's total.

namespace specwire::metric {

// Counters. Acceptance, as in SpeculationStats: steps that had draft tokens,
// draft tokens verified, of them accepted, and those by place in the pass
// (label kPosition).
inline constexpr char kNumDrafts[] = "specwire_spec_decode_num_drafts_total";
inline constexpr char kNumDraftTokens[] =
    "specwire_spec_decode_num_draft_tokens_total";
inline constexpr char kNumAcceptedTokens[] =
    "specwire_spec_decode_num_accepted_tokens_total";
inline constexpr char kNumAcceptedTokensPerPos[] =
    "specwire_spec_decode_num_accepted_tokens_per_pos_total";
// Draft tokens that were not verified, by label kReason: overlapped, stale,
// trimmed, unused.
inline constexpr char kNumUnverifiedTokens[] =
    "specwire_spec_decode_num_unverified_tokens_total";
// Commits behind which draft tokens were outstanding, by label kOutcome: hit
// (they still agreed), miss.
inline constexpr char kNumAheadCommits[] =
    "specwire_spec_decode_num_ahead_commits_total";
// Counter: verify passes, those without draft tokens included.
inline constexpr char kNumPasses[] = "specwire_spec_decode_num_passes_total";

// Counters. Tokens of prompts and of completions.
inline constexpr char kPromptTokens[] = "specwire_prompt_tokens_total";
inline constexpr char kGenerationTokens[] = "specwire_generation_tokens_total";
// Counter, by label kFinishedReason: requests that ended well.
inline constexpr char kRequestSuccess[] = "specwire_request_success_total";
// Counter, by label kCode: requests that failed, by status code.
inline constexpr char kRequestFailure[] = "specwire_request_failure_total";
// Counter, by label kReason: sequences that moved to another verifier.
inline constexpr char kRequestMigrations[] =
    "specwire_request_migrations_total";
// Counters. Sequences that a verifier made wait again to free their KV blocks;
// tokens looked up in its prefix cache, and of them those found.
inline constexpr char kNumPreemptions[] = "specwire_num_preemptions_total";
inline constexpr char kPrefixCacheQueries[] =
    "specwire_prefix_cache_queries_total";
inline constexpr char kPrefixCacheHits[] = "specwire_prefix_cache_hits_total";
// Counter, by label kStage: rows that an engine computed, of prompts (prefill),
// of steps (verify) or of drafts (draft). Its passes are the counts of
// kStepDuration; one with rows of prompts and of steps counts as verify.
inline constexpr char kNumRows[] = "specwire_engine_rows_total";

// Counter, by labels kMethod and kDirection (kRequest, kResponse): payload of
// the messages that were sent for one streaming method.
inline constexpr char kRpcBytes[] = "specwire_rpc_bytes_total";

// Gauges.
inline constexpr char kNumRequestsRunning[] = "specwire_num_requests_running";
inline constexpr char kNumRequestsWaiting[] = "specwire_num_requests_waiting";
// From 0 to 1.
inline constexpr char kKvCacheUsage[] = "specwire_kv_cache_usage_ratio";
inline constexpr char kKvCacheKept[] = "specwire_kv_cache_kept_ratio";
inline constexpr char kKvCacheBlocks[] = "specwire_kv_cache_blocks";
// By labels kRole and kState.
inline constexpr char kNodes[] = "specwire_nodes";
// Constant 1, by label kVersion.
inline constexpr char kBuildInfo[] = "specwire_build_info";

// Histograms, in seconds.
inline constexpr char kTimeToFirstToken[] =
    "specwire_time_to_first_token_seconds";
// One observation for each token: the pass's time divided by its tokens.
inline constexpr char kInterTokenLatency[] =
    "specwire_inter_token_latency_seconds";
inline constexpr char kE2eRequestLatency[] =
    "specwire_e2e_request_latency_seconds";
inline constexpr char kRequestQueueTime[] =
    "specwire_request_queue_time_seconds";
// From the first step to the first token, and from there to the last.
inline constexpr char kRequestPrefillTime[] =
    "specwire_request_prefill_time_seconds";
inline constexpr char kRequestDecodeTime[] =
    "specwire_request_decode_time_seconds";
// By label kStage: prefill, draft, network, verify, accept.
inline constexpr char kStepDuration[] = "specwire_step_duration_seconds";
// Histograms of sequences in a pass, of a verifier's and of a drafter's model.
inline constexpr char kVerifyBatchSize[] = "specwire_verify_batch_size";
inline constexpr char kDraftBatchSize[] = "specwire_draft_batch_size";
// Histograms of tokens in a request's prompt, and of those that were generated
// for a choice.
inline constexpr char kRequestPromptTokens[] = "specwire_request_prompt_tokens";
inline constexpr char kRequestGenerationTokens[] =
    "specwire_request_generation_tokens";

// Of every process, under the names that everybody uses.
inline constexpr char kProcessStartTime[] = "process_start_time_seconds";
inline constexpr char kProcessCpu[] = "process_cpu_seconds_total";
inline constexpr char kProcessResidentMemory[] =
    "process_resident_memory_bytes";
inline constexpr char kProcessOpenFds[] = "process_open_fds";
inline constexpr char kProcessMaxFds[] = "process_max_fds";

// Label names.
inline constexpr char kModelName[] = "model_name";
inline constexpr char kNodeRole[] = "node_role";
inline constexpr char kPosition[] = "position";
inline constexpr char kReason[] = "reason";
inline constexpr char kFinishedReason[] = "finished_reason";
inline constexpr char kCode[] = "code";
inline constexpr char kOutcome[] = "outcome";
inline constexpr char kStage[] = "stage";
inline constexpr char kRole[] = "role";
inline constexpr char kState[] = "state";
inline constexpr char kVersion[] = "version";
inline constexpr char kMethod[] = "method";
inline constexpr char kDirection[] = "direction";
// Values of kDirection.
inline constexpr char kRequest[] = "request";
inline constexpr char kResponse[] = "response";
// A name that peers give stands in a label only while there are few of them;
// all others together are this.
inline constexpr char kOther[] = "other";

// Upper bounds of buckets. Those of the time to the first token are vLLM's; the
// others are ours, finer where a small model on a CPU lives.
inline constexpr double kTimeToFirstTokenBuckets[] = {
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
    1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560};
inline constexpr double kInterTokenLatencyBuckets[] = {
    0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15,
    0.2,   0.3,    0.4,   0.5,    0.75, 1,     2.5,   5,    10,    20,  40};
inline constexpr double kRequestLatencyBuckets[] = {
    0.05, 0.1, 0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,
    15,   20,  30,  40,  50,  60, 120, 240, 480, 960, 1920};
inline constexpr double kStepDurationBuckets[] = {0.00005,
                                                  0.0001,
                                                  0.00025,
                                                  0.0005,
                                                  0.001,
                                                  0.0025,
                                                  0.005,
                                                  0.01,
                                                  0.025,
                                                  0.05,
                                                  0.1,
                                                  0.25,
                                                  0.5,
                                                  1,
                                                  2.5,
                                                  5};
inline constexpr double kBatchSizeBuckets[] = {
    1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

inline constexpr double kTokensBuckets[] = {1,
                                            2,
                                            5,
                                            10,
                                            20,
                                            50,
                                            100,
                                            200,
                                            500,
                                            1000,
                                            2000,
                                            5000,
                                            10000,
                                            20000,
                                            50000,
                                            100000};

}  // namespace specwire::metric
