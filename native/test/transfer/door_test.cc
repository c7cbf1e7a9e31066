#include "transfer/door.h"

#include <errno.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <thread>

#include "test/transfer/harness.h"

namespace dualpath::test {
namespace {

TEST(DoorTest, AnotherMappingOfItsMemfdIsTheSameDoor) {
  std::shared_ptr<Door> door;
  ASSERT_TRUE(Door::create(small_door(), &door).ok());
  void* mapped = mmap(nullptr, door->bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, door->memfd(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  const auto* bytes = static_cast<const std::byte*>(mapped);
  const auto& header = *static_cast<const dp_door_header*>(mapped);
  EXPECT_EQ(header.magic, DP_ABI_MAGIC);
  EXPECT_EQ(header.version, DP_ABI_VERSION);
  EXPECT_EQ(header.total_bytes, door->bytes());
  EXPECT_EQ(header.descriptor_bytes, 128u);
  EXPECT_EQ(header.record_bytes, 64u);
  EXPECT_EQ(header.submission_entries, 64u);
  EXPECT_EQ(header.key_entries, 1024u);
  door->counter_add(255, 7);
  EXPECT_EQ(reinterpret_cast<const uint64_t*>(bytes + header.counter_offset)[255], 7u);
  door->slots()[4095] = 9;
  EXPECT_EQ(reinterpret_cast<const uint32_t*>(bytes + header.slot_offset)[4095], 9u);
  door->keys()[1023].bytes.fill(3);
  EXPECT_EQ(bytes[header.key_offset + 1024 * 32 - 1], std::byte{3});
  munmap(mapped, door->bytes());
}

TEST(DoorTest, NobodyWhoHasItsMemfdCanChangeItsSize) {
  std::shared_ptr<Door> door;
  ASSERT_TRUE(Door::create(small_door(), &door).ok());
  for (const size_t bytes : {size_t{0}, door->bytes() - 4096, door->bytes() + 4096}) {
    EXPECT_EQ(ftruncate(door->memfd(), static_cast<off_t>(bytes)), -1);
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(door->memfd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(DoorTest, ItsTablesDoNotOverlap) {
  std::shared_ptr<Door> door;
  ASSERT_TRUE(Door::create(small_door(), &door).ok());
  const auto& h = *reinterpret_cast<const dp_door_header*>(door->base());
  EXPECT_GE(h.submission_offset, sizeof(dp_door_header));
  EXPECT_GE(h.completion_offset, h.submission_offset + h.submission_entries * sizeof(dp_descriptor));
  EXPECT_GE(h.counter_offset, h.completion_offset + h.completion_entries * sizeof(dp_record));
  EXPECT_GE(h.slot_offset, h.counter_offset + h.counter_entries * 8);
  EXPECT_GE(h.key_offset, h.slot_offset + h.slot_entries * 4);
  EXPECT_GE(h.total_bytes, h.key_offset + h.key_entries * 32);
}

TEST(DoorTest, RefusesSizesOutsideItsLimits) {
  for (const auto change : std::initializer_list<void (*)(DoorOptions&)>{
           [](DoorOptions& o) { o.submission_entries = 0; },
           [](DoorOptions& o) { o.submission_entries = 48; },
           [](DoorOptions& o) { o.completion_entries = 1 << 21; },
           [](DoorOptions& o) { o.counter_entries = 0; },
           [](DoorOptions& o) { o.counter_entries = (1 << 24) + 1; },
           [](DoorOptions& o) { o.slot_entries = 0; }, [](DoorOptions& o) { o.slot_entries = (1 << 26) + 1; },
           [](DoorOptions& o) { o.key_entries = 0; },
           [](DoorOptions& o) { o.key_entries = (1 << 22) + 1; }}) {
    DoorOptions options = small_door();
    change(options);
    std::shared_ptr<Door> door;
    EXPECT_STREQ(Door::create(options, &door).code, "INVALID_ARGUMENT");
  }
}

TEST(DoorTest, CountersOnlyGrow) {
  std::shared_ptr<Door> door;
  ASSERT_TRUE(Door::create(small_door(), &door).ok());
  door->counter_raise(0, 10);
  door->counter_raise(0, 4);
  EXPECT_EQ(door->counter(0), 10u);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; t++) {
    threads.emplace_back([&door, t] {
      for (uint64_t i = 0; i < 2000; i++) {
        door->counter_add(1, 3);
        door->counter_raise(2, i * 4 + t);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(door->counter(1), 4u * 2000 * 3);
  EXPECT_EQ(door->counter(2), 1999u * 4 + 3);
}

TEST(DoorTest, TakesAFewWakersAndWakesThemAll) {
  std::shared_ptr<Door> door;
  ASSERT_TRUE(Door::create(small_door(), &door).ok());
  std::vector<std::shared_ptr<Waker>> wakers;
  for (size_t i = 0; i < Door::kMaxWakers; i++) {
    wakers.push_back(std::make_shared<Waker>());
    EXPECT_TRUE(door->add_waker(wakers.back()));
    wakers.back()->arm();
  }
  EXPECT_FALSE(door->add_waker(std::make_shared<Waker>()));
  door->notify();
  for (const auto& waker : wakers) {
    pollfd one{waker->fd(), POLLIN, 0};
    EXPECT_EQ(poll(&one, 1, 0), 1);
  }
}

}  // namespace
}  // namespace dualpath::test
