# SPDX-License-Identifier: Apache-2.0
"""OpenVINO GenAI on the same GGUF file, with its own prompt lookup."""

import importlib.metadata

import numpy as np
import openvino
import openvino_genai as genai

import worker

# What OpenVINO's own example of prompt lookup sets.
DRAFT_TOKENS = 5
LONGEST_GRAM = 3


def load():
    flags = worker.flags()
    scheduler = genai.SchedulerConfig()
    # The default keeps the blocks of earlier prompts. Then a repeated prompt
    # has no prompt to compute, and even plain text differs between repeats.
    scheduler.enable_prefix_caching = False
    # Grows as needed; a fixed size is slower.
    scheduler.cache_size = 0
    # The whole prompt in one pass.
    scheduler.max_num_batched_tokens = 4096
    options = {"scheduler_config": scheduler,
               "INFERENCE_NUM_THREADS": flags.threads}
    config = genai.GenerationConfig()
    config.do_sample = False
    config.ignore_eos = True
    config.apply_chat_template = False
    details = {"prefix cache": "off", "backend": "paged attention"}
    if flags.mode == "speculative":
        options["prompt_lookup"] = True
        config.num_assistant_tokens = DRAFT_TOKENS
        config.max_ngram_size = LONGEST_GRAM
        details = {"lookup":
                   f"up to {LONGEST_GRAM}-grams, {DRAFT_TOKENS} tokens"}
    pipeline = genai.LLMPipeline(flags.model, "CPU", **options)

    def run(prompt_ids, max_tokens):
        config.max_new_tokens = max_tokens
        ids = np.array([prompt_ids], dtype=np.int64)
        # Ids in, ids out, and no streamer: neither its tokenizer nor a call
        # into Python for each token is part of what is measured.
        result = pipeline.generate(
            genai.TokenizedInputs(openvino.Tensor(ids),
                                  openvino.Tensor(np.ones_like(ids))), config)
        tokens = [int(token) for token in result.tokens[0]]
        metrics = result.perf_metrics
        # Mean time of a token behind the first one, in ms, taken inside the
        # engine: the difference of the last and the first time stamp divided
        # by the tokens between them.
        generation_ms = metrics.get_tpot().mean * (len(tokens) - 1)
        return {"token_ids": tokens,
                "time_to_first_token_s": metrics.get_ttft().mean / 1000,
                "generation_s": generation_ms / 1000,
                "passes": len(metrics.raw_metrics.m_new_token_times)}

    version = importlib.metadata.version
    return run, {"openvino-genai": version("openvino-genai"),
                 "openvino": version("openvino")}, details


worker.serve(load)
