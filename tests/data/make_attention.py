#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes attention.json: attention weights of the default model, computed in
float64 with numpy from the file's tensors alone.

    make_attention.py models/SmolLM2-135M-Instruct.Q4_1.gguf > attention.json
"""

import json
import struct
import sys

import numpy as np

# "The cat sat on the mat."
IDS = [504, 2644, 2643, 335, 260, 1171, 30]
LAYERS = (0, 13, 29)
F32, Q4_1, Q8_0 = 0, 3, 8
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "B",
           10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def number(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize("<" + kind)
        return value

    def text(self):
        size = self.number("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner = self.number("I")
            return [self.value(inner) for _ in range(self.number("Q"))]
        return self.number(SCALARS[kind])


def read(path):
    """(metadata, tensors): tensors as float64 matrices, rows first."""
    reader = Reader(open(path, "rb").read())
    assert reader.data[:4] == b"GGUF"
    reader.at = 8
    num_tensors, num_entries = reader.number("Q"), reader.number("Q")
    metadata = {}
    for _ in range(num_entries):
        key = reader.text()
        metadata[key] = reader.value(reader.number("I"))
    places = []
    for _ in range(num_tensors):
        name = reader.text()
        shape = [reader.number("Q") for _ in range(reader.number("I"))]
        places.append((name, shape, reader.number("I"), reader.number("Q")))
    base = -(-reader.at // 32) * 32
    return metadata, {
        name: tensor(reader.data, shape, kind, base + offset)
        for name, shape, kind, offset in places}


def tensor(data, shape, kind, offset):
    count = int(np.prod(shape))
    if kind == F32:
        values = np.frombuffer(data, "<f4", count, offset).astype(np.float64)
    else:
        size = {Q4_1: 20, Q8_0: 34}[kind]
        blocks = np.frombuffer(data, np.uint8, count // 32 * size, offset)
        blocks = blocks.reshape(-1, size)
        half = np.ascontiguousarray(blocks[:, :2]).view("<f2")
        scale = half.astype(np.float64)
        if kind == Q8_0:
            values = scale * blocks[:, 2:].view(np.int8)
        else:
            least = np.ascontiguousarray(blocks[:, 2:4]).view("<f2")
            nibbles = np.concatenate(
                [blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
            values = scale * nibbles + least.astype(np.float64)
    return values.reshape(shape[::-1])


def norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * weight


def rotate(x, theta):
    """Pairs (2 i, 2 i + 1), as the file's rows are ordered. x [n, heads, d]."""
    n, _, dim = x.shape
    frequency = theta ** (-np.arange(0, dim, 2) / dim)
    angle = np.arange(n)[:, None] * frequency
    cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
    out = np.empty_like(x)
    out[..., 0::2] = x[..., 0::2] * cos - x[..., 1::2] * sin
    out[..., 1::2] = x[..., 1::2] * cos + x[..., 0::2] * sin
    return out


def attention(metadata, tensors):
    heads = metadata["llama.attention.head_count"]
    kv_heads = metadata["llama.attention.head_count_kv"]
    eps = metadata["llama.attention.layer_norm_rms_epsilon"]
    theta = metadata["llama.rope.freq_base"]
    n = len(IDS)
    x = tensors["token_embd.weight"][IDS]
    found = {}
    for layer in range(metadata["llama.block_count"]):
        def weight(name, number=layer):
            return tensors[f"blk.{number}.{name}.weight"]
        y = norm(x, weight("attn_norm"), eps)
        q = rotate((y @ weight("attn_q").T).reshape(n, heads, -1), theta)
        k = rotate((y @ weight("attn_k").T).reshape(n, kv_heads, -1), theta)
        v = (y @ weight("attn_v").T).reshape(n, kv_heads, -1)
        k = k.repeat(heads // kv_heads, axis=1)
        v = v.repeat(heads // kv_heads, axis=1)
        scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(q.shape[2])
        scores[:, np.triu_indices(n, 1)[0], np.triu_indices(n, 1)[1]] = -np.inf
        p = np.exp(scores - scores.max(axis=2, keepdims=True))
        p /= p.sum(axis=2, keepdims=True)
        if layer in LAYERS:
            found[layer] = p
        mixed = np.einsum("hij,jhd->ihd", p, v).reshape(n, -1)
        x = x + mixed @ weight("attn_output").T
        y = norm(x, weight("ffn_norm"), eps)
        gate = y @ weight("ffn_gate").T
        gated = gate / (1 + np.exp(-gate)) * (y @ weight("ffn_up").T)
        x = x + gated @ weight("ffn_down").T
    return found


def main():
    found = attention(*read(sys.argv[1]))
    print(json.dumps({
        "token_ids": IDS,
        "layers": [{"layer": layer, "weights": [round(float(w), 7) for w in
                                                p.reshape(-1)]}
                   for layer, p in found.items()]}))


if __name__ == "__main__":
    main()
