#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes ggml_blocks.json: tensor blocks and the floats that the `gguf` package
(0.19.0) expands them to (of blocks of 256 the digests of the floats), and
digests of some expanded tensors of the default model.

    pip install gguf==0.19.0
    python3 make_ggml_blocks.py ../../models/SmolLM2-135M-Instruct.Q4_1.gguf
"""

import hashlib
import json
import pathlib
import sys

import gguf
import numpy as np

TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q5_0", "Q5_1", "Q4_K", "Q5_K",
         "Q6_K"]
WITH_MINIMUM = ["Q4_1", "Q5_1", "Q4_K", "Q5_K"]
TENSORS = ["token_embd.weight", "blk.0.attn_q.weight", "blk.29.ffn_down.weight",
           "output_norm.weight"]
# Half-precision scales: zeros, the least and largest subnormals, the least
# normal, ordinary ones, the largest.
SCALES = [0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x8400,
          0x2e66, 0xae66, 0x3c00, 0xbc00, 0x1234, 0x9abc, 0x7bff, 0xfbff]
BLOCKS = len(SCALES)


def half(bits):
    return np.array([bits], dtype=np.uint16).view(np.uint8)


def digest(values):
    return hashlib.sha256(values.astype("<f4").tobytes()).hexdigest()


def blocks_of(name, random):
    if name == "F16":
        # Every exponent with both signs and some mantissas, all finite.
        bits = [sign << 15 | exponent << 10 | mantissa
                for exponent in range(31) for sign in (0, 1)
                for mantissa in (0, 1, 0x155, 0x3ff)]
        return np.array(bits, dtype=np.uint16).view(np.uint8)
    if name == "BF16":
        bits = [sign << 15 | exponent << 7 | mantissa
                for exponent in (0, 1, 2, 100, 126, 127, 128, 200, 253, 254)
                for sign in (0, 1) for mantissa in (0, 1, 0x55, 0x7f)]
        return np.array(bits, dtype=np.uint16).view(np.uint8)
    kind = gguf.GGMLQuantizationType[name]
    payload = gguf.GGML_QUANT_SIZES[kind][1] - 2 - 2 * (name in WITH_MINIMUM)
    rows = []
    for i, scale in enumerate(SCALES):
        parts = [half(scale)]
        if name in WITH_MINIMUM:
            parts.append(half(SCALES[(5 * i + 3) % BLOCKS]))
        bits = random.integers(0, 256, payload).astype(np.uint8)
        if name[1] in "56" or name[3] == "K":
            # The largest, the least and the most negative of every part.
            bits[:] = {13: 0xff, 14: 0x00, 15: 0x80}.get(i, bits)
        # A Q6_K block's scale comes last.
        parts.insert(0 if name == "Q6_K" else len(parts), bits)
        rows.append(np.concatenate(parts))
    return np.concatenate(rows)


def main():
    random = np.random.default_rng(1)
    golden = {"blocks": [], "tensors": []}
    for name in TYPES:
        data = blocks_of(name, random)
        values = gguf.dequantize(data, gguf.GGMLQuantizationType[name])
        entry = {"type": name, "data": data.tobytes().hex()}
        if name[3:] == "K":
            entry["sha256"] = [digest(block) for block in values.reshape(-1, 256)]
        else:
            entry["values"] = values.astype("<f4").tobytes().hex()
        golden["blocks"].append(entry)
    reader = gguf.GGUFReader(sys.argv[1])
    for tensor in reader.tensors:
        if tensor.name in TENSORS:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
            golden["tensors"].append({
                "name": tensor.name,
                "type": tensor.tensor_type.name,
                "shape": [int(d) for d in reversed(tensor.shape)],
                "sha256": digest(values)})
    path = pathlib.Path(__file__).with_name("ggml_blocks.json")
    path.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
