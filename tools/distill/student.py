# SPDX-License-Identifier: Apache-2.0
"""Target and student: a Llama-like transformer read from a GGUF file.

The student is a few layers of the target, the target's embedding as the shipped
file stores it (4 bits, frozen), and a head of its own over the target's most
frequent tokens.
"""

import dataclasses

import gguf
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

MATRICES = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up",
            "ffn_down"]
NORMS = ["attn_norm", "ffn_norm"]


@dataclasses.dataclass
class Config:
    """Shape of a model; the names are those of GGUF keys."""
    block_count: int
    context_length: int
    embedding_length: int
    feed_forward_length: int
    head_count: int
    head_count_kv: int
    rope_freq_base: float
    rms_epsilon: float
    vocab_size: int

    @property
    def head_size(self):
        return self.embedding_length // self.head_count


def round_trip(weights, kind):
    """float32 weights as a GGUF type stores them."""
    packed = gguf.quants.quantize(weights, kind)
    return gguf.quants.dequantize(packed, kind)


class ModelFile:
    """Tensors of a GGUF file, expanded to float32 when asked for."""

    def __init__(self, path):
        self._reader = gguf.GGUFReader(path)
        self._tensors = {t.name: t for t in self._reader.tensors}
        value = lambda key: self._reader.fields[key].contents()
        self.name = value("general.name")
        self.config = Config(
            block_count=value("llama.block_count"),
            context_length=value("llama.context_length"),
            embedding_length=value("llama.embedding_length"),
            feed_forward_length=value("llama.feed_forward_length"),
            head_count=value("llama.attention.head_count"),
            head_count_kv=value("llama.attention.head_count_kv"),
            rope_freq_base=value("llama.rope.freq_base"),
            rms_epsilon=value("llama.attention.layer_norm_rms_epsilon"),
            vocab_size=value("llama.vocab_size"))

    def value(self, key):
        return self._reader.fields[key].contents()

    def has(self, name):
        return name in self._tensors

    def tensor(self, name):
        """float32 [rows, columns] or [size]."""
        stored = self._tensors[name]
        values = gguf.quants.dequantize(stored.data, stored.tensor_type)
        return torch.from_numpy(np.array(values, np.float32))


class Rotation:
    """Rotary position embedding over neighbouring pairs, as GGUF orders them
    (Su et al. 2021, RoFormer)."""

    def __init__(self, config, length):
        size = config.head_size
        steps = torch.arange(0, size, 2).float() / size
        angles = (torch.arange(length).float()[:, None] *
                  config.rope_freq_base ** -steps)
        self._cos, self._sin = angles.cos(), angles.sin()  # [length, size / 2]

    def __call__(self, x):
        """x: [batch, heads, positions, size]."""
        length = x.shape[-2]
        cos, sin = self._cos[:length], self._sin[:length]
        even, odd = x[..., 0::2].float(), x[..., 1::2].float()
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos],
                           -1).flatten(-2).to(x.dtype)


class Layer(nn.Module):
    """One transformer block, begun as layer `index` of `source`."""

    def __init__(self, config, source, index):
        super().__init__()
        self._config = config
        prefix = f"blk.{index}."
        for name in MATRICES + NORMS:
            self.register_parameter(
                name, nn.Parameter(source.tensor(f"{prefix}{name}.weight")))

    def forward(self, hidden, rotation):
        config = self._config
        batch, length, width = hidden.shape

        def heads(x, count):
            return x.view(batch, length, count, config.head_size).transpose(1, 2)

        def norm(x, weight):
            return F.rms_norm(x, (width,), weight.to(x.dtype),
                              config.rms_epsilon)

        x = norm(hidden, self.attn_norm)
        q = rotation(heads(F.linear(x, self.attn_q), config.head_count))
        k = rotation(heads(F.linear(x, self.attn_k), config.head_count_kv))
        v = heads(F.linear(x, self.attn_v), config.head_count_kv)
        group = config.head_count // config.head_count_kv
        mixed = F.scaled_dot_product_attention(
            q, k.repeat_interleave(group, 1), v.repeat_interleave(group, 1),
            is_causal=True)
        mixed = mixed.transpose(1, 2).reshape(batch, length, width)
        hidden = hidden + F.linear(mixed, self.attn_output)
        x = norm(hidden, self.ffn_norm)
        gate = F.silu(F.linear(x, self.ffn_gate))
        return hidden + F.linear(gate * F.linear(x, self.ffn_up), self.ffn_down)


class Student(nn.Module):
    """The draft model.

    layers: indices of the target's layers that it begins with.
    head_tokens: the target's token ids that its head has, ascending.
    """

    def __init__(self, target, layers, head_tokens, max_length=2048):
        super().__init__()
        self.config = dataclasses.replace(target.config,
                                          block_count=len(layers))
        embedding = target.tensor("token_embd.weight")
        # Frozen, so training sees what the file will hold.
        self.embedding = torch.from_numpy(round_trip(
            embedding.numpy(), gguf.GGMLQuantizationType.Q4_0))
        self.layers = nn.ModuleList(
            Layer(self.config, target, index) for index in layers)
        self.output_norm = nn.Parameter(target.tensor("output_norm.weight"))
        self.head = nn.Parameter(embedding[head_tokens].clone())
        self.register_buffer("head_tokens", head_tokens)
        self._rotation = Rotation(self.config, max_length)

    def forward(self, tokens):
        """Final hidden states [batch, positions, width] of int64 tokens
        [batch, positions]."""
        hidden = F.embedding(tokens, self.embedding)
        if torch.is_autocast_enabled("cpu"):
            hidden = hidden.bfloat16()
        for layer in self.layers:
            hidden = layer(hidden, self._rotation)
        return F.rms_norm(hidden, (hidden.shape[-1],),
                          self.output_norm.to(hidden.dtype),
                          self.config.rms_epsilon)
