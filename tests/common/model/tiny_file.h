// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/model/ggml_types.h"
#include "tests/testing/gguf_writer.h"

namespace specwire {

// The tiny model's file as plain data, so that a test can change one thing and
// write it again.
struct TinyFile {
  struct Tensor {
    GgmlType type;
    std::vector<int64_t> shape;
    std::string data;
  };

  // Reads SPECWIRE_TINY_MODEL; a failure is a failed expectation and leaves it
  // empty.
  TinyFile();

  // The file's bytes.
  std::string Build() const;
  // Writes the file into the tests' temporary folder and returns its path.
  std::string Write(const std::string& name) const;

  // All metadata but the tokenizer's lists.
  std::map<std::string, int64_t> ints;
  std::map<std::string, float> floats;
  std::map<std::string, std::string> strings;
  // Of U32.
  std::map<std::string, std::vector<int64_t>> int_arrays;
  // Without tokens the file has none of these three lists.
  std::vector<std::string> tokens;
  std::vector<int64_t> token_types;
  std::vector<std::string> merges;
  std::map<std::string, Tensor> tensors;
};

}  // namespace specwire
