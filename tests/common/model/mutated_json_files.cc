// SPDX-License-Identifier: Apache-2.0
// The JSON files of a model's folder, nearly right.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/model/hf_config.h"
#include "common/model/hf_tokenizer.h"
#include "common/text/tokenizer.h"
#include "tests/common/model/mutated_files.h"

namespace specwire {
namespace {

std::string ReadData(const std::string& name) {
  std::ifstream in(SPECWIRE_TEST_DATA "/" + name, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// Changes one file of a folder.
Folder Mutated(Folder files,
               Mutator& random,
               const std::vector<std::string>& words) {
  auto it = files.begin();
  std::advance(it, static_cast<long>(random.Below(files.size())));
  Mutator changed(
      static_cast<uint32_t>(random.Below(1u << 31)), {it->second}, words);
  it->second = changed.Next();
  return files;
}

// `files` of some folders of the tests' data.
std::vector<Folder> ReadFolders(const std::string& parent,
                                const std::vector<std::string>& names,
                                const std::vector<std::string>& files) {
  std::vector<Folder> folders;
  for (const std::string& name : names) {
    Folder folder;
    for (const std::string& file : files) {
      folder[file] = ReadData(absl::StrCat(parent, "/", name, "/", file));
    }
    folders.push_back(std::move(folder));
  }
  return folders;
}

const Folder& GoodConfig(size_t family) {
  static const auto* const folders = new std::vector<Folder>(
      ReadFolders("families",
                  {"llama3", "qwen2_window", "qwen3", "gemma3"},
                  {"config.json", "generation_config.json"}));
  return (*folders)[family % folders->size()];
}

Folder MutatedConfig(Mutator& random) {
  const std::vector<std::string> words = {"null",
                                          "-1",
                                          "0.5",
                                          "1e999",
                                          "\"x\"",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          ",",
                                          ":",
                                          "\\ud800",
                                          "\"head_dim\":3,",
                                          "\"eos_token_id\":[1,-7],",
                                          "\"num_hidden_layers\":2147483648,",
                                          absl::StrCat(OddNumber(random)),
                                          std::string(1000, '['),
                                          std::string(3000, '9')};
  Folder files = Mutated(GoodConfig(random.Below(4)), random, words);
  if (random.Below(4) == 0) {
    // Values that take much more than their text.
    std::string values = "\"x\":[";
    for (size_t i = random.Below(4000); i > 0; --i) values += "[],";
    files["config.json"].insert(1, values + "0],");
  }
  return files;
}

absl::Status OpenConfig(const std::string& folder) {
  return ReadHfConfig(folder, 300, 0).status();
}

const Folder& GoodTokenizer(size_t family) {
  static const auto* const folders = new std::vector<Folder>(
      ReadFolders("hf_tokenizers",
                  {"smollm2", "llama2", "qwen25", "gemma3"},
                  {"tokenizer.json", "tokenizer_config.json"}));
  return (*folders)[family % folders->size()];
}

Folder MutatedTokenizer(Mutator& random) {
  const std::vector<std::string> words = {"null",
                                          "-1",
                                          "1e999",
                                          "true",
                                          "[",
                                          "]",
                                          "{",
                                          "}",
                                          ",",
                                          ":",
                                          "\\ud800",
                                          "\\u0000",
                                          "\"a\":0,",
                                          "\"a b\",",
                                          "\"added_tokens\":[],",
                                          "\"type\":\"BPE\",",
                                          absl::StrCat(OddNumber(random)),
                                          std::string(1000, '['),
                                          std::string(5000, 'x')};
  Folder files = Mutated(GoodTokenizer(random.Below(4)), random, words);
  std::string& text = files["tokenizer.json"];
  const size_t vocab = text.find('{', text.find("\"vocab\""));
  if (random.Below(4) == 0 && vocab != std::string::npos) {
    // Tokens that take much more than their text.
    std::string tokens;
    for (size_t i = random.Below(4000); i > 0; --i) {
      absl::StrAppend(&tokens, "\"~", i, "\":", 1000 + i, ",");
    }
    text.insert(vocab + 1, tokens);
  }
  return files;
}

absl::Status OpenTokenizer(const std::string& folder) {
  SPECWIRE_ASSIGN_OR_RETURN(TokenizerModel model, ReadHfTokenizer(folder));
  const auto tokenizer = Tokenizer::Create(std::move(model));
  if (!tokenizer.ok()) {
    // Names the model's field, not the file.
    return absl::Status(
        tokenizer.status().code(),
        absl::StrCat(folder, ": ", tokenizer.status().message()));
  }
  SPECWIRE_ASSIGN_OR_RETURN(
      const std::vector<int32_t> ids,
      (*tokenizer)->Encode("A text, 12\xff <s>", SpecialTokens::kRecognise));
  (void)(*tokenizer)->Decode(ids, false).size();
  return absl::OkStatus();
}

}  // namespace

// A document is built, of 16,384 values at most: an empty list takes three
// bytes of text, but 40 of heap beside the 16 that it has, up to three times
// over, in a list that grows; measured, 27 times the file.
FileKind ConfigKind() {
  return {"config",
          [] { return GoodConfig(0); },
          MutatedConfig,
          OpenConfig,
          /*cases=*/6000,
          /*memory=*/32};
}

// A token of a few bytes takes a std::string of 32, in the reader's list, in
// its index and in the model, and more in Tokenizer's tables; measured, 17
// times the files with names of four bytes.
FileKind TokenizerKind() {
  return {"tokenizer",
          [] { return GoodTokenizer(0); },
          MutatedTokenizer,
          OpenTokenizer,
          /*cases=*/2000,
          /*memory=*/24};
}

}  // namespace specwire
