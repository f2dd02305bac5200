#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tokenizers of real size, and what the original libraries make of some 3,400 texts with them, for the test
hf_real_test, which is skipped without them:

  make_real_tokenizers.py FOLDER [gemma.gguf]
  SPECWIRE_REAL_TOKENIZERS=FOLDER build/release/tests/hf_real_test

FOLDER/NAME has tokenizer.json and tokenizer_config.json, or tokenizer.gguf, and recognised.json and as_text.json: the
ids of each text of FOLDER/texts.json, special tokens recognised and not. Vocabularies: Mistral's (SentencePiece itself
is the reference for the GGUF files; `tokenizers` for the same as converted, in each of three forms), Tekken, and that
of Gemma 3 where its GGUF file is given. They are not in the tree: they take some 70 MB.

Needs, from PyPI:
  pip install tokenizers==0.23.3 gguf sentencepiece protobuf
  pip install --no-deps mistral-common       (has the vocabularies)
"""

import base64
import importlib.util
import json
import pathlib
import random
import sys

import gguf
import sentencepiece
from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers import decoders, models, normalizers, pre_tokenizers

import make_hf_tokenizers as small

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
SPACE = small.SPACE


def texts():
    rng = random.Random(5)
    words = small.CORPUS.split()
    result = small.strings() + small.CORPUS.split("\n") + [small.CORPUS]
    for _ in range(1500):
        result.append("".join(rng.choice(small.UNITS + words) for _ in range(rng.randint(1, 30))))
        result.append(" ".join(rng.choice(words) for _ in range(rng.randint(1, 40))))
    return result


def merges_of(vocab, scores):
    """All ways to make a token of two, the best first, as converters write them."""
    merges = []
    for piece, score in scores.items():
        pairs = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        pairs = [pair for pair in pairs if pair[0] in vocab and pair[1] in vocab]
        pairs.sort(key=lambda pair: (vocab[pair[0]], vocab[pair[1]]))
        merges += [(left, right, score) for left, right in pairs]
    merges.sort(key=lambda merge: (-merge[2], len(merge[0]), len(merge[1])))
    return [(left, right) for left, right, _ in merges]


def spelled_spaces(vocab, merges, form, special, user_defined=()):
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if form == "gemma":
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    elif form == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE, prepend_scheme=form, split=False)
    if form != "gemma":
        steps.append(decoders.Strip(" ", 1, 0))
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in user_defined])
    return tokenizer


def write_folder(folder, tokenizer, config, rows):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=True)
    small.write(folder / "tokenizer_config.json", config)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    for name, as_text in (("recognised", False), ("as_text", True)):
        tokenizer.encode_special_tokens = as_text
        encoded = tokenizer.encode_batch(rows, add_special_tokens=False)
        small.write(folder / f"{name}.json", [encoding.ids for encoding in encoded])
    print(folder.name, tokenizer.get_vocab_size(), "tokens")


def type_of(model, i):
    for kind, is_kind in ((UNKNOWN, model.is_unknown), (CONTROL, model.is_control), (BYTE, model.is_byte)):
        if is_kind(i):
            return kind
    return UNUSED if model.is_unused(i) else NORMAL


def write_gguf(folder, model, rows):
    """SentencePiece's own model as GGUF; it knows no special tokens in a text."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = range(model.vocab_size())
    writer = gguf.GGUFWriter(folder / "tokenizer.gguf", "llama")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([model.id_to_piece(i) for i in ids])
    writer.add_token_scores([model.get_score(i) for i in ids])
    writer.add_token_types([type_of(model, i) for i in ids])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    small.write(folder / "as_text.json", [model.encode(text) for text in rows])
    print(folder.name, model.vocab_size(), "tokens")


def mistral(out, data, rows):
    for version in ("tokenizer.model.v1", "mistral_instruct_tokenizer_240323.model.v3"):
        model = sentencepiece.SentencePieceProcessor(model_file=str(data / version))
        write_gguf(out / ("mistral_gguf_" + version[-2:]), model, rows)
    pieces = {i: model.id_to_piece(i) for i in range(model.vocab_size())}
    vocab = {piece: i for i, piece in pieces.items()}
    scores = {piece: model.get_score(i) for i, piece in pieces.items() if type_of(model, i) == NORMAL}
    special = [piece for i, piece in pieces.items() if type_of(model, i) in (UNKNOWN, CONTROL)]
    merges = merges_of(vocab, scores)
    config = {"bos_token": "<s>", "eos_token": "</s>"}
    for form in ("prepend", "first", "always"):
        write_folder(out / ("mistral_" + form), spelled_spaces(vocab, merges, form, special), config, rows)


def gemma(out, path, rows):
    reader = gguf.GGUFReader(path)
    tokens, kinds, scores = (
        reader.fields["tokenizer.ggml." + name].contents() for name in ("tokens", "token_type", "scores")
    )
    # The converter to GGUF wrote spaces for U+2581 in user-defined tokens.
    tokens = [t.replace(" ", SPACE) if kind == USER_DEFINED else t for t, kind in zip(tokens, kinds)]
    vocab = {token: i for i, token in enumerate(tokens)}
    scored = {t: score for t, kind, score in zip(tokens, kinds, scores) if kind in (NORMAL, USER_DEFINED)}
    special = [t for t, kind in zip(tokens, kinds) if kind == CONTROL]
    user_defined = [t for t, kind in zip(tokens, kinds) if kind == USER_DEFINED]
    tokenizer = spelled_spaces(vocab, merges_of(vocab, scored), "gemma", special, user_defined)
    write_folder(out / "gemma", tokenizer, {"bos_token": "<bos>", "eos_token": "<eos>"}, rows)


def tekken(out, data, rows):
    source = json.loads((data / "tekken_240911.json").read_text(encoding="utf-8"))
    num_special = source["config"]["default_num_special_tokens"]
    size = source["config"]["default_vocab_size"] - num_special
    alphabet = {}
    stand_in = 256
    for byte in range(256):
        alone = 33 <= byte < 127 or 161 <= byte < 173 or byte >= 174
        alphabet[byte] = chr(byte if alone else stand_in)
        stand_in += not alone
    ranks = {base64.b64decode(v["token_bytes"]): v["rank"] for v in source["vocab"][:size]}

    def spell(token):
        return "".join(alphabet[byte] for byte in token)

    merges = []
    for token, rank in ranks.items():
        pairs = [(token[:i], token[i:]) for i in range(1, len(token))]
        pairs = [pair for pair in pairs if pair[0] in ranks and pair[1] in ranks]
        pairs.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [(rank, spell(left), spell(right)) for left, right in pairs]
    merges.sort(key=lambda merge: merge[0])
    names = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + [f"<SPECIAL_{i}>" for i in range(5, num_special)]
    vocab = {name: i for i, name in enumerate(names)} | {spell(t): r + num_special for t, r in ranks.items()}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[m[1:] for m in merges], ignore_merges=True))
    split = pre_tokenizers.Split(Regex(small.TEKKEN_PATTERN), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, normalized=False) for name in names])
    write_folder(out / "tekken", tokenizer, {"bos_token": "<s>", "eos_token": "</s>"}, rows)


def main():
    out = pathlib.Path(sys.argv[1])
    package = importlib.util.find_spec("mistral_common")
    data = pathlib.Path(package.submodule_search_locations[0]) / "data"
    rows = texts()
    small.write(out / "texts.json", rows)
    mistral(out, data, rows)
    tekken(out, data, rows)
    if len(sys.argv) > 2:
        gemma(out, sys.argv[2], rows)


if __name__ == "__main__":
    main()
