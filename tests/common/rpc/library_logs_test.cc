// SPDX-License-Identifier: Apache-2.0
#include "common/rpc/library_logs.h"

#include <algorithm>
#include <string>

#include "common/base/logging.h"
#include "gmock/gmock.h"
#include "grpc/support/log.h"
#include "gtest/gtest.h"
#include "specwire/v1/types.pb.h"

namespace specwire {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(LibraryLogsTest, WritesAFewLinesOfWhatPeersCause) {
  InitLogging("test", LogLevel::kInfo);
  RouteLibraryLogs();
  // As the first call of gRPC does.
  gpr_log_verbosity_init();
  testing::internal::CaptureStderr();
  gpr_log(GPR_ERROR, "bad metadata");
  gpr_log(GPR_INFO, "of no interest");
  // Field 1, a string, of one byte that is no UTF-8.
  const std::string bytes("\x0a\x01\xff");
  for (int i = 0; i < 1000; ++i) {
    v1::ModelDescription message;
    EXPECT_FALSE(message.ParseFromString(bytes));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), kMaxLibraryLines) << log;
  EXPECT_THAT(log,
              AllOf(HasSubstr(" W test: gRPC: bad metadata\n"),
                    HasSubstr(" W test: protobuf: String field"),
                    Not(HasSubstr("no interest"))));
}

}  // namespace
}  // namespace specwire
