// SPDX-License-Identifier: Apache-2.0
// What the int8 engine promises beyond other engines: the same bits on every
// instruction set and for every number of threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/engine.h"
#include "tests/common/model/engine_test_util.h"
#include "tests/common/model/tiny_file.h"

namespace specwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// All logits of a text, computed in pieces of which none is like the one
// before.
std::vector<LogitRow> InPieces(Engine& engine, const Tokens& tokens) {
  const auto kv = engine.NewSequence();
  const auto text = absl::MakeConstSpan(tokens);
  std::vector<LogitRow> rows;
  size_t piece = 1;
  for (size_t done = 0; done < text.size();) {
    const auto part = text.subspan(done, piece);
    for (LogitRow& row : Compute(engine, kv.get(), part)) {
      rows.push_back(std::move(row));
    }
    done += part.size();
    piece = piece * 5 % 47 + 1;
  }
  return rows;
}

TEST(Int8EngineTest, InstructionSetsAndThreadsDoNotShow) {
  const Tokens tokens = RandomTokens(21, 200);
  const auto expected =
      OneByOne(*Load({"int8", "scalar"}, SPECWIRE_TINY_MODEL), tokens);
  for (const EngineCase& engine : Int8Engines()) {
    SCOPED_TRACE(engine.Name());
    for (const int threads : {1, 2, 3, 4}) {
      EngineOptions options;
      options.num_threads = threads;
      ExpectSameRows(
          InPieces(*Load(engine, SPECWIRE_TINY_MODEL, options), tokens),
          expected);
    }
  }
}

// Over many positions threads share the attention of one row.
TEST(Int8EngineTest, ThreadsDoNotShowInALongSequence) {
  TinyFile tiny;
  tiny.ints["llama.context_length"] = 4096;
  const std::string path = tiny.Write("long_context");
  const Tokens tokens = RandomTokens(23, 1600);
  const auto text = absl::MakeConstSpan(tokens);
  // Positions after which some rows are computed one by one, some together, and
  // some in the company of a short sequence.
  const std::vector<size_t> stops = {252, 700, 1500};
  const auto compute = [&](const EngineCase& engine, int threads) {
    EngineOptions options;
    options.num_threads = threads;
    options.poison_free_kv = true;
    options.kv_cache_mib = 2;
    const auto loaded = Load(engine, path, options);
    const auto kv = loaded->NewSequence();
    const auto other = loaded->NewSequence();
    Compute(*loaded, {{.kv = other.get(), .tokens = text.first(20)}});
    std::vector<LogitRow> rows;
    const auto add = [&](std::vector<LogitRow> more) {
      for (LogitRow& row : more) rows.push_back(std::move(row));
    };
    for (const size_t stop : stops) {
      auto done = static_cast<size_t>(kv->length());
      while (done < stop) {
        const auto part =
            text.subspan(done, std::min<size_t>(stop - done, 512));
        add(Compute(*loaded,
                    {{.kv = kv.get(), .tokens = part, .num_logits = 1}}));
        done += part.size();
      }
      // The rows of each length once more must be what they were together.
      const size_t first = rows.size();
      add(Compute(*loaded, kv.get(), text.subspan(done, 7)));
      kv->Truncate(static_cast<int>(done));
      for (size_t i = 0; i < 7; ++i) {
        other->Truncate(20);
        const auto alone = Compute(
            *loaded,
            {{.kv = kv.get(),
              .tokens = text.subspan(done + i, 1),
              .num_logits = 1},
             {.kv = other.get(), .tokens = text.subspan(done, 1 + i % 2)}});
        EXPECT_TRUE(SameBits(alone.at(0), rows[first + i]))
            << "position " << done + i;
      }
    }
    return rows;
  };
  const auto expected = compute({"int8", ""}, 1);
  for (const EngineCase& engine : Int8Engines()) {
    for (const int threads : {1, 2, 3, 4}) {
      // Scalar code takes many times as long.
      if (engine.isa == "scalar" && threads != 2) continue;
      SCOPED_TRACE(absl::StrCat(engine.Name(), ", threads: ", threads));
      ExpectSameRows(compute(engine, threads), expected);
    }
  }
}

