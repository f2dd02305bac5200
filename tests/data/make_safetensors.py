#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes written.safetensors, a small file as the `safetensors` package (0.8.0)
writes it: every type that is read, metadata and padding.

    pip install safetensors==0.8.0 numpy
    python3 make_safetensors.py
"""

import pathlib

import numpy as np
from safetensors import TensorSpec, serialize_file


def main():
    # Eighths up to 16: exact in every type.
    values = np.arange(24, dtype="<f4") / 8 - 1
    wide = (values.view("<u4") >> 16).astype("<u2")
    tensors = {
        "model.norm.weight": ("float32", [24], values),
        "model.layers.0.mlp.down_proj.weight": ("float16", [4, 6],
                                                values.astype("<f2")),
        "model.embed_tokens.weight": ("bfloat16", [6, 4], wide),
        "scalar": ("float32", [], values[:1]),
        "none": ("float16", [0, 3], values[:0].astype("<f2")),
    }
    path = pathlib.Path(__file__).with_name("written.safetensors")
    # The arrays in `tensors` outlive the pointers.
    specs = {name: TensorSpec(dtype=dtype, shape=shape,
                              data_ptr=array.ctypes.data, data_len=array.nbytes)
             for name, (dtype, shape, array) in tensors.items()}
    serialize_file(specs, str(path), {"format": "pt"})


if __name__ == "__main__":
    main()
