// Another process writes the door: garbage in descriptors, in the tables while programs run, in the header,
// in the ring's indexes. Native code never touches memory outside its geometries (AddressSanitizer watches)
// and every program that was published ends.
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <random>
#include <thread>

#include "memory/block_pool.h"
#include "test/transfer/storage_fixture.h"

namespace dualpath::test {
namespace {

using Random = std::mt19937;

// The other process's mapping of a door, as it would have it.
class Foreign {
 public:
  explicit Foreign(Door& door) : bytes_(door.bytes()) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, door.memfd(), 0);
    if (base_ == MAP_FAILED) std::abort();
    layout_ = door.header();
  }
  ~Foreign() { munmap(base_, bytes_); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  void put(size_t offset, uint32_t value) {
    const auto at = reinterpret_cast<uintptr_t>(base_) + offset;
    __atomic_store_n(reinterpret_cast<uint32_t*>(at), value, __ATOMIC_RELAXED);
  }
  const DoorLayout& layout() const { return layout_; }

 private:
  void* base_;
  size_t bytes_;
  DoorLayout layout_;
};

// A value that may be right, may be just beyond, may be anything.
uint32_t any(Random& random, uint32_t limit) {
  switch (random() % 8) {
    case 0:
      return static_cast<uint32_t>(random());
    case 1:
      return limit + static_cast<uint32_t>(random() % 3) - 1;
    case 2:
      return DP_NONE - static_cast<uint32_t>(random() % 2);
    default:
      return limit == 0 ? 0 : static_cast<uint32_t>(random() % limit);
  }
}

// One that could be right, and words of it changed to others.
dp_descriptor garbage(Random& random) {
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  dp_descriptor d = describe(static_cast<dp_op>(below(DP_OP_BUMP + 1)));
  d.flags = static_cast<uint16_t>(random() & DP_FLAG_EVENT);
  d.peer = 0;
  d.src_geometry = below(2);
  d.dst_geometry = below(2);
  d.src_list = below(512);
  d.dst_list = below(512);
  d.list_count = below(6);
  d.token_end = d.list_count * 16;
  if (d.op != DP_OP_READ && d.op != DP_OP_WRITE) d.layer_count = static_cast<uint16_t>(1 + below(4));
  if (below(4) == 0) d.wait[below(2)] = wait_for(below(256), below(64), 1, 1, 1);
  d.signal[0] = add(below(256), random(), 1);
  if (below(4) == 0) d.signal[1] = remote(ordered(below(256)));
  std::array<uint32_t, sizeof d / 4> words;
  memcpy(words.data(), &d, sizeof d);
  for (uint32_t changes = random() % 3; changes > 0; changes--) {
    uint32_t& word = words[below(words.size())];
    word = below(2) == 0 ? any(random, word) : word ^ (1u << below(32));
  }
  memcpy(&d, words.data(), sizeof d);
  d.flags &= static_cast<uint16_t>(~DP_FLAG_END);
  return d;
}

class HostileTest : public StorageTest {
 protected:
  void SetUp() override {
    StorageTest::SetUp();
    engine_->add_geometry(full_blocks(shape_, 3));  // of other memory
    peer_ = std::make_unique<Engine>(*reactor_, "peer");
    peer_->add_geometry(full_blocks(shape_, 5));
    peer_->add_geometry(full_blocks(uniform_shape(4, kTokens, {{82, 0}, {36, 7}}), 2));
    engine_->connect("peer");
    foreign_ = std::make_unique<Foreign>(engine_->door());
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "they race with the data path on purpose";
#endif
  }
  void TearDown() override {
    engine_->close();
    peer_->close();
  }

  // Changes tables, counters and what the header says, until told to stop; with `rings` also entries and
  // indexes of the rings.
  void vandalise(const std::stop_token& stop, bool rings) {
    Random random(99);
    const DoorLayout& layout = foreign_->layout();
    constexpr size_t kIndexes = offsetof(dp_door_header, submission);
    while (!stop.stop_requested()) {
      const auto value = any(random, 24);
      switch (random() % (rings ? 7 : 4)) {
        case 0:
          foreign_->put(layout.counter_offset + 4 * (random() % (2 * layout.counter_entries)), value);
          break;
        case 1:
          foreign_->put(layout.key_offset + 4 * (random() % (8 * layout.key_entries)), value);
          break;
        case 2:  // magic, version, sizes, places
          foreign_->put(4 * (random() % (kIndexes / 4)), static_cast<uint32_t>(random()));
          break;
        case 3:
          foreign_->put(layout.slot_offset + 4 * (random() % 1024), value);
          break;
        case 4:
          foreign_->put(layout.completion_offset + 4 * (random() % (16 * layout.completion_entries)), value);
          break;
        case 5:
          foreign_->put(layout.submission_offset + 4 * (random() % (32 * layout.submission_entries)), value);
          break;
        default: {  // all but the completion ring's tail, by which the test finds its way
          const size_t offset = kIndexes + 4 * (random() % (2 * sizeof(dp_ring_index) / 4));
          if (offset != offsetof(dp_door_header, completion.tail)) foreign_->put(offset, any(random, 64));
        }
      }
    }
  }

