#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny random Llama model as a GGUF file, for tests.

The model has SmolLM2's structure (byte-level BPE, tied head, chatml template)
at a size that computes in microseconds. Its weights are noise, scaled so that
greedy text wanders instead of repeating one token. Only the standard library
is used, and the file format is written out here once more, so the C++ reader is
checked against an independent writer.

Every tensor has a generator of its own, so changing one option leaves all other
tensors as they are: `--layers 2` gives the first two layers of `--layers 3`,
and `--noise 0.01` gives a model that mostly agrees with the one without, which
makes a drafter that is good but not perfect.

`--draft_head N` writes the same model as a draft model: without a tokenizer, and
with a head of its own for N tokens only, whose rows are the embedding's.

`--greedy N` also computes N greedy tokens in plain Python and prints their ids:
an oracle for engines.
"""

import argparse
import hashlib
import math
import random
import struct

WIDTH = 64
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 16
FEED_FORWARD = 128
EPSILON = 1e-5
ROPE_BASE = 10000.0

SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = """
Ġ t|Ġ a|h e|i n|r e|o n|Ġt he|e r|Ġ s|a t|e n|o u|Ġ w|i s|Ġ o|n d|e s|i t|Ġ c|o r
a n|Ġ b|Ġ f|in g|e d|Ġ p|a r|l e|Ġ m|Ġ in|a l|Ġt o|Ġa nd|Ġ d|Ġo f|a s|i c|Ġ h
i on|r o|l l|Ġ re|e l|o m|Ġ n|en t|Ġ is|Ġ y|Ġy ou|Ġ g|u t|Ġ l|s t|a m|Ġ on|Ġf or
i d|v e|Ġ I|Ġb e|Ġ it
""".strip().replace("\n", "|").split("|")
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content']"
    " + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\\n' }}"
    "{% endif %}")

NORMAL, CONTROL, UNUSED = 1, 3, 5
U32, I32, F32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10
TYPE_F32, TYPE_Q8_0 = 0, 8
ALIGNMENT = 32


def byte_spellings():
    """GPT-2's printable character for each byte."""
    plain = (list(range(ord("!"), ord("~") + 1)) +
             list(range(0xa1, 0xad)) + list(range(0xae, 0x100)))
    spellings = {}
    next_free = 256
    for byte in range(256):
        if byte in plain:
            spellings[byte] = chr(byte)
        else:
            spellings[byte] = chr(next_free)
            next_free += 1
    return [spellings[byte] for byte in range(256)]


def make_vocabulary(args):
    """Returns tokens, their types, and for each id the row that it stands for
    before permuting."""
    tokens = SPECIAL_TOKENS + byte_spellings()
    for merge in MERGES:
        left, right = merge.split(" ")
        assert left in tokens and right in tokens, merge
        assert left + right not in tokens, merge
        tokens.append(left + right)
    assert len(tokens) == 320, len(tokens)
    types = [CONTROL] * len(SPECIAL_TOKENS)
    types += [NORMAL] * (len(tokens) - len(types))
    order = list(range(len(tokens)))
    if args.permute_vocab:
        movable = order[len(SPECIAL_TOKENS):]
        random.Random(f"{args.seed}/permute").shuffle(movable)
        order[len(SPECIAL_TOKENS):] = movable
    tokens = [tokens[i] for i in order]
    for i in range(args.vocab_padding):
        tokens.append(f"[PAD{len(tokens)}]")
        types.append(UNUSED)
    return tokens, types, order


def fingerprint(tokens, types):
    """Of a vocabulary: SHA-256 over id, bytes and kind of each token in use."""
    def number(value):
        return struct.pack("<q", value)

    byte_of = {char: byte for byte, char in enumerate(byte_spellings())}
    digest = hashlib.sha256()
    for i, (token, kind) in enumerate(zip(tokens, types)):
        if kind == UNUSED:
            continue
        data = (token.encode() if kind == CONTROL else
                bytes(byte_of[char] for char in token))
        digest.update(number(i) + number(len(data)) + data +
                      number(int(kind == CONTROL)))
    return digest.hexdigest()


