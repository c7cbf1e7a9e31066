#include "uring/storage_load.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace dualpath::test {
namespace {

class StorageLoadTest : public ::testing::Test {
 protected:
  StorageLoadTest() {
    base_ = std::filesystem::temp_directory_path().string() + "/dualpath-load-XXXXXX";
    if (mkdtemp(base_.data()) == nullptr) std::abort();
    status_ = lay_out_file(base_ + "/file", 64 * kBytes, sizes_, &checksums_);
  }
  ~StorageLoadTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  LoadOptions options(LoadKind kind) const {
    LoadOptions o;
    o.kind = kind;
    o.path = kind == LoadKind::kReadFiles || kind == LoadKind::kWriteFiles ? base_ : base_ + "/file";
    o.bytes = kBytes;
    o.places = 64;
    o.depth = 8;
    o.duration_ns = 20'000'000;
    return o;
  }

  static constexpr uint64_t kBytes = 8192;
  const std::vector<uint64_t> sizes_{4096, kBytes, 12288};
  std::string base_;
  std::vector<std::vector<uint64_t>> checksums_;
  Status status_;
};

TEST_F(StorageLoadTest, ReadsAreVerifiedAndAMismatchIsSeen) {
  if (status_.sys_errno == EINVAL) GTEST_SKIP() << "no O_DIRECT here";
  ASSERT_TRUE(status_.ok()) << status_.message;
  ASSERT_EQ(checksums_[0].size(), 128u);
  ASSERT_EQ(checksums_[2].size(), 42u);
  struct Way {
    StorageIo io;
    bool offload;
  };
  for (const auto& [io, offload] :
       {Way{StorageIo::kUring, false}, Way{StorageIo::kUring, true}, Way{StorageIo::kThreadPool, false}}) {
    LoadOptions o = options(LoadKind::kReadRanges);
    o.storage_io = io;
    o.offload = offload;
    o.checksums = checksums_[1];
    LoadResult result;
    ASSERT_TRUE(run_load(o, &result).ok());
    EXPECT_GT(result.operations, 8u);
    EXPECT_EQ(result.bytes, result.operations * kBytes);
    EXPECT_EQ(result.mismatches, 0u);
    EXPECT_EQ(result.registered_bytes, io == StorageIo::kUring ? result.bytes : 0u);
    EXPECT_EQ(result.storage_io, io);
    EXPECT_LE(result.latency_p50_ns, result.latency_p99_ns);
    EXPECT_GT(result.cpu_ns, 0u);
    std::vector<uint64_t> wrong = checksums_[1];
    for (uint64_t& checksum : wrong) checksum ^= 1;
    o.checksums = wrong;
    ASSERT_TRUE(run_load(o, &result).ok());
    EXPECT_EQ(result.mismatches, result.operations);
  }
}

TEST_F(StorageLoadTest, WritesEachPlaceOnceAndReadsEachOnceWhenAsked) {
  if (status_.sys_errno == EINVAL) GTEST_SKIP() << "no O_DIRECT here";
  LoadResult result;
  LoadOptions o = options(LoadKind::kWriteFiles);
  o.duration_ns = 60'000'000'000;
  ASSERT_TRUE(run_load(o, &result).ok());
  EXPECT_EQ(result.operations, 64u);
  EXPECT_EQ(std::filesystem::file_size(base_ + "/b0000000063"), kBytes);
  o.kind = LoadKind::kReadFiles;
  o.once = true;
  ASSERT_TRUE(run_load(o, &result).ok());
  EXPECT_EQ(result.operations, 64u);
  o.kind = LoadKind::kWriteFiles;
  EXPECT_FALSE(run_load(o, &result).ok()) << "the files are there already";
}

TEST_F(StorageLoadTest, BadInputIsNamed) {
  LoadResult result;
  for (const auto& [bytes, depth, places] : {std::tuple{uint64_t{4097}, 1u, uint64_t{1}},
                                             {uint64_t{0}, 1u, uint64_t{1}},
                                             {kBytes, 129u, uint64_t{1}},
                                             {kBytes, 0u, uint64_t{1}},
                                             {kBytes, 1u, uint64_t{0}}}) {
    LoadOptions o = options(LoadKind::kReadRanges);
    o.bytes = bytes;
    o.depth = depth;
    o.places = places;
    EXPECT_STREQ(run_load(o, &result).code, "INVALID_ARGUMENT");
  }
  LoadOptions missing = options(LoadKind::kReadRanges);
  missing.path += ".missing";
  const Status status = run_load(missing, &result);
  EXPECT_STREQ(status.code, "STORAGE_IO");
  EXPECT_EQ(status.sys_errno, ENOENT);
  LoadOptions past = options(LoadKind::kReadRanges);
  past.places = 6400;
  EXPECT_STREQ(run_load(past, &result).code, "STORAGE_IO") << "the file ends before";
}

}  // namespace
}  // namespace dualpath::test
