#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stage 1: the target writes its own dialogues.

No data set is needed. Behind the bare header of a user's turn the target writes
a question; then it answers it, and every token of the answer is kept with the
target's most likely tokens there. Some questions begin with a few given words,
so that all kinds of tasks occur, and some are put together from texts that the
target wrote before, so that long contexts do.

Runs against a cluster (`specwire up`), and writes shards of DIALOGUES each.
Stop it at any time: a shard is kept when it is whole, and the next run goes on
behind the last one.
"""

import argparse
import asyncio
import collections
import json
import pathlib
import random
import sys
import time

import grpc
import numpy as np

import cluster
import openers

TOP = 20
# Answers are drawn at these temperatures, greedily most often: that is how
# such a model is used most, and where its text repeats itself.
TEMPERATURES = [0.0, 0.0, 0.0, 0.5, 0.8, 1.0]
SYSTEM = ("<|im_start|>system\nYou are a helpful AI assistant named SmolLM, "
          "trained by Hugging Face<|im_end|>\n")
USER = "<|im_start|>user\n"
ASSISTANT = "<|im_end|>\n<|im_start|>assistant\n"


class Writer:
    """Makes dialogues; a pool of earlier texts serves for later questions."""

    def __init__(self, connection, seed, max_tokens):
        self._cluster = connection
        self._random = random.Random(seed)
        self._max_tokens = max_tokens
        self._passages = collections.deque(maxlen=4000)

    def _request(self, prompt, temperature, max_tokens, logprobs):
        request = cluster.generation.GenerateRequest(text=prompt)
        request.sampling.temperature = temperature
        request.sampling.seed = self._random.getrandbits(62)
        request.stop.max_tokens = max_tokens
        request.speculation.enabled = False
        if logprobs:
            request.logprobs = TOP
        return request

    async def _question(self):
        draw = self._random
        if len(self._passages) > 50 and draw.random() < 0.35:
            return await self._about_passages()
        opener = draw.choice(openers.OPENERS) if draw.random() < 0.7 else ""
        return await self._finish_question(opener)

    async def _finish_question(self, opener):
        request = self._request(SYSTEM + USER + opener, 1.0, 160, False)
        request.sampling.top_p = 0.95
        return opener + (await self._cluster.generate(request)).text

    async def _about_passages(self):
        draw = self._random
        count = draw.choice([1, 1, 2, 3])
        passages = "\n\n".join(draw.sample(self._passages, count))
        kind = draw.random()
        if kind < 0.45:
            return draw.choice(openers.SUMMARIES) + passages
        question = await self._finish_question(draw.choice(openers.QUESTIONS))
        question = question.split("\n")[0]
        if kind < 0.75:
            return passages + "\n\n" + question
        return question + "\n\n" + passages

    async def dialogue(self):
        question = (await self._question()).strip()
        prompt = SYSTEM + USER + question + ASSISTANT
        temperature = self._random.choice(TEMPERATURES)
        answer = await self._cluster.generate(
            self._request(prompt, temperature, self._max_tokens, True))
        text = answer.text.strip()
        if len(text) > 300 and temperature > 0:
            self._passages.append(text[:2500])
        return answer, temperature


def save(path, dialogues):
    """Tokens one after the other, with where each dialogue and answer begins."""
    tokens, starts, prompts = [], [0], []
    ids, logprobs = [], []
    for answer, _ in dialogues:
        tokens += answer.prompt + answer.tokens
        starts.append(len(tokens))
        prompts.append(len(answer.prompt))
        ids += answer.top_ids
        logprobs += answer.top_logprobs
    temporary = path.with_suffix(".tmp.npz")
    np.savez(temporary, tokens=np.array(tokens, np.uint16),
             starts=np.array(starts, np.int32),
             prompts=np.array(prompts, np.int32),
             temperatures=np.array([t for _, t in dialogues], np.float16),
             top_ids=np.array(ids, np.uint16),
             top_logprobs=np.array(logprobs, np.float16))
    temporary.rename(path)
    return sum(len(answer.tokens) for answer, _ in dialogues)


async def check_target(connection, out):
    """Keeps what the target is beside the shards, which must all be its own."""
    model = await connection.model()
    target = {"name": model.name, "model_digest": model.model_digest,
              "vocabulary_fingerprint": model.vocabulary_fingerprint}
    path = out / "target.json"
    if path.exists() and json.loads(path.read_text()) != target:
        sys.exit(f"--out: {path} tells of another target than {model.name}")
    path.write_text(json.dumps(target, indent=2) + "\n")


async def run(arguments):
    out = pathlib.Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    first = len(list(out.glob("shard_*[0-9].npz")))
    if first >= arguments.shards:
        print(f"all {first} shards are there")
        return
    connection = cluster.Cluster(arguments.coordinator)
    await check_target(connection, out)
    writer = Writer(connection, arguments.seed * 100003 + first,
                    arguments.max_tokens)
    done = asyncio.Queue()
    failures = 0

    async def work():
        nonlocal failures
        while True:
            try:
                answer = await writer.dialogue()
                # A token whose distribution is not whole is of no use.
                if answer[0].tokens and all(
                        len(ids) == TOP for ids in answer[0].top_ids):
                    await done.put(answer)
            except grpc.aio.AioRpcError as error:
                failures += 1
                if failures > 1000:
                    await done.put(error)
                    return
                await asyncio.sleep(1)

    workers = [asyncio.create_task(work())
               for _ in range(arguments.concurrency)]
    total, begin = 0, time.monotonic()
    try:
        for shard in range(first, arguments.shards):
            dialogues = []
            while len(dialogues) < arguments.dialogues:
                item = await done.get()
                if isinstance(item, Exception):
                    raise item
                dialogues.append(item)
                if sys.stderr.isatty():
                    print(f"\rshard {shard}: {len(dialogues)}"
                          f"/{arguments.dialogues}", end="", file=sys.stderr)
            total += save(out / f"shard_{shard:04d}.npz", dialogues)
            rate = total / (time.monotonic() - begin)
            print(f"shard {shard + 1}/{arguments.shards}: {total} answer "
                  f"tokens in this run, {rate:.0f} a second", flush=True)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        await connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--coordinator", default="127.0.0.1:7070")
    parser.add_argument("--out", required=True, help="folder of the shards")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--dialogues", type=int, default=256,
                        help="dialogues in a shard")
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--max_tokens", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
