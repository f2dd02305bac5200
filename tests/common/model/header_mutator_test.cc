// SPDX-License-Identifier: Apache-2.0
// Broken and hostile model files of every kind: a clear error or a file that
// can be used, no crash, and never memory beyond a multiple of the file: twice
// for tensors, more for JSON of which a document is kept (FileKind::memory).
// Built with AddressSanitizer and UBSan in every build
// (tests/common/model/CMakeLists.txt).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/model/mutated_files.h"
#include "tests/testing/live_memory.h"
#include "tests/testing/mutator.h"

namespace specwire {
namespace {

// What a reader may take however small the file is.
constexpr size_t kMemory = 64 << 10;

class HeaderMutatorTest : public ::testing::TestWithParam<FileKind> {
 protected:
  HeaderMutatorTest() { std::filesystem::create_directories(folder_); }
  // A case that failed stays to be looked at.
  ~HeaderMutatorTest() override {
    if (!HasFailure()) std::filesystem::remove_all(folder_);
  }

  // Files that are as the case before had them stay.
  void Write(const Folder& files) {
    for (const auto& [name, bytes] : last_) {
      if (!files.contains(name)) std::filesystem::remove(folder_ + "/" + name);
    }
    for (const auto& [name, bytes] : files) {
      const auto before = last_.find(name);
      if (before != last_.end() && before->second == bytes) continue;
      std::ofstream out(folder_ + "/" + name, std::ios::binary);
      out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    last_ = files;
  }

  // Opens a case; checks what holds for each.
  absl::Status Open(const Folder& files) {
    Write(files);
    size_t size = 0;
    for (const auto& [name, bytes] : files) size += bytes.size();
    const LiveMemory memory;
    const absl::Status status = GetParam().open(folder_);
    const size_t limit = GetParam().memory * size + kMemory;
    EXPECT_LE(memory.Peak(), limit) << status;
    most_ = std::max(
        most_, static_cast<double>(memory.Peak()) / static_cast<double>(limit));
    if (status.ok()) return status;
    EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status))
        << status;
    // A path, a field and what is wrong with it.
    EXPECT_THAT(std::string(status.message()), ::testing::StartsWith(folder_));
    EXPECT_GT(status.message().size(), folder_.size() + 10);
    EXPECT_LT(status.message().size(), 4096u);
    return status;
  }

  // In memory where there is such a place: each case rewrites its files, which
  // a disk's file system takes as a wish to have them on the disk.
  const std::string folder_ = absl::StrCat(std::filesystem::exists("/dev/shm")
                                               ? std::string("/dev/shm/")
                                               : ::testing::TempDir(),
                                           "specwire_mutated_",
                                           GetParam().name,
                                           "_",
                                           getpid());
  Folder last_;
  // Of what the limit is.
  double most_ = 0;
};

TEST_P(HeaderMutatorTest, ReadsTheGoodOne) {
  const absl::Status status = Open(GetParam().good());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_P(HeaderMutatorTest, SurvivesWhatIsNearlyRight) {
  // The mutator serves as the generator of random numbers.
  Mutator random(20261201, {""}, {""});
  const int cases = NumMutations(GetParam().cases);
  int opened = 0;
  for (int i = 0; i < cases; ++i) {
    opened += Open(GetParam().mutated(random)).ok();
    ASSERT_FALSE(HasFailure()) << "case " << i << ", left in " << folder_;
  }
  RecordProperty("opened", opened);
  RecordProperty("most_memory", absl::StrCat(most_));
  // Both outcomes have been met often.
  EXPECT_GT(opened, cases / 20);
  EXPECT_LT(opened, cases * 19 / 20);
}

INSTANTIATE_TEST_SUITE_P(All,
                         HeaderMutatorTest,
                         ::testing::ValuesIn(FileKinds()),
                         [](const auto& i) {
                           return std::string(i.param.name);
                         });

}  // namespace
}  // namespace specwire