  // Until the program's own record has come; what waits for ever is cancelled.
  int32_t end_of(uint32_t id) {
    const uint64_t began = now_ns();
    bool cancelled = false;
    for (;;) {
      dp_record record;
      while (engine_->poll_record(&record)) {
        if (record.kind == DP_RECORD_PROGRAM && record.program == id) return record.status;
      }
      const uint64_t waited = now_ns() - began;
      if (!cancelled && waited > 1'000'000) engine_->cancel(id), cancelled = true;
      if (waited > kPatience_ns) return -1;
      std::this_thread::yield();
    }
  }

  std::unique_ptr<Engine> peer_;
  std::unique_ptr<Foreign> foreign_;
};

TEST_P(HostileTest, EveryProgramOfGarbageEnds) {
  std::jthread vandal([&](std::stop_token stop) { vandalise(stop, false); });
  Random random(7);
  std::array<uint32_t, DP_ERROR_CLOSED + 1> ends{};
  for (int i = 0; i < 12'000; i++) {
    std::vector<dp_descriptor> program(1 + random() % 3);
    for (dp_descriptor& d : program) d = garbage(random);
    const int32_t status = end_of(engine_->submit(program));
    ASSERT_GE(status, 0) << "program " << i << " has not ended";
    ASSERT_LE(status, DP_ERROR_CLOSED);
    ends[static_cast<size_t>(status)]++;
  }
  vandal.request_stop();
  vandal.join();
  // Garbage is neither always refused nor always taken, or the test looks at little.
  EXPECT_GT(ends[DP_ERROR_NONE], 100u);
  EXPECT_GT(ends[DP_ERROR_INVALID], 1000u);
  EXPECT_GT(ends[DP_ERROR_BAD_BLOCK], 10u);
  EXPECT_GT(ends[DP_ERROR_CANCELLED], 0u);
  EXPECT_GT(engine_->statistics().copy_bytes.load(), 0u);
  EXPECT_GT(engine_->statistics().send_bytes.load(), 0u);
  EXPECT_GT(engine_->statistics().write_blocks.load(), 0u);
  EXPECT_EQ(engine_->statistics().door_errors.load(), 0u);
}

TEST_P(HostileTest, RingsThatAreWrittenOverDoNotOutliveTheirEngine) {
  std::jthread vandal([&](std::stop_token stop) { vandalise(stop, true); });
  Random random(11);
  const uint64_t deadline = now_ns() + kPatience_ns;
  while (engine_->statistics().programs.load() < 200) {
    ASSERT_LT(now_ns(), deadline);
    for (uint32_t i = 0; i < foreign_->layout().submission_entries; i++) {
      dp_descriptor d = garbage(random);
      d.program = (i / 4 % 32) | (1u << 16);
      d.flags |= static_cast<uint16_t>(random() & DP_FLAG_END);
      engine_->door().descriptor(i) = d;
    }
    const auto taken = static_cast<uint32_t>(engine_->statistics().descriptors.load());
    foreign_->put(offsetof(dp_door_header, submission.tail), taken + static_cast<uint32_t>(random() % 70));
    foreign_->put(offsetof(dp_door_header, completion.head), engine_->door().completion().tail);
    reactor_->ring();
    usleep(200);
  }
  vandal.request_stop();
  vandal.join();
  EXPECT_GT(engine_->statistics().door_errors.load(), 0u);
  engine_->close();
  EXPECT_FALSE(engine_->native().busy(now_ns()));
  EXPECT_EQ(peer_->run({describe(DP_OP_NOP)}).status, DP_ERROR_NONE) << "other engines of the reactor go on";
}

TEST_P(HostileTest, ATailThatCannotBePublishesNothing) {
  std::atomic_ref<uint32_t> tail(engine_->door().submission().tail);
  const uint32_t right = tail.load();
  tail.store(right + foreign_->layout().submission_entries + 1);
  reactor_->ring();
  ASSERT_TRUE(eventually([&] { return engine_->statistics().door_errors.load() > 0; }));
  EXPECT_EQ(engine_->statistics().descriptors.load(), 0u);
  tail.store(right);
  EXPECT_EQ(engine_->run({describe(DP_OP_NOP)}).status, DP_ERROR_NONE);
}

TEST_P(HostileTest, APoolTakesBackWhatItGaveWhateverTheTableSays) {
  constexpr uint32_t kSlots = 64;
  BlockPool pool(kSlots);
  uint32_t* const list = engine_->door().slots();
  std::jthread vandal([&](std::stop_token stop) {
    Random random(5);
    while (!stop.stop_requested()) {
      foreign_->put(foreign_->layout().slot_offset + 4 * (random() % kSlots), any(random, kSlots));
    }
  });
  uint32_t back = 0;
  for (int i = 0; i < 20000; i++) {
    if (!pool.take(8, list)) break;  // lists that were not given back stay taken
    back += pool.give_back(list, 8) ? 1 : 0;
    ASSERT_LE(pool.available(), kSlots);
  }
  vandal.request_stop();
  vandal.join();
  EXPECT_GT(back, 0u);
  std::vector<uint32_t> rest(pool.available());
  ASSERT_TRUE(pool.take(static_cast<uint32_t>(rest.size()), rest.data()));
  std::ranges::sort(rest);
  EXPECT_EQ(std::ranges::adjacent_find(rest), rest.end()) << "no slot is free twice";
  EXPECT_TRUE(rest.empty() || rest.back() < kSlots);
}

INSTANTIATE_TEST_SUITE_P(Both, HostileTest, kBothWays(), name_of_way);

}  // namespace
}  // namespace dualpath::test
