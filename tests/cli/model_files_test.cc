// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>

namespace specwire::cli {
namespace {

using testing::HasSubstr;

TEST(ModelFilesTest, SaysWhereToGetAModel) {
  const absl::Status status = FindDefaultModel("/nonexistent").status();
  // The test may run in a folder that has the model.
  if (!status.ok()) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("scripts/setup.sh"));
  }
}

TEST(ModelFilesTest, ADraftModelFitsTheVocabularyThatItWasMadeFor) {
  const auto fits =
      FitsVocabulary(SPECWIRE_TINY_DRAFT_MODEL, SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_TRUE(*fits);
}

TEST(ModelFilesTest, ADraftModelDoesNotFitAnotherVocabulary) {
  std::ifstream input(SPECWIRE_TINY_DRAFT_MODEL, std::ios::binary);
  std::string bytes(std::istreambuf_iterator<char>(input), {});
  const std::string key = "specwire.draft.vocabulary_fingerprint";
  const size_t at = bytes.find(key);
  ASSERT_NE(at, std::string::npos);
  // Behind the key come type and length.
  char& digit = bytes.at(at + key.size() + 12);
  digit = digit == '0' ? '1' : '0';
  const std::string other = testing::TempDir() + "model_files_other.gguf";
  std::ofstream(other, std::ios::binary) << bytes;
  const auto fits = FitsVocabulary(other, SPECWIRE_TINY_MODEL);
  ASSERT_TRUE(fits.ok()) << fits.status();
  EXPECT_FALSE(*fits);
}

TEST(ModelFilesTest, RefusesFilesThatAreNotWhatTheyShouldBe) {
  EXPECT_THAT(
      std::string(FitsVocabulary(SPECWIRE_TINY_MODEL, SPECWIRE_TINY_MODEL)
                      .status()
                      .message()),
      HasSubstr("is no draft model"));
  EXPECT_THAT(std::string(FitsVocabulary(SPECWIRE_TINY_DRAFT_MODEL,
                                         SPECWIRE_TINY_DRAFT_MODEL)
                              .status()
                              .message()),
              HasSubstr("tokenizer.ggml.model"));
  EXPECT_TRUE(absl::IsNotFound(
      FitsVocabulary("/nonexistent.gguf", SPECWIRE_TINY_MODEL).status()));
}

}  // namespace
}  // namespace specwire::cli
