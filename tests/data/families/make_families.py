#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the small random models of tests/data/families and what Hugging Face
transformers computes with them.

Each family is a folder as transformers' own classes save it: config.json,
generation_config.json, safetensors, tokenizer.json, tokenizer_config.json. Beside
them golden.json has logits, arg-maxima and a greedy continuation in float32.

  pip install torch transformers safetensors tokenizers
  python3 tests/data/families/make_families.py

The output is committed; run this again only to change the models. Other versions
of torch give other last digits, which the test's bounds allow for.
"""

import json
import pathlib
import shutil

import tokenizers
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parent
VOCAB = 320
CONTEXT = 512
# Positions whose logits are kept, counted from 1: prompts of that many tokens.
LENGTHS = [1, 2, 17, 33, 64, 129, 257, 300]
NEW_TOKENS = 48

COMMON = dict(
    vocab_size=VOCAB,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT,
    bos_token_id=1,
    eos_token_id=2,
    pad_token_id=None,
)


def rope(theta, **more):
  """Rotary settings in the form of the installed release."""
  if "rope_parameters" in transformers.LlamaConfig().to_dict():
    parameters = dict(rope_type="default", rope_theta=theta)
    parameters.update(more)
    return dict(rope_parameters=parameters)
  settings = dict(rope_theta=theta)
  if more:
    settings["rope_scaling"] = more
  return settings


def gemma_rope(theta, local_theta):
  if "rope_parameters" in transformers.LlamaConfig().to_dict():
    return dict(rope_parameters={
        "full_attention": dict(rope_type="default", rope_theta=theta),
        "sliding_attention": dict(rope_type="default", rope_theta=local_theta),
    })
  return dict(rope_theta=theta, rope_local_base_freq=local_theta)


def families():
  """(name, configuration, type of the file's tensors, bytes of a shard)."""
  t = transformers
  yield ("llama2", t.LlamaConfig(**{**COMMON, "num_key_value_heads": 4},
                                 tie_word_embeddings=False, **rope(10000.0)),
         torch.float32, None)
  yield ("llama3", t.LlamaConfig(
      **COMMON, tie_word_embeddings=True, rms_norm_eps=1e-5,
      **rope(500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
             high_freq_factor=4.0, original_max_position_embeddings=64)),
         torch.bfloat16, 20000)
  yield ("smollm2", t.LlamaConfig(
      **{**COMMON, "hidden_size": 48, "num_attention_heads": 6,
         "num_key_value_heads": 3},
      tie_word_embeddings=True, rms_norm_eps=1e-5, **rope(100000.0)),
         torch.float16, None)
  yield ("mistral", t.MistralConfig(
      **COMMON, tie_word_embeddings=False, sliding_window=40, head_dim=16,
      **rope(10000.0)), torch.bfloat16, None)
  yield ("qwen2", t.Qwen2Config(
      **COMMON, tie_word_embeddings=True, **rope(1000000.0)),
         torch.float16, None)
  yield ("qwen2_window", t.Qwen2Config(
      **{**COMMON, "num_hidden_layers": 3}, tie_word_embeddings=True,
      use_sliding_window=True, sliding_window=50, max_window_layers=1,
      **rope(10000.0)), torch.bfloat16, None)
  yield ("qwen3", t.Qwen3Config(
      **COMMON, tie_word_embeddings=False, head_dim=24, **rope(1000000.0)),
         torch.bfloat16, None)
  yield ("gemma3", t.Gemma3TextConfig(
      **{**COMMON, "num_hidden_layers": 4, "num_key_value_heads": 1},
      head_dim=16, sliding_window=32, query_pre_attn_scalar=20,
      layer_types=["sliding_attention", "sliding_attention", "full_attention",
                   "sliding_attention"],
      **gemma_rope(1000000.0, 10000.0)), torch.float32, None)


def randomise(model, gemma):
  """Weights that keep sizes as they are, so that logits are of the size of
  real ones and every part shows in them."""
  with torch.no_grad():
    for name, weight in model.named_parameters():
      if name.endswith("bias"):
        weight.normal_(0, 0.5)
      elif weight.dim() == 1:
        weight.normal_(0 if gemma else 1, 0.2)
      elif "embed_tokens" in name:
        weight.normal_(0, 1)
      else:
        weight.normal_(0, weight.shape[1] ** -0.5)


def tokenizer():
  """Byte-level BPE as Llama 3 uses it, with 256 bytes and some merges."""
  t = tokenizers.Tokenizer(tokenizers.models.BPE(ignore_merges=True))
  t.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([
      tokenizers.pre_tokenizers.Split(
          tokenizers.Regex(
              r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
              r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
              r"|\s+"), "isolated"),
      tokenizers.pre_tokenizers.ByteLevel(False, use_regex=False),
  ])
  t.decoder = tokenizers.decoders.ByteLevel()
  text = [
      "the quick brown fox jumps over the lazy dog and then the other one",
      "a model that writes what another model has read is a model of it",
      "these are the words that are here so that there are pairs to merge",
  ]
  t.train_from_iterator(text, tokenizers.trainers.BpeTrainer(
      vocab_size=VOCAB, show_progress=False,
      special_tokens=["<unk>", "<s>", "</s>"],
      initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
  assert t.get_vocab_size() == VOCAB
  return transformers.PreTrainedTokenizerFast(
      tokenizer_object=t, bos_token="<s>", eos_token="</s>")


def rounded(values):
  return [float(f"{v:.6g}") for v in values]


def golden(model):
  generator = torch.Generator().manual_seed(11)
  tokens = torch.randint(3, VOCAB, (max(LENGTHS),), generator=generator)
  with torch.no_grad():
    logits = model(tokens[None]).logits[0].float()
    top = logits.topk(2, dim=-1)
    ids = tokens[:20].tolist()
    greedy, margins = [], []
    for _ in range(NEW_TOKENS):
      row = model(torch.tensor([ids])).logits[0, -1].float()
      best = row.topk(2)
      greedy.append(int(best.indices[0]))
      margins.append(float(best.values[0] - best.values[1]))
      ids.append(greedy[-1])
  return {
      "tokens": tokens.tolist(),
      "lengths": LENGTHS,
      "logits": [rounded(logits[n - 1].tolist()) for n in LENGTHS],
      "best": top.indices[:, 0].tolist(),
      "margins": rounded((top.values[:, 0] - top.values[:, 1]).tolist()),
      "greedy_prompt": tokens[:20].tolist(),
      "greedy": greedy,
      "greedy_margins": rounded(margins),
  }


def main():
  torch.set_num_threads(1)
  tok = tokenizer()
  for number, (name, config, dtype, shard) in enumerate(families()):
    torch.manual_seed(100 + number)
    config._attn_implementation = "eager"
    made = transformers.AutoModelForCausalLM.from_config(config)
    randomise(made, name == "gemma3")
    folder = OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    made = made.to(dtype)
    made.generation_config.eos_token_id = [2]
    made.save_pretrained(folder, max_shard_size=shard or "1GB")
    tok.save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    (folder / "golden.json").write_text(
        json.dumps(golden(model), separators=(",", ":")) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name}: {size} bytes, {sorted(f.name for f in folder.iterdir())}")


if __name__ == "__main__":
  main()
