# SPDX-License-Identifier: Apache-2.0
"""The loop of a program that runs one engine in a process of its own.

Flags: --model FILE --threads N --mode plain|speculative, and the engine's own.
Once ready, it writes {"ready": true, "versions": {...}, "details": {...}}; then
it answers each line {"prompt_ids", "max_tokens"} on standard input with
{"token_ids", "time_to_first_token_s", "generation_s", "passes"}, until the end
of the input. Each message is one line of JSON.
"""

import argparse
import json
import os
import sys


def flags(**extra):
    """Parsed flags; `extra`: name = type."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--mode", required=True)
    for name, kind in extra.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    return parser.parse_args()


def serve(load):
    """`load()` returns (run, versions, details); run(prompt_ids, max_tokens)
    returns an answer."""
    # The engines print where they like: what is meant for the caller goes to
    # a copy of standard output, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message):
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    run, versions, details = load()
    answer({"ready": True, "versions": versions, "details": details})
    for line in sys.stdin:
        request = json.loads(line)
        answer(run(request["prompt_ids"], request["max_tokens"]))
