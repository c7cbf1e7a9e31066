#include "memory/arena.h"

#include <gtest/gtest.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

namespace dualpath {
namespace {

TEST(ArenaTest, IsAlignedZeroedAndWritable) {
  std::shared_ptr<Arena> arena;
  const Status status = Arena::create({.name = "buffer", .bytes = 3'000'001}, &arena);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % Arena::kAlignment, 0u);
  EXPECT_EQ(arena->bytes(), 3'000'001u);
  EXPECT_EQ(arena->name(), "buffer");
  EXPECT_EQ(arena->kind(), ArenaKind::kHost);
  EXPECT_EQ(arena->base()[0], std::byte{0});
  EXPECT_EQ(arena->base()[3'000'000], std::byte{0});
  memset(arena->base(), 0xff, arena->bytes());
}

TEST(ArenaTest, RefusesNothingAndTooMuch) {
  std::shared_ptr<Arena> arena;
  for (const size_t bytes : {size_t{0}, Arena::kMaxBytes + 1}) {
    const Status status = Arena::create({.name = "big", .bytes = bytes}, &arena);
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find("arena 'big': " + std::to_string(bytes) + " bytes asked, 1 to 1073741824"),
              std::string::npos)
        << status.message;
  }
  EXPECT_EQ(arena, nullptr);
}

// What a process that may lock 4096 bytes meets; 0 when all is as it should be.
int lock_more_than_allowed() {
  const rlimit limit{4096, 4096};
  setrlimit(RLIMIT_MEMLOCK, &limit);
  if (geteuid() == 0 && seteuid(65534) != 0) return 2;  // root may lock whatever the limit says
  ArenaOptions options{.name = "hbm", .bytes = 1 << 20, .huge_pages = false};
  options.lock = LockPolicy::kRequire;
  std::shared_ptr<Arena> arena;
  const Status status = Arena::create(options, &arena);
  if (status.ok() || strcmp(status.code, "MEMORY_LIMIT") != 0 || status.sys_errno != ENOMEM) return 3;
  if (status.message.find("RLIMIT_MEMLOCK is 4096 bytes: raise it with") == std::string::npos) return 4;
  options.lock = LockPolicy::kTry;
  if (!Arena::create(options, &arena).ok() || arena->locked()) return 5;
  arena->base()[0] = std::byte{1};
  return 0;
}

TEST(ArenaTest, SaysWhichLimitKeepsItFromLocking) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers make mlock do nothing";
#endif
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // the limit is a whole process's
  EXPECT_EXIT(_exit(lock_more_than_allowed()), ::testing::ExitedWithCode(0), "");
}

TEST(ArenaTest, AdoptedMemoryIsTheCallersToFree) {
  std::vector<std::byte> memory(10000);
  {
    const auto arena = Arena::adopt("engine", memory.data(), memory.size(), ArenaKind::kEmulatedHbm);
    EXPECT_EQ(arena->base(), memory.data());
    EXPECT_EQ(arena->bytes(), 10000u);
    EXPECT_EQ(arena->kind(), ArenaKind::kEmulatedHbm);
    EXPECT_FALSE(arena->locked() || arena->huge());
  }
  memory[9999] = std::byte{1};
}

}  // namespace
}  // namespace dualpath
