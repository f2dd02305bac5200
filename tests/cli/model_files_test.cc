// SPDX-License-Identifier: Apache-2.0
#include "cli/model_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

}  // namespace
}  // namespace specwire::cli
