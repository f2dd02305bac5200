# SPDX-License-Identifier: Apache-2.0
"""The dialogues that write.py kept, and batches of them."""

import dataclasses
import pathlib
import random

import numpy as np
import torch


@dataclasses.dataclass
class Dialogue:
    """One question and answer, of which the answer has targets."""
    tokens: np.ndarray  # uint16 [length]
    prompt: int  # tokens before the answer
    greedy: bool
    top_ids: np.ndarray  # uint16 [targets, candidates]
    top_logprobs: np.ndarray  # float16, the same shape
    # Places of the tokens that have targets; those of the answer if absent.
    places: list = None

    def target_places(self):
        if self.places is not None:
            return self.places
        return range(self.prompt, len(self.tokens))


@dataclasses.dataclass
class Batch:
    """Dialogues, padded to one length. Row r of the targets belongs to the
    r-th true entry of `has_target`."""
    tokens: torch.Tensor  # int64 [dialogues, positions]
    has_target: torch.Tensor  # bool [dialogues, positions]: the next is known
    top_ids: torch.Tensor  # int64 [targets, candidates]
    top_probs: torch.Tensor  # float32 [targets, candidates]
    greedy: torch.Tensor  # bool [targets]


def read_shard(path):
    with np.load(path) as data:
        arrays = {name: data[name] for name in data.files}
    dialogues, first = [], 0
    for i, prompt in enumerate(arrays["prompts"]):
        begin, end = arrays["starts"][i], arrays["starts"][i + 1]
        answers = end - begin - prompt
        rows = slice(first, first + answers)
        first += answers
        dialogues.append(Dialogue(
            tokens=arrays["tokens"][begin:end], prompt=int(prompt),
            greedy=arrays["temperatures"][i] == 0,
            top_ids=arrays["top_ids"][rows],
            top_logprobs=arrays["top_logprobs"][rows]))
    return dialogues


def shards(folder):
    return sorted(pathlib.Path(folder).glob("shard_*[0-9].npz"))


def make_batch(dialogues):
    length = max(len(d.tokens) for d in dialogues)
    tokens = np.zeros((len(dialogues), length), np.int64)
    has_target = np.zeros((len(dialogues), length), bool)
    for row, d in enumerate(dialogues):
        tokens[row, :len(d.tokens)] = d.tokens
        has_target[row, np.array(d.target_places(), np.int64) - 1] = True
    ids = np.concatenate([d.top_ids for d in dialogues])
    probs = np.exp(np.concatenate([d.top_logprobs for d in dialogues],
                                  dtype=np.float32))
    greedy = np.repeat([d.greedy for d in dialogues],
                       [len(d.top_ids) for d in dialogues])
    return Batch(*(torch.from_numpy(x) for x in (
        tokens, has_target, ids.astype(np.int64), probs, greedy)))


def batches(dialogues, max_positions, max_length, seed):
    """All dialogues once, in batches of like lengths and at most max_positions
    positions, padding included, in random order."""
    draw = random.Random(seed)
    kept = [d for d in dialogues if len(d.tokens) <= max_length]
    draw.shuffle(kept)
    groups = []
    for first in range(0, len(kept), 2048):
        group = []
        for d in sorted(kept[first:first + 2048], key=lambda d: len(d.tokens)):
            if group and len(d.tokens) * (len(group) + 1) > max_positions:
                groups.append(group)
                group = []
            group.append(d)
        if group:
            groups.append(group)
    draw.shuffle(groups)
    return groups


def copying(dialogues, head_tokens, count, length, seed):
    """`count` texts of `length` tokens, patched together from pieces of answers
    and of random tokens of which many occur again: only the places where a piece
    repeats have targets, so that there is nothing to learn from them but to look
    back and copy. That ability grows slowly from ordinary text alone, and texts
    that repeat themselves are where drafts are accepted most."""
    draw = random.Random(seed)
    candidates = dialogues[0].top_ids.shape[1]
    result = []
    for _ in range(count):
        pieces, tokens, known = [], [], []
        while len(tokens) < length:
            if pieces and draw.random() < 0.6:
                piece = draw.choice(pieces)
                piece = piece[draw.randrange(max(1, len(piece) // 2)):]
                # What is copied shows from the second token on at best.
                known += [len(tokens) + i for i in range(2, len(piece))]
            else:
                size = draw.randint(6, 64)
                if draw.random() < 0.3:
                    piece = draw.choices(head_tokens, k=size)
                else:
                    source = draw.choice(dialogues)
                    answer = source.tokens[source.prompt:].tolist()
                    first = draw.randrange(max(1, len(answer) - size))
                    piece = answer[first:first + size]
                pieces.append(piece)
            tokens += piece
        known = [place for place in known if place < length]
        top_ids = np.zeros((len(known), candidates), np.uint16)
        top_ids[:, 0] = [tokens[place] for place in known]
        top_logprobs = np.full((len(known), candidates), -np.inf, np.float16)
        top_logprobs[:, 0] = 0
        result.append(Dialogue(
            tokens=np.array(tokens[:length], np.uint16), prompt=0,
            places=known, greedy=False, top_ids=top_ids, top_logprobs=top_logprobs))
    return result
