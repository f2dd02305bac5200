// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/testing/mutator.h"

namespace specwire {

// The files of a model's folder: names and bytes.
using Folder = std::map<std::string, std::string>;

// A kind of model file, for header_mutator_test: how nearly right ones are made
// and how one is read. A new kind is one more entry of FileKinds.
struct FileKind {
  const char* name;
  // A right folder.
  std::function<Folder()> good;
  // A nearly right one.
  std::function<Folder(Mutator&)> mutated;
  // Opens the folder's files and uses all that they give. Peak memory of this
  // is measured. Errors begin with the path of the folder.
  std::function<absl::Status(const std::string& folder)> open;
  // How many cases, so that there are more than 20,000 in all.
  int cases = 6000;
  // What opening may take, in sizes of the folder.
  size_t memory = 2;
};
inline void PrintTo(const FileKind& kind, std::ostream* out) {
  *out << kind.name;
}

std::vector<FileKind> FileKinds();
// Of these, config.json and what goes with it, and tokenizer.json.
FileKind ConfigKind();
FileKind TokenizerKind();

// Numbers that readers get wrong: near powers of two, or small.
uint64_t OddNumber(Mutator& random);

}  // namespace specwire
