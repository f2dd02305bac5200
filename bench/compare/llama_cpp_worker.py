# SPDX-License-Identifier: Apache-2.0
"""llama.cpp through its Python binding, with the binding's prompt lookup."""

import time

import llama_cpp
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding

import worker

CONTEXT = 4096


def system_info():
    """What it was compiled with: "AVX2 FMA ..."."""
    parts = llama_cpp.llama_print_system_info().decode().split("|")
    return " ".join(part.rpartition(":")[2].replace("= 1", "").strip()
                    for part in parts if "= 1" in part)


def load():
    flags = worker.flags(draft_tokens=int, flash_attention=int)
    options = {}
    if flags.mode == "speculative":
        # logits_all: the binding needs it to check drafts beyond its first
        # 512 positions.
        options = {"logits_all": True,
                   "draft_model": LlamaPromptLookupDecoding(
                       num_pred_tokens=flags.draft_tokens)}
    llama = llama_cpp.Llama(
        flags.model, n_ctx=CONTEXT, n_threads=flags.threads,
        n_threads_batch=flags.threads, verbose=False,
        flash_attn=bool(flags.flash_attention), **options)

    num_passes = 0
    evaluate = llama.eval

    def counted(tokens):
        nonlocal num_passes
        num_passes += 1
        evaluate(tokens)

    llama.eval = counted

    def run(prompt_ids, max_tokens):
        nonlocal num_passes
        num_passes = 0
        # Or it would keep what the last prompt had in common with this one.
        llama.reset()
        tokens, times = [], []
        start = time.perf_counter()
        # This generator never looks for EOS.
        for token in llama.generate(prompt_ids, temp=0.0):
            times.append(time.perf_counter())
            tokens.append(int(token))
            if len(tokens) == max_tokens:
                break
        return {"token_ids": tokens,
                "time_to_first_token_s": times[0] - start,
                "generation_s": times[-1] - times[0],
                "passes": num_passes}

    details = {"built with": system_info(), "KV cache": "float16",
               "flash attention": "on" if flags.flash_attention else "off"}
    if flags.mode == "speculative":
        details = {"lookup": f"up to 2-grams, {flags.draft_tokens} tokens"}
    return run, {"llama-cpp-python": llama_cpp.__version__}, details


if __name__ == "__main__":
    worker.serve(load)
