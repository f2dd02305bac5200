#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stage 3: writes the student as a GGUF file that `draft_node` loads.

Layers and head are Q4_1, the embedding is Q4_0. There is no tokenizer inside:
the file carries the fingerprint of the target's vocabulary, and the head's map
to its ids.
"""

import argparse
import json
import os
import pathlib

import gguf
import torch

import student as students

_MOST_BYTES = 32 << 20
_TYPE = gguf.GGMLQuantizationType


def write_card(writer, model, state, source, arguments):
    config = model.config
    writer.add_name(f"{source['name']}-draft")
    writer.add_description(
        f"Draft model for {source['name']}: begun as its layers "
        f"{', '.join(map(str, state['layers']))}, trained on what it answers")
    writer.add_license(arguments.license)
    writer.add_block_count(config.block_count)
    writer.add_context_length(config.context_length)
    writer.add_embedding_length(config.embedding_length)
    writer.add_feed_forward_length(config.feed_forward_length)
    writer.add_head_count(config.head_count)
    writer.add_head_count_kv(config.head_count_kv)
    writer.add_rope_freq_base(config.rope_freq_base)
    writer.add_rope_dimension_count(config.head_size)
    writer.add_layer_norm_rms_eps(config.rms_epsilon)
    writer.add_vocab_size(config.vocab_size)
    key = "specwire.draft."
    writer.add_string(key + "vocabulary_fingerprint",
                      source["vocabulary_fingerprint"])
    writer.add_array(key + "head_token_ids", model.head_tokens.tolist())
    writer.add_string(key + "target", source["name"])
    writer.add_string(key + "target_digest", source["model_digest"])
    writer.add_uint64(key + "training_tokens", state["seen"])
    writer.add_uint32(key + "training_steps", state["steps"])
    writer.add_string(key + "data",
                      "dialogues that the target wrote itself behind the bare "
                      "header of a user's turn (tools/distill/write.py)")


def write_tensors(writer, model):
    def add(name, tensor, kind):
        values = tensor.detach().float().numpy()
        if kind == _TYPE.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, gguf.quants.quantize(values, kind),
                              raw_dtype=kind)

    add("token_embd.weight", model.embedding, _TYPE.Q4_0)
    for i, layer in enumerate(model.layers):
        for name in students.NORMS:
            add(f"blk.{i}.{name}.weight", getattr(layer, name), _TYPE.F32)
        for name in students.MATRICES:
            add(f"blk.{i}.{name}.weight", getattr(layer, name), _TYPE.Q4_1)
    add("output_norm.weight", model.output_norm, _TYPE.F32)
    add("output.weight", model.head, _TYPE.Q4_1)


def run(arguments):
    state = torch.load(arguments.checkpoint, weights_only=True)
    target = students.ModelFile(arguments.target)
    model = students.Student(target, state["layers"],
                             state["model"]["head_tokens"])
    model.load_state_dict(state["model"])
    source = json.loads((pathlib.Path(arguments.data) /
                         "target.json").read_text())
    temporary = arguments.out + ".tmp"
    writer = gguf.GGUFWriter(temporary, "llama")
    write_card(writer, model, state, source, arguments)
    write_tensors(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    size = os.path.getsize(temporary)
    if size > arguments.max_bytes:
        os.remove(temporary)
        raise SystemExit(f"the file would have {size} bytes, more than "
                         f"--max_bytes {arguments.max_bytes}: train with fewer "
                         "--layers or --head_tokens")
    os.replace(temporary, arguments.out)
    print(f"{arguments.out}: {size} bytes, {state['seen']} tokens seen in "
          f"{state['steps']} steps")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--target", required=True, help="the target's GGUF file")
    parser.add_argument("--data", required=True, help="folder of write.py")
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--out", required=True, help="the GGUF file")
    parser.add_argument("--license", default="apache-2.0")
    parser.add_argument("--max_bytes", type=int, default=_MOST_BYTES)
    run(parser.parse_args())


if __name__ == "__main__":
    main()
