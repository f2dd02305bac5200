#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a pass of a student on recorded texts, by exact greedy replay.

For quick looks during training; `acceptance_bench` does the same with the
exported file and the real drafter.
"""

import argparse
import collections
import json

import torch
import torch.nn.functional as F

import student as students

_CHAT = {"writing", "roleplay", "reasoning", "math", "coding", "extraction",
         "stem", "humanities"}


def read_texts(path):
    """Lines of {category, prompt_token_ids, token_ids}."""
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@torch.no_grad()
def drafts(model, tokens, count):
    """What the student drafts behind every prefix: [positions, count].

    One pass over the text, then a pass for each further token in which every
    position goes its own way over the text's keys and values and its own.
    """
    config = model.config
    length, width = len(tokens), config.embedding_length
    group = config.head_count // config.head_count_kv
    rotation = students.Rotation(config, length + count)
    hidden = F.embedding(torch.tensor(tokens), model.embedding)
    mask = torch.full((length, length), float("-inf")).triu(1)
    text, own = [], [[] for _ in model.layers]
    result = []

    def rotate(x, shift):
        padded = F.pad(x, (0, 0, shift, 0))
        return rotation(padded)[..., shift:, :]

    for step in range(count):
        for i, layer in enumerate(model.layers):
            def norm(x, weight):
                return F.rms_norm(x, (width,), weight, config.rms_epsilon)

            def heads(x, number):
                return x.view(length, number, config.head_size).transpose(0, 1)

            x = norm(hidden, layer.attn_norm)
            q = rotate(heads(F.linear(x, layer.attn_q), config.head_count),
                       step)
            k = rotate(heads(F.linear(x, layer.attn_k), config.head_count_kv),
                       step).repeat_interleave(group, 0)
            v = heads(F.linear(x, layer.attn_v),
                      config.head_count_kv).repeat_interleave(group, 0)
            if step == 0:
                text.append((k, v))
            else:
                own[i].append((k, v))
            scale = config.head_size ** -0.5
            scores = [q @ text[i][0].transpose(1, 2) * scale + mask]
            scores += [(q * key).sum(-1, keepdim=True) * scale
                       for key, _ in own[i]]
            weights = torch.cat(scores, -1).softmax(-1)
            mixed = weights[..., :length] @ text[i][1]
            for j, (_, value) in enumerate(own[i]):
                mixed += weights[..., length + j, None] * value
            mixed = mixed.transpose(0, 1).reshape(length, width)
            hidden = hidden + F.linear(mixed, layer.attn_output)
            x = norm(hidden, layer.ffn_norm)
            gate = F.silu(F.linear(x, layer.ffn_gate))
            hidden = hidden + F.linear(gate * F.linear(x, layer.ffn_up),
                                       layer.ffn_down)
        hidden = F.rms_norm(hidden, (width,), model.output_norm,
                            config.rms_epsilon)
        best = model.head_tokens[F.linear(hidden, model.head).argmax(-1)]
        result.append(best)
        hidden = F.embedding(best, model.embedding)
    return torch.stack(result, 1).tolist()


def replay(model, texts, run_length):
    """(tokens, passes) by category, and how often each place survived."""
    counts = collections.defaultdict(lambda: [0, 0])
    survived, rounds = [0] * run_length, 0
    for text in texts:
        prompt, completion = text["prompt_token_ids"], text["token_ids"]
        tokens = prompt + completion
        proposed = drafts(model, tokens, run_length)
        position = len(prompt)
        category = text["category"]
        category = "chat" if category in _CHAT else category
        while position < len(tokens):
            accepted = 0
            while (accepted < run_length and
                   position + accepted < len(tokens) - 1 and
                   proposed[position - 1][accepted] ==
                   tokens[position + accepted]):
                survived[accepted] += 1
                accepted += 1
            step = min(accepted + 1, len(tokens) - position)
            position += step
            rounds += 1
            for name in (category, "all"):
                counts[name][0] += step
                counts[name][1] += 1
    return counts, [s / max(rounds, 1) for s in survived]


def report(model, texts, run_length):
    counts, survival = replay(model, texts, run_length)
    figures = ", ".join(f"{name} {tokens / passes:.2f}"
                        for name, (tokens, passes) in sorted(counts.items()))
    places = " ".join(f"{s:.3f}" for s in survival)
    return f"tokens a pass at run length {run_length}: {figures}; survival {places}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--target", required=True, help="the target's GGUF file")
    parser.add_argument("--texts", required=True, help="JSON lines")
    parser.add_argument("--run_length", type=int, default=4)
    arguments = parser.parse_args()
    state = torch.load(arguments.checkpoint, weights_only=True)
    model = students.Student(students.ModelFile(arguments.target),
                             state["layers"], state["model"]["head_tokens"])
    model.load_state_dict(state["model"])
    print(report(model, read_texts(arguments.texts), arguments.run_length))


if __name__ == "__main__":
    main()
