// SPDX-License-Identifier: Apache-2.0
#include "common/base/processors.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "common/base/random_id.h"

namespace specwire {
namespace {

namespace fs = std::filesystem;

// A cgroup tree of plain files.
class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest()
      : mount_(fs::path(testing::TempDir()) / ("cgroup-" + RandomHexId())) {}
  ~ProcessorsTest() override { fs::remove_all(mount_); }

  void Write(const std::string& path, const std::string& text) {
    fs::create_directories((mount_ / path).parent_path());
    std::ofstream(mount_ / path) << text;
  }
  std::optional<double> Quota(absl::string_view self_cgroup) {
    return CgroupQuota(self_cgroup, mount_.string());
  }

  const fs::path mount_;
};

TEST_F(ProcessorsTest, CountsThoseThatTheProcessMayRunOn) {
  const int all = UsableProcessors();
  EXPECT_GE(all, 1);
  EXPECT_LE(all, static_cast<int>(std::thread::hardware_concurrency()));
  // On a thread of its own, since only that one is changed.
  std::thread([] {
    const int here = sched_getcpu();
    ASSERT_GE(here, 0);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(here), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    EXPECT_EQ(UsableProcessors(), 1);
  }).join();
}

TEST_F(ProcessorsTest, FindsNoQuotaWhereNoneIsSet) {
  EXPECT_EQ(Quota("0::/a/b\n"), std::nullopt);
  EXPECT_EQ(Quota(""), std::nullopt);
  EXPECT_EQ(Quota("nonsense\n1:\n"), std::nullopt);
  Write("a/b/cpu.max", "max 100000\n");
  Write("a/cpu.max", "");
  Write("cpu/cpu.cfs_quota_us", "-1\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota("3:cpu,cpuacct:/\n0::/a/b\n"), std::nullopt);
}

TEST_F(ProcessorsTest, TakesTheLeastQuotaOfACgroupAndThoseAboveIt) {
  Write("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(Quota("0::/a/b\n"), 4.0);
  Write("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(Quota("0::/a/b\n"), 1.5);
  EXPECT_EQ(Quota("0::/other\n"), std::nullopt);
  Write("cpu.max", "50000 100000\n");
  EXPECT_EQ(Quota("0::/a/b\n"), 0.5);
}

TEST_F(ProcessorsTest, ReadsVersionOne) {
  Write("cpu/a/cpu.cfs_quota_us", "300000\n");
  Write("cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota("5:memory:/a\n4:cpu,cpuacct:/a/b\n"), 3.0);
  EXPECT_EQ(Quota("5:memory:/a\n4:cpuset,cpuacct:/a\n"), std::nullopt);
  // The host's path, where a container sees only its own part of the tree.
  Write("cpu/cpu.cfs_quota_us", "200000\n");
  Write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Quota("4:cpu:/docker/0123\n"), 2.0);
}

}  // namespace
}  // namespace specwire
