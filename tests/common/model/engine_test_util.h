// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/kernels/kernels.h"
#include "common/model/engine.h"

namespace specwire {

using Tokens = std::vector<int32_t>;
// Logits of one row; compared bit by bit.
using LogitRow = std::vector<float>;

// An engine, and for "int8" the instruction set that it computes with, as
// SPECWIRE_ISA spells it.
struct EngineCase {
  std::string engine = "reference";
  std::string isa;

  // For parameterised tests: "int8_avx2".
  std::string Name() const { return isa.empty() ? engine : engine + "_" + isa; }
};
inline void PrintTo(const EngineCase& engine, std::ostream* out) {
  *out << engine.Name();
}

// The reference, and int8 on every instruction set.
std::vector<EngineCase> AllEngines();
// The same without the reference, and without what this processor lacks.
std::vector<EngineCase> Int8Engines();
// False if the processor lacks the instruction set.
bool IsSupported(const EngineCase& engine);

// Sets an environment variable while it lives.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::string& value) : name_(name) {
    const char* const before = std::getenv(name);
    if (before != nullptr) before_ = before;
    had_one_ = before != nullptr;
    setenv(name, value.c_str(), 1);
  }
  ~ScopedVariable() {
    if (had_one_) {
      setenv(name_, before_.c_str(), 1);
    } else {
      unsetenv(name_);
    }
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  const char* const name_;
  std::string before_;
  bool had_one_ = false;
};

// Loads a model; a failure is a failed expectation. `options.engine` is set.
std::unique_ptr<Engine> Load(const EngineCase& engine,
                             const std::string& path,
                             EngineOptions options = {});

// `count` ids below `vocab_size`.
Tokens RandomTokens(uint32_t seed, int count, int vocab_size = 320);

// Computes runs in one pass and returns all of their logits.
std::vector<LogitRow> Compute(Engine& engine,
                              const std::vector<ForwardRun>& runs);
// All logits of one run.
std::vector<LogitRow> Compute(Engine& engine,
                              KvSequence* kv,
                              absl::Span<const int32_t> tokens);

// All rows of a text, each computed in a pass of its own.
std::vector<LogitRow> OneByOne(Engine& engine, const Tokens& tokens);

bool SameBits(const LogitRow& a, const LogitRow& b);
void ExpectSameRows(const std::vector<LogitRow>& a,
                    const std::vector<LogitRow>& b);

// The lowest index of the largest number; -1 if there is none.
int32_t PlainArgMax(const LogitRow& row);

// Root mean square of the differences, in parts of that of `want`.
double RelativeError(const std::vector<LogitRow>& got,
                     const std::vector<LogitRow>& want);

}  // namespace specwire
