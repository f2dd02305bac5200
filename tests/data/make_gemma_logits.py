#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What Hugging Face transformers makes of gemma3-270m in float32: token ids, the
largest logits, and greedy texts with the distance between the two best logits.

  pip install torch transformers accelerate gguf sentencepiece protobuf
  tests/data/make_gemma_logits.py FOLDER/gemma3-270m.gguf \
      > tests/data/reference/gemma3_270m.json
"""

import json
import pathlib
import sys

import torch
import transformers

TEXTS = [
    "The capital of France is",
    "Once upon a time",
    "def fibonacci(n):\n    ",
    "Explain why the sky is blue in two sentences.",
    "1, 2, 3, 4, 5,",
    "Die Hauptstadt von Deutschland ist",
]
NEW_TOKENS = 32
# Longer than the window of 512.
LONG = "The quick brown fox jumps over the lazy dog, said number {}. "


def main():
  path = pathlib.Path(sys.argv[1])
  torch.set_num_threads(1)
  model = transformers.AutoModelForCausalLM.from_pretrained(
      path.parent, gguf_file=path.name, dtype=torch.float32).eval()
  tokenizer = transformers.AutoTokenizer.from_pretrained(
      path.parent, gguf_file=path.name)
  texts = TEXTS + ["".join(LONG.format(i) for i in range(48))]
  rows = []
  for text in texts:
    ids = tokenizer(text).input_ids
    row = {"text": text, "ids": ids, "greedy": [], "margins": []}
    cache = None
    step = torch.tensor([ids])
    for _ in range(NEW_TOKENS):
      with torch.no_grad():
        out = model(step, past_key_values=cache, use_cache=True)
      cache = out.past_key_values
      logits = out.logits[0, -1].float()
      top = logits.topk(5)
      if "top" not in row:
        row["top"] = top.indices.tolist()
        row["top_logits"] = [round(v, 5) for v in top.values.tolist()]
      row["greedy"].append(int(top.indices[0]))
      row["margins"].append(round(float(top.values[0] - top.values[1]), 5))
      step = torch.tensor([[row["greedy"][-1]]])
    rows.append(row)
    print(len(ids), tokenizer.decode(row["greedy"]), file=sys.stderr)
  json.dump(rows, sys.stdout, separators=(",", ":"))
  print()


if __name__ == "__main__":
  main()