def gaussian_rows(args, name, rows, columns, deviation):
    generator = random.Random(f"{args.seed}/{name}")
    noise = random.Random(f"{args.seed}/{name}/noise")
    return [[generator.gauss(0, deviation) +
             (noise.gauss(0, args.noise) if args.noise > 0 else 0)
             for _ in range(columns)] for _ in range(rows)]


def vocabulary_rows(args, name, order, deviation):
    """Rows by id. Those of special and unused tokens are small, so that noise
    seldom says EOS. Those beyond the tokenizer are large, so that an engine
    which forgets to mask them is found out."""
    rows = gaussian_rows(args, name, len(order), WIDTH, deviation)
    for i in range(len(SPECIAL_TOKENS)):
        rows[i] = [0.4 * x for x in rows[i]]
    rows = [rows[i] for i in order]
    return (rows +
            gaussian_rows(args, name + "/unused", args.vocab_padding, WIDTH,
                          0.4 * deviation) +
            gaussian_rows(args, name + "/extra", args.extra_rows, WIDTH,
                          3 * deviation))


def head_token_ids(args, tokens):
    return sorted(random.Random(f"{args.seed}/head").sample(
        range(len(tokens)), args.draft_head))


def make_weights(args, order):
    """Name -> rows (a list of lists); norms are a single row."""
    def norm(name, middle=1.0):
        generator = random.Random(f"{args.seed}/{name}")
        return [[middle * generator.uniform(0.8, 1.2) for _ in range(WIDTH)]]

    kv = KV_HEADS * HEAD_DIM
    weights = {"token_embd.weight":
               vocabulary_rows(args, "token_embd", order, 0.2)}
    for layer in range(args.layers):
        prefix = f"blk.{layer}."
        weights[prefix + "attn_norm.weight"] = norm(prefix + "attn_norm")
        weights[prefix + "ffn_norm.weight"] = norm(prefix + "ffn_norm")
        for name, rows, columns, deviation in (
                ("attn_q", HEADS * HEAD_DIM, WIDTH, 0.2),
                ("attn_k", kv, WIDTH, 0.2),
                ("attn_v", kv, WIDTH, 0.15),
                ("attn_output", WIDTH, HEADS * HEAD_DIM, 0.15),
                ("ffn_gate", FEED_FORWARD, WIDTH, 0.2),
                ("ffn_up", FEED_FORWARD, WIDTH, 0.2),
                ("ffn_down", WIDTH, FEED_FORWARD, 0.08)):
            weights[prefix + name + ".weight"] = gaussian_rows(
                args, prefix + name, rows, columns, deviation)
    weights["output_norm.weight"] = norm("output_norm", 1.5)
    if args.untied:
        weights["output.weight"] = vocabulary_rows(args, "output", order, 0.2)
    return weights


# The file.


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, payload):
    return string(key) + struct.pack("<I", kind) + payload


def u32(key, value):
    return entry(key, U32, struct.pack("<I", value))


def f32(key, value):
    return entry(key, F32, struct.pack("<f", value))


def text(key, value):
    return entry(key, STRING, string(value))


def array(key, kind, payloads):
    return entry(key, ARRAY, struct.pack("<IQ", kind, len(payloads)) +
                 b"".join(payloads))


def metadata(args, tokens, types):
    if args.draft_head > 0:
        return shape(args, tokens) + [
            text("general.description", "The tiny model with a trimmed head."),
            text("specwire.draft.vocabulary_fingerprint",
                 fingerprint(tokens, types)),
            array("specwire.draft.head_token_ids", U32,
                  [struct.pack("<I", i) for i in head_token_ids(args, tokens)]),
            text("specwire.draft.target", "tiny"),
            text("specwire.draft.target_digest", "0" * 64),
            entry("specwire.draft.training_tokens", U64, struct.pack("<Q", 7)),
            u32("specwire.draft.training_steps", 5),
            text("specwire.draft.data", "noise"),
        ]
    return shape(args, tokens) + tokenizer(tokens, types)


