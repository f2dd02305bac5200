#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stage 2: trains the student on the dialogues of stage 1.

Takes up new shards as they come. Stop it at any time: it goes on from its
checkpoint. The learning rate falls to its end over --tokens, so give the number
that will be reached; a later run with a larger number warms up again.
"""

import argparse
import collections
import math
import pathlib
import random
import sys
import time

import numpy as np
import torch

import dialogues as data
import loss as losses
import replay
import student as students


def frequent_tokens(shards, size, vocab_size):
    """The `size` most frequent tokens of answers; ties and gaps by id."""
    counts = np.zeros(vocab_size, np.int64)
    for shard in shards:
        for dialogue in data.read_shard(shard):
            np.add.at(counts, dialogue.tokens[dialogue.prompt:], 1)
            # What the target holds likely counts, even where it was not drawn.
            likely = dialogue.top_logprobs[:, :4] > math.log(0.05)
            np.add.at(counts, dialogue.top_ids[:, :4][likely], 1)
    order = np.argsort(-counts, kind="stable")[:size]
    covered = counts[order].sum() / max(counts.sum(), 1)
    print(f"head: {size} tokens cover {covered:.4f} of what occurs")
    return torch.from_numpy(np.sort(order).astype(np.int64))


def learning_rate(seen, arguments):
    warm = min(1.0, (seen - arguments.warm_from + 1) / arguments.warm_tokens)
    share = min(1.0, seen / arguments.tokens)
    return warm * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * share)))


def optimizers(model, arguments):
    """Muon for the layers' matrices, AdamW for head and norms."""
    matrices = [p for p in model.layers.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    return [
        torch.optim.Muon(matrices, lr=arguments.matrix_rate, momentum=0.95,
                         weight_decay=0.05, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([{"params": [model.head]},
                           {"params": norms, "weight_decay": 0.0}],
                          lr=arguments.head_rate, betas=(0.9, 0.95),
                          weight_decay=0.01),
    ]


class Training:
    """Student, optimizers and how far they are."""

    def __init__(self, arguments):
        self.arguments = arguments
        target = students.ModelFile(arguments.target)
        shards = data.shards(arguments.data)
        if len(shards) < 2:
            sys.exit("--data: needs at least two shards, one to look at")
        self._path = pathlib.Path(arguments.checkpoint)
        state = (torch.load(self._path, weights_only=True)
                 if self._path.exists() else None)
        if state:
            layers, head = state["layers"], state["model"]["head_tokens"]
        else:
            layers = [int(i) for i in arguments.layers.split(",")]
            head = frequent_tokens(shards[1:], arguments.head_tokens,
                                   target.config.vocab_size)
        self.layers = layers
        self.model = students.Student(target, layers, head)
        self.optimizers = optimizers(self.model, arguments)
        self.rates = [g["lr"] for o in self.optimizers for g in o.param_groups]
        self.loss = losses.TruncatedCrossEntropy(
            head, target.config.vocab_size, arguments.greedy_weight)
        # The first shard is never trained on.
        self.held_out = data.read_shard(shards[0])
        self._copy_source = data.read_shard(shards[1])
        self._head_list = head.tolist()
        self.seen, self.steps, self.epoch = 0, 0, 0
        if state:
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"]):
                optimizer.load_state_dict(saved)
            self.seen, self.steps = state["seen"], state["steps"]
            self.epoch = state["epoch"] + 1
        arguments.warm_from = self.seen

    def save(self):
        temporary = self._path.with_suffix(".tmp")
        torch.save({"layers": self.layers, "model": self.model.state_dict(),
                    "optimizers": [o.state_dict() for o in self.optimizers],
                    "seen": self.seen, "steps": self.steps,
                    "epoch": self.epoch}, temporary)
        temporary.rename(self._path)

    def copies(self):
        """A batch that teaches copying."""
        length = 512
        return data.copying(self._copy_source, self._head_list,
                            self.arguments.positions // length, length,
                            self.steps)

    def batch_loss(self, group):
        batch = data.make_batch(group)
        with torch.autocast("cpu", torch.bfloat16):
            hidden = self.model(batch.tokens)[batch.has_target]
        return self.loss(hidden, self.model.head, batch), hidden, batch

    def step(self, groups):
        rate = learning_rate(self.seen, self.arguments)
        scales = iter(self.rates)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * next(scales)
            optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for group in groups:
            value, _, batch = self.batch_loss(group)
            (value / len(groups)).backward()
            total += value.item() / len(groups)
            self.seen += len(batch.top_ids)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer in self.optimizers:
            optimizer.step()
        self.steps += 1
        return total

    @torch.no_grad()
    def look(self):
        """Loss and greedy agreement on the held-out shard."""
        total, agreed, count = 0.0, 0, 0
        groups = data.batches(self.held_out, 8192, self.arguments.max_length, 0)
        for group in groups[:12]:
            value, hidden, batch = self.batch_loss(group)
            best = (hidden @ self.model.head.T.to(hidden.dtype)).argmax(-1)
            agreed += (self.model.head_tokens[best] ==
                       batch.top_ids[:, 0]).sum().item()
            total += value.item() * len(batch.top_ids)
            count += len(batch.top_ids)
        return (f"held out: cross-entropy {total / count:.4f}, "
                f"best token agrees {agreed / count:.4f}")

    def epoch_groups(self):
        """Batches of all shards that are there now, but the first."""
        paths = data.shards(self.arguments.data)[1:]
        random.Random(self.epoch).shuffle(paths)
        for first in range(0, len(paths), 8):
            block = [d for p in paths[first:first + 8]
                     for d in data.read_shard(p)]
            yield from data.batches(block, self.arguments.positions,
                                    self.arguments.max_length,
                                    self.epoch * 1000 + first)


def run(arguments):
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    training = Training(arguments)
    texts = replay.read_texts(arguments.texts) if arguments.texts else []
    print(f"start: {training.seen} tokens seen; {training.look()}", flush=True)
    begin = shown = saved = time.monotonic()
    first_seen, recent, pending = training.seen, collections.deque(maxlen=50), []
    copied = collections.deque(maxlen=10)
    while training.seen < arguments.tokens:
        for group in training.epoch_groups():
            pending.append(group)
            if len(pending) < arguments.accumulate:
                continue
            recent.append(training.step(pending))
            pending = []
            if training.steps % arguments.copy_every == 0:
                copied.append(training.step([training.copies()]))
            now = time.monotonic()
            if now - shown > arguments.show_seconds:
                shown = now
                rate = (training.seen - first_seen) / (now - begin)
                left = (arguments.tokens - training.seen) / rate / 60
                print(f"step {training.steps}: {training.seen / 1e6:.2f} of "
                      f"{arguments.tokens / 1e6:.2f} M tokens, epoch "
                      f"{training.epoch}, loss {sum(recent) / len(recent):.4f}"
                      f" (copying {sum(copied) / max(1, len(copied)):.4f})"
                      f", {rate:.0f} token/s, {left:.0f} minutes left",
                      flush=True)
            if now - saved > arguments.save_seconds:
                saved = now
                training.save()
                print(training.look(), flush=True)
                if texts:
                    print(replay.report(training.model, texts, 4), flush=True)
            if training.seen >= arguments.tokens:
                break
        training.epoch += 1
    training.save()
    print(training.look())
    if texts:
        print(replay.report(training.model, texts, 4))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", required=True, help="the target's GGUF file")
    parser.add_argument("--data", required=True, help="folder of write.py")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--texts", help="JSON lines to replay now and then")
    parser.add_argument("--layers", default="0,1,29",
                        help="the target's layers to begin with")
    parser.add_argument("--head_tokens", type=int, default=9216)
    parser.add_argument("--tokens", type=float, default=20e6,
                        help="answer tokens to train on, repeats included")
    parser.add_argument("--warm_tokens", type=float, default=2e5)
    parser.add_argument("--positions", type=int, default=8192,
                        help="positions in a batch")
    parser.add_argument("--accumulate", type=int, default=1,
                        help="batches in a step")
    parser.add_argument("--copy_every", type=int, default=8,
                        help="a step on copying after so many others")
    parser.add_argument("--max_length", type=int, default=1024,
                        help="longer dialogues are left out")
    parser.add_argument("--matrix_rate", type=float, default=1.5e-3)
    parser.add_argument("--head_rate", type=float, default=6e-4)
    parser.add_argument("--greedy_weight", type=float, default=0.25)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show_seconds", type=float, default=30)
    parser.add_argument("--save_seconds", type=float, default=600)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
