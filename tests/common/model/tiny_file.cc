// SPDX-License-Identifier: Apache-2.0
#include "tests/common/model/tiny_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "common/model/gguf.h"

namespace specwire {

TinyFile::TinyFile() {
  const auto opened = GgufFile::Open(SPECWIRE_TINY_MODEL);
  EXPECT_TRUE(opened.ok()) << opened.status();
  if (!opened.ok()) {
    return;
  }
  const GgufFile& file = **opened;
  for (const char* key : {"llama.block_count",
                          "llama.context_length",
                          "llama.embedding_length",
                          "llama.feed_forward_length",
                          "llama.attention.head_count",
                          "llama.attention.head_count_kv",
                          "llama.rope.dimension_count",
                          "tokenizer.ggml.bos_token_id",
                          "tokenizer.ggml.eos_token_id"}) {
    ints[key] =
        file.GetInt(key, 0, std::numeric_limits<int64_t>::max()).value();
  }
  for (const char* key :
       {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
    floats[key] = static_cast<float>(file.GetFloat(key, 0, 1e9).value());
  }
  for (const char* key : {"general.architecture",
                          "general.name",
                          "tokenizer.ggml.model",
                          "tokenizer.ggml.pre",
                          "tokenizer.chat_template"}) {
    strings[key] = std::string(file.GetString(key).value());
  }
  const auto texts = file.GetStringArray("tokenizer.ggml.tokens").value();
  for (const absl::string_view text : texts) {
    tokens.emplace_back(text);
  }
  const auto pairs = file.GetStringArray("tokenizer.ggml.merges").value();
  for (const absl::string_view pair : pairs) {
    merges.emplace_back(pair);
  }
  const auto types = file.GetIntArray("tokenizer.ggml.token_type").value();
  token_types.assign(types.begin(), types.end());
  for (const FileTensor& tensor : file.tensor_table().tensors()) {
    tensors[tensor.name] = {
        tensor.type,
        tensor.shape,
        std::string(tensor.data.begin(), tensor.data.end())};
  }
}

std::string TinyFile::Build() const {
  GgufWriter writer;
  for (const auto& [key, value] : ints) {
    writer.AddInt(key, GgufValueType::kUint32, value);
  }
  for (const auto& [key, value] : floats) {
    writer.AddFloat32(key, value);
  }
  for (const auto& [key, value] : strings) {
    writer.AddString(key, value);
  }
  for (const auto& [key, value] : int_arrays) {
    writer.AddIntArray(key, GgufValueType::kUint32, value);
  }
  if (!tokens.empty()) {
    writer.AddStringArray("tokenizer.ggml.tokens", tokens);
    writer.AddStringArray("tokenizer.ggml.merges", merges);
    writer.AddIntArray(
        "tokenizer.ggml.token_type", GgufValueType::kInt32, token_types);
  }
  for (const auto& [name, tensor] : tensors) {
    writer.AddTensor(name, tensor.type, tensor.shape, tensor.data);
  }
  return writer.Build();
}

std::string TinyFile::Write(const std::string& name) const {
  const std::string path = ::testing::TempDir() + "specwire_" + name + ".gguf";
  EXPECT_TRUE(WriteBytes(path, Build()));
  return path;
}

}  // namespace specwire