def shape(args, tokens):
    return [
        text("general.architecture", "llama"),
        text("general.name", args.name),
        u32("general.alignment", ALIGNMENT),
        u32("llama.block_count", args.layers),
        u32("llama.context_length", args.context_length),
        u32("llama.embedding_length", WIDTH),
        u32("llama.feed_forward_length", FEED_FORWARD),
        u32("llama.attention.head_count", HEADS),
        u32("llama.attention.head_count_kv", KV_HEADS),
        f32("llama.attention.layer_norm_rms_epsilon", EPSILON),
        f32("llama.rope.freq_base", ROPE_BASE),
        u32("llama.rope.dimension_count", HEAD_DIM),
        u32("llama.vocab_size", len(tokens) + args.extra_rows),
    ]


def tokenizer(tokens, types):
    return [
        text("tokenizer.ggml.model", "gpt2"),
        text("tokenizer.ggml.pre", "smollm"),
        array("tokenizer.ggml.tokens", STRING, [string(t) for t in tokens]),
        array("tokenizer.ggml.token_type", I32,
              [struct.pack("<i", t) for t in types]),
        array("tokenizer.ggml.merges", STRING, [string(m) for m in MERGES]),
        u32("tokenizer.ggml.bos_token_id", 1),
        u32("tokenizer.ggml.eos_token_id", 2),
        entry("tokenizer.ggml.add_bos_token", BOOL, b"\0"),
        text("tokenizer.chat_template", CHAT_TEMPLATE),
    ]


def encode_f32(row):
    data = struct.pack(f"<{len(row)}f", *row)
    return data, list(struct.unpack(f"<{len(row)}f", data))


def encode_q8_0(row):
    """Blocks of a half-precision scale and 32 int8."""
    data, values = b"", []
    for start in range(0, len(row), 32):
        block = row[start:start + 32]
        packed = struct.pack("<e", max(abs(x) for x in block) / 127)
        scale = struct.unpack("<e", packed)[0]
        quants = [max(-127, min(127, round(x / scale))) for x in block]
        data += packed + struct.pack("<32b", *quants)
        values += [q * scale for q in quants]
    return data, values


def write_model(args, tokens, types, weights):
    """Writes the file and replaces `weights` by what it holds after
    rounding."""
    infos, data = [], b""
    for name, rows in weights.items():
        quantised = args.type == "Q8_0" and len(rows) > 1
        encode = encode_q8_0 if quantised else encode_f32
        encoded = [encode(row) for row in rows]
        weights[name] = [values for _, values in encoded]
        dims = [len(rows[0])] + ([len(rows)] if len(rows) > 1 else [])
        infos.append(string(name) + struct.pack("<I", len(dims)) +
                     b"".join(struct.pack("<Q", d) for d in dims) +
                     struct.pack("<IQ", TYPE_Q8_0 if quantised else TYPE_F32,
                                 len(data)))
        data += b"".join(payload for payload, _ in encoded)
        data += b"\0" * (-len(data) % ALIGNMENT)
    entries = metadata(args, tokens, types)
    header = (b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(entries)) +
              b"".join(entries) + b"".join(infos))
    header += b"\0" * (-len(header) % ALIGNMENT)
    with open(args.output, "wb") as file:
        file.write(header + data)


# The model in plain Python, in the order of the computation.


def multiply(rows, x):
    return [sum(w * v for w, v in zip(row, x)) for row in rows]


def rms_norm(x, weight):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + EPSILON)
    return [v * scale * w for v, w in zip(x, weight[0])]


def rotate(x, position):
    """Rotary embedding of neighbouring pairs, as GGUF's Llama files want it."""
    out = []
    for start in range(0, len(x), HEAD_DIM):
        for i in range(0, HEAD_DIM, 2):
            angle = position * ROPE_BASE ** (-i / HEAD_DIM)
            a, b = x[start + i], x[start + i + 1]
            out += [a * math.cos(angle) - b * math.sin(angle),
                    a * math.sin(angle) + b * math.cos(angle)]
    return out


