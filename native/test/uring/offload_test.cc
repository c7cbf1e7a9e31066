#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "test/uring/block_io_fixture.h"

namespace dualpath::test {
namespace {

using OffloadTest = BlockIoTest;

TEST_P(OffloadTest, WhatMayWaitIsDoneByTheKernelsWorkers) {
  memset(buffer(0), 0x5a, kBytes);
  ASSERT_EQ(run(true, "file").error, 0);
  memset(buffer(0), 0, kBytes);
  std::thread([&] {  // its workers have its number in their names
    recreate();
    io_->start(prepare(false, "file", 0));
    EXPECT_EQ(finish(1)[0].done, kBytes);
    const std::string worker = "iou-wrk-" + std::to_string(gettid());
    bool seen = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::ifstream comm(task.path() / "comm");
      std::string name;
      seen |= std::getline(comm, name) && name == worker;
    }
    EXPECT_TRUE(seen) << worker;
    io_.reset();
  })
      .join();
  for (size_t i = 0; i < kBytes; i++) ASSERT_EQ(buffer(0)[i], std::byte{0x5a});
}

INSTANTIATE_TEST_SUITE_P(Workers, OffloadTest, ::testing::Values(Way{StorageIo::kUring, true}), way_name);

}  // namespace
}  // namespace dualpath::test
