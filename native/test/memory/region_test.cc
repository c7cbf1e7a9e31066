#include "memory/region.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace dualpath {
namespace {

Status adopt(uint64_t address, uint64_t bytes, std::shared_ptr<Region>* out) {
  return Region::adopt("kv", address, bytes, ArenaKind::kHost, out);
}

uint64_t address_of(const void* memory) { return reinterpret_cast<uint64_t>(memory); }

TEST(RegionTest, TakesMemoryOfAnyAlignment) {
  std::vector<std::byte> memory(1000);
  std::shared_ptr<Region> region;
  ASSERT_TRUE(adopt(address_of(memory.data()) + 3, 997, &region).ok());
  EXPECT_EQ(region->base(), memory.data() + 3);
  ASSERT_EQ(region->slices().size(), 1u);
  EXPECT_EQ(region->slices()[0]->bytes(), 997u);
}

TEST(RegionTest, RefusesAddressesThatAreNone) {
  std::shared_ptr<Region> region;
  std::byte byte{};
  for (const auto& [address, bytes, words] :
       std::initializer_list<std::tuple<uint64_t, uint64_t, const char*>>{
           {0, 10, "the address is null"},
           {address_of(&byte), 0, "0 bytes"},
           {UINT64_MAX - 3, 10, "overflow 64 bits"},
           {8, 10, "0x8 is not mapped readable and writable"},
           {address_of(&byte), uint64_t{1} << 46, "is not mapped readable and writable"}}) {
    const Status status = adopt(address, bytes, &region);
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(words), std::string::npos) << status.message;
    EXPECT_NE(status.message.find("memory 'kv'"), std::string::npos) << status.message;
  }
}

TEST(RegionTest, RefusesMemoryThatMayNotBeWritten) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* two = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(two, MAP_FAILED);
  std::shared_ptr<Region> region;
  EXPECT_TRUE(adopt(address_of(two), 2 * page, &region).ok());
  ASSERT_EQ(mprotect(static_cast<std::byte*>(two) + page, page, PROT_READ), 0);
  EXPECT_FALSE(adopt(address_of(two), page + 1, &region).ok());
  EXPECT_TRUE(adopt(address_of(two), page, &region).ok());
  munmap(two, 2 * page);
  EXPECT_FALSE(adopt(address_of(two), page, &region).ok());
}

TEST(RegionTest, MoreThanAGibibyteIsSeveralSlices) {
  const size_t bytes = 2 * Arena::kMaxBytes + 12345;
  void* memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  std::shared_ptr<Region> region;
  ASSERT_TRUE(adopt(address_of(memory), bytes, &region).ok());
  ASSERT_EQ(region->slices().size(), 3u);
  EXPECT_EQ(region->slices()[1]->base(), region->base() + Arena::kMaxBytes);
  EXPECT_EQ(region->slices()[1]->name(), "kv/1");
  EXPECT_EQ(region->slices()[2]->bytes(), 12345u);
  region.reset();
  munmap(memory, bytes);
}

class RegionFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fd_ = memfd_create("kv", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_GE(fd_, 0);
    ASSERT_EQ(ftruncate(fd_, 3 * 4096), 0);
  }
  void TearDown() override { close(fd_); }

  void expect_refused(int fd, uint64_t offset, uint64_t bytes, const std::string& words) {
    std::shared_ptr<Region> region;
    const Status status = Region::map("kv", fd, offset, bytes, ArenaKind::kHost, &region);
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(words), std::string::npos) << status.message;
  }

  int fd_ = -1;
};

TEST_F(RegionFileTest, SharesAFileFromAnyOffset) {
  std::shared_ptr<Region> region;
  ASSERT_TRUE(Region::map("kv", fd_, 4100, 5000, ArenaKind::kHost, &region).ok());
  memset(region->base(), 7, region->bytes());
  char bytes[3 * 4096];
  ASSERT_EQ(pread(fd_, bytes, sizeof bytes, 0), static_cast<ssize_t>(sizeof bytes));
  for (size_t i = 0; i < sizeof bytes; i++) ASSERT_EQ(bytes[i], i >= 4100 && i < 9100 ? 7 : 0) << i;
  const char nine = 9;
  ASSERT_EQ(pwrite(fd_, &nine, 1, 4100), 1);
  EXPECT_EQ(*region->base(), std::byte{9});
}

TEST_F(RegionFileTest, RefusesFilesThatWillNotDo) {
  expect_refused(-1, 0, 10, "file descriptor -1");
  expect_refused(fd_, 0, 0, "at least 1 is needed");
  expect_refused(fd_, UINT64_MAX, 2, "no more than 64 bits can say");
  expect_refused(fd_, 4096, 2 * 4096 + 1, "8193 bytes at offset 4096 asked, the file has 12288");
  ASSERT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_WRITE), 0);
  expect_refused(fd_, 0, 4096, "open it for reading and writing, without a write seal");
}

}  // namespace
}  // namespace dualpath