// Many short runs and a long one, which threads share in another way than the
// rows of one sequence.
TEST(Int8EngineTest, ManySequencesInAPassEqualEachAlone) {
  TinyFile tiny;
  tiny.ints["llama.context_length"] = 4096;
  const std::string path = tiny.Write("many_sequences");
  constexpr size_t kSequences = 24;
  const auto text_of = [](size_t i) {
    // One to five rows, and once a part of a long prompt.
    const auto [context, rows] =
        i == kSequences / 2 ? std::make_pair(1200, 50)
                            : std::make_pair(static_cast<int>(i * 37 % 300),
                                             1 + static_cast<int>(i % 3 * 2));
    return std::make_pair(
        RandomTokens(static_cast<uint32_t>(i), context + rows),
        static_cast<size_t>(context));
  };
  // All runs in one pass, or each in its own.
  const auto compute = [&](Engine& engine, bool together) {
    std::vector<Tokens> texts;
    std::vector<std::unique_ptr<KvSequence>> sequences;
    std::vector<ForwardRun> runs;
    for (size_t i = 0; i < kSequences; ++i) {
      const auto [text, context] = text_of(i);
      texts.push_back(text);
      sequences.push_back(engine.NewSequence());
      for (size_t done = 0; done < context;) {
        const auto part = absl::MakeConstSpan(texts[i]).subspan(
            done, std::min<size_t>(context - done, 512));
        Compute(engine, {{.kv = sequences[i].get(), .tokens = part}});
        done += part.size();
      }
    }
    for (size_t i = 0; i < kSequences; ++i) {
      const auto rest = absl::MakeConstSpan(texts[i]).subspan(
          static_cast<size_t>(sequences[i]->length()));
      runs.push_back({.kv = sequences[i].get(),
                      .tokens = rest,
                      .num_logits = static_cast<int>(rest.size())});
    }
    if (together) return Compute(engine, runs);
    std::vector<LogitRow> rows;
    for (const ForwardRun& run : runs) {
      for (LogitRow& row : Compute(engine, {run})) {
        rows.push_back(std::move(row));
      }
    }
    return rows;
  };
  const auto expected = compute(*Load({"int8", ""}, path), false);
  for (const EngineCase& engine : Int8Engines()) {
    for (const int threads : {1, 2, 3, 4}) {
      // Scalar code takes many times as long.
      if (engine.isa == "scalar" && threads != 2) continue;
      SCOPED_TRACE(absl::StrCat(engine.Name(), ", threads: ", threads));
      EngineOptions options;
      options.num_threads = threads;
      options.poison_free_kv = true;
      options.kv_cache_mib = 4;
      ExpectSameRows(compute(*Load(engine, path, options), true), expected);
    }
  }
}

TEST(Int8EngineTest, TheDigestIsTheSameOnEveryInstructionSet) {
  const std::string digest =
      Load({"int8", "scalar"}, SPECWIRE_TINY_MODEL)->info().model_digest;
  for (const EngineCase& engine : Int8Engines()) {
    EXPECT_EQ(Load(engine, SPECWIRE_TINY_MODEL)->info().model_digest, digest);
  }
  // Another engine computes other tokens.
  EXPECT_NE(Load({}, SPECWIRE_TINY_MODEL)->info().model_digest, digest);
}

TEST(Int8EngineTest, SaysWhatItIs) {
  const auto engine = Load({"int8", ""}, SPECWIRE_TINY_MODEL);
  EXPECT_EQ(engine->info().engine, "int8");
  EXPECT_EQ(engine->info().vocab_size, 320);
  EXPECT_EQ(engine->info().num_layers, 3);
  EXPECT_EQ(engine->info().max_model_len, 256);
  EXPECT_EQ(engine->kv_block_size(), 16);
}

// Each product rounds weights and activations to 127 steps of the largest of
// 32, a relative error of some 0.7 %, which the tiny model's steep attention
// and noisy values multiply: a plain simulation of the same roundings in double
// precision gives 3.6, 5.6 and 7.0 % of the logits after 1, 2 and 3 layers.
// What is wrong anywhere is wrong by far more.
TEST(Int8EngineTest, LogitsLieNearTheReference) {
  const Tokens tokens = RandomTokens(22, 120);
  for (const int layers : {1, 2, 3}) {
    EngineOptions options;
    options.num_layers = layers;
    const auto reference =
        OneByOne(*Load({}, SPECWIRE_TINY_MODEL, options), tokens);
    const auto int8 =
        OneByOne(*Load({"int8", ""}, SPECWIRE_TINY_MODEL, options), tokens);
    const double error = RelativeError(int8, reference);
    RecordProperty(absl::StrCat("relative_error_", layers),
                   std::to_string(error));
    EXPECT_LT(error, 0.03 + 0.02 * layers);
    // But it is not the reference.
    EXPECT_GT(error, 1e-3);
  }
}

TEST(Int8EngineTest, RefusesAnUnknownInstructionSet) {
  EngineOptions options;
  options.engine = "int8";
  for (const char* isa : {"avx1024", "AVX2", "avx2 ", "best\n"}) {
    const ScopedVariable variable("SPECWIRE_ISA", isa);
    const auto engine = LoadEngine(SPECWIRE_TINY_MODEL, options);
    EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(engine.status().message()),
                AllOf(HasSubstr("SPECWIRE_ISA"),
                      HasSubstr("is unknown"),
                      HasSubstr("scalar, avx2, avx512vnni")));
  }
}

TEST(Int8EngineTest, RefusesAnInstructionSetThatTheProcessorLacks) {
  EngineOptions options;
  options.engine = "int8";
  for (const EngineCase& engine : AllEngines()) {
    const ScopedVariable variable("SPECWIRE_ISA", engine.isa);
    const auto loaded = LoadEngine(SPECWIRE_TINY_MODEL, options);
    if (IsSupported(engine)) {
      EXPECT_TRUE(loaded.ok()) << loaded.status();
      continue;
    }
    EXPECT_EQ(loaded.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(loaded.status().message()),
                AllOf(HasSubstr("SPECWIRE_ISA"), HasSubstr(engine.isa)));
  }
}

// The reference has no instruction sets of ours.
TEST(Int8EngineTest, OtherEnginesDoNotReadTheVariable) {
  const ScopedVariable variable("SPECWIRE_ISA", "avx1024");
  EngineOptions options;
  options.engine = "reference";
  EXPECT_TRUE(LoadEngine(SPECWIRE_TINY_MODEL, options).ok());
}

}  // namespace
}  // namespace specwire
