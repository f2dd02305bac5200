# SPDX-License-Identifier: Apache-2.0
"""llama.cpp's own batch decoding: several sequences, greedy, one pass for the
next token of all. Written on the low-level functions of its Python binding;
each pass is one llama_decode, what Python adds to it is well below 1 %."""

import ctypes
import time

import llama_cpp
import numpy as np

import worker
from llama_cpp_worker import system_info

# Tokens in one pass over prompts, llama.cpp's default.
PASS_TOKENS = 2048


class Batch:
    """A llama_batch that is filled token by token."""

    def __init__(self, capacity):
        self.batch = llama_cpp.llama_batch_init(capacity, 0, 1)

    def clear(self):
        self.batch.n_tokens = 0

    def add(self, token, position, sequence, wants_logits):
        batch, i = self.batch, self.batch.n_tokens
        batch.token[i] = token
        batch.pos[i] = position
        batch.n_seq_id[i] = 1
        batch.seq_id[i][0] = sequence
        batch.logits[i] = wants_logits
        batch.n_tokens = i + 1


class Sequences:
    """So many sequences in one context."""

    def __init__(self, flags):
        llama_cpp.llama_backend_init()
        model_options = llama_cpp.llama_model_default_params()
        self._model = llama_cpp.llama_model_load_from_file(
            flags.model.encode(), model_options)
        if not self._model:
            raise ValueError(f"cannot load {flags.model}")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = flags.sequences * flags.context
        options.n_batch = options.n_ubatch = PASS_TOKENS
        options.n_seq_max = flags.sequences
        options.n_threads = options.n_threads_batch = flags.threads
        # 0 is off, 1 on.
        options.flash_attn_type = flags.flash_attention
        # Each sequence attends to cells of its own, not to those of all behind
        # a mask: faster.
        options.kv_unified = False
        self._context = llama_cpp.llama_init_from_model(self._model, options)
        if not self._context:
            raise ValueError("cannot make a context")
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._num_tokens = llama_cpp.llama_vocab_n_tokens(
            llama_cpp.llama_model_get_vocab(self._model))
        self._batch = Batch(PASS_TOKENS)

    def clear(self):
        llama_cpp.llama_memory_clear(self._memory, True)

    def _decode(self):
        code = llama_cpp.llama_decode(self._context, self._batch.batch)
        if code != 0:
            raise ValueError(f"llama_decode returned {code}")

    def _best(self, num_rows):
        """The likeliest token of each row that asked for logits, in order."""
        rows = np.ctypeslib.as_array(
            ctypes.cast(llama_cpp.llama_get_logits(self._context),
                        ctypes.POINTER(ctypes.c_float)),
            (num_rows, self._num_tokens))
        return [int(token) for token in rows.argmax(axis=1)]

    def prefill(self, prompts):
        """The first token of each. Whole prompts share passes."""
        first, waiting = [], 0
        self._batch.clear()
        for sequence, ids in enumerate(prompts):
            if len(ids) > PASS_TOKENS:
                raise ValueError(f"a prompt has more than {PASS_TOKENS} tokens")
            if self._batch.batch.n_tokens + len(ids) > PASS_TOKENS:
                self._decode()
                first += self._best(waiting)
                self._batch.clear()
                waiting = 0
            for position, token in enumerate(ids):
                self._batch.add(token, position, sequence,
                                position == len(ids) - 1)
            waiting += 1
        self._decode()
        return first + self._best(waiting)

    def step(self, tokens, positions):
        """The next token of each."""
        self._batch.clear()
        for sequence, (token, position) in enumerate(zip(tokens, positions)):
            self._batch.add(token, position, sequence, True)
        self._decode()
        return self._best(len(tokens))


def load():
    flags = worker.flags(sequences=int, context=int, flash_attention=int)
    sequences = Sequences(flags)

    def run(prompts, max_tokens):
        sequences.clear()
        start = time.perf_counter()
        tokens = sequences.prefill(prompts)
        first = time.perf_counter()
        texts = [[token] for token in tokens]
        positions = [len(ids) for ids in prompts]
        for _ in range(max_tokens - 1):
            tokens = sequences.step(tokens, positions)
            positions = [position + 1 for position in positions]
            for text, token in zip(texts, tokens):
                text.append(token)
        end = time.perf_counter()
        return {"token_ids": texts,
                "decode_tokens": len(prompts) * (max_tokens - 1),
                "decode_s": end - first,
                "total_s": end - start}

    return (run, {"llama-cpp-python": llama_cpp.__version__},
            {"built with": system_info(),
             "flash attention": "on" if flags.flash_attention else "off"})


if __name__ == "__main__":
    worker.serve(load)