def attend(query, keys, values):
    out = []
    for head in range(HEADS):
        own = query[head * HEAD_DIM:(head + 1) * HEAD_DIM]
        shared = head // (HEADS // KV_HEADS) * HEAD_DIM
        scores = [sum(a * b for a, b in zip(own, key[shared:])) /
                  math.sqrt(HEAD_DIM) for key in keys]
        top = max(scores)
        scores = [math.exp(score - top) for score in scores]
        total = sum(scores)
        out += [sum(p * value[shared + i] for p, value in zip(scores, values)) /
                total for i in range(HEAD_DIM)]
    return out


def add(x, y):
    return [a + b for a, b in zip(x, y)]


def logits(args, weights, cache, token, position):
    """Logits after `token`; `cache` holds each layer's keys and values."""
    x = weights["token_embd.weight"][token]
    for layer in range(args.layers):
        def w(name, prefix=f"blk.{layer}."):
            return weights[prefix + name + ".weight"]
        keys, values = cache[layer]
        h = rms_norm(x, w("attn_norm"))
        keys.append(rotate(multiply(w("attn_k"), h), position))
        values.append(multiply(w("attn_v"), h))
        query = rotate(multiply(w("attn_q"), h), position)
        x = add(x, multiply(w("attn_output"), attend(query, keys, values)))
        h = rms_norm(x, w("ffn_norm"))
        gated = [g / (1 + math.exp(-g)) * u for g, u in
                 zip(multiply(w("ffn_gate"), h), multiply(w("ffn_up"), h))]
        x = add(x, multiply(w("ffn_down"), gated))
    x = rms_norm(x, weights["output_norm.weight"])
    head = weights.get("output.weight", weights["token_embd.weight"])
    return multiply(head, x)


def greedy(args, weights, num_tokens, prompt, count):
    cache = [([], []) for _ in range(args.layers)]
    ids = list(prompt)
    position = 0
    while len(ids) < len(prompt) + count:
        row = logits(args, weights, cache, ids[position], position)[:num_tokens]
        position += 1
        if position == len(ids):
            ids.append(max(range(num_tokens), key=lambda i: (row[i], -i)))
    return ids[len(prompt):]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", required=True, help="the GGUF file")
    parser.add_argument("--name", default="tiny", help="general.name")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--context_length", type=int, default=256)
    parser.add_argument("--type", choices=("F32", "Q8_0"), default="F32",
                        help="type of the matrices; norms are always F32")
    parser.add_argument("--untied", action="store_true",
                        help="a head of its own")
    parser.add_argument("--vocab_padding", type=int, default=0,
                        help="tokens of type UNUSED behind the real ones")
    parser.add_argument("--extra_rows", type=int, default=0,
                        help="embedding rows beyond the tokenizer's tokens")
    parser.add_argument("--permute_vocab", action="store_true",
                        help="the same model with its ordinary ids shuffled")
    parser.add_argument("--draft_head", type=int, default=0, metavar="N",
                        help="a draft model, with N tokens in its head")
    parser.add_argument("--noise", type=float, default=0.0,
                        help="deviation of noise added to each matrix value")
    parser.add_argument("--greedy", type=int, default=0, metavar="N",
                        help="also print N greedy ids after --prompt")
    parser.add_argument("--prompt", default="1,84,104,101",
                        help="ids for --greedy, separated by commas")
    args = parser.parse_args()

    tokens, types, order = make_vocabulary(args)
    weights = make_weights(args, order)
    if args.draft_head > 0:
        weights["output.weight"] = [weights["token_embd.weight"][i]
                                    for i in head_token_ids(args, tokens)]
    write_model(args, tokens, types, weights)
    if args.greedy > 0:
        prompt = [int(i) for i in args.prompt.split(",")]
        print(*greedy(args, weights, len(tokens), prompt, args.greedy))


if __name__ == "__main__":
    main()
