// A child made by fork() without exec, as another library of the process may do, in the midst of transfers:
// the parent's go on, and the child neither has the memory they move to nor copies of it.
#include <fcntl.h>
#include <sys/wait.h>

#include <cinttypes>
#include <cstdio>
#include <functional>
#include <string>

#include "test/transfer/storage_fixture.h"

namespace dualpath::test {
namespace {

// Runs in a child; what it returns is the child's exit status.
class Child {
 public:
  explicit Child(const std::function<int()>& body) {
    if (pipe2(ends_, O_CLOEXEC) != 0) std::abort();
    pid_ = fork();
    if (pid_ != 0) {
      close(ends_[0]);
      return;
    }
    close(ends_[1]);
    const int status = body();
    char byte;
    [[maybe_unused]] ssize_t n = read(ends_[0], &byte, 1);  // until the parent says so
    _exit(status);
  }
  ~Child() {
    if (pid_ > 0) end();
  }
  int end() {
    close(ends_[1]);
    int status = -1;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  int ends_[2];
  pid_t pid_;
};

// Whether the process has anything mapped there. Nothing is allocated: other threads' locks may be taken.
bool mapped(const void* at) {
  const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  FILE* maps = fdopen(fd, "r");
  static char line[4096];
  setvbuf(maps, line, _IOFBF, sizeof line);
  bool found = false;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  const auto address = reinterpret_cast<uintptr_t>(at);
  while (fscanf(maps, "%" SCNxPTR "-%" SCNxPTR "%*[^\n]\n", &begin, &end) == 2) {
    found |= begin <= address && address < end;
  }
  return found;
}

class ForkTest : public StorageTest {
 protected:
  ForkTest() {
    GeometryOptions options;
    ArenaOptions arena;
    arena.name = "buffer";
    arena.bytes = size_t{64} * 16384;
    arena.lock = LockPolicy::kNone;
    arena.huge_pages = false;
    EXPECT_TRUE(Arena::create(arena, &options.arena).ok());
    arena_ = options.arena;
    options.slots = 2 * kBlocks;
    options.block_tokens = kTokens;
    options.slot_stride_bytes = buffer_->slot_stride_bytes();
    uint64_t offset = 4096;
    for (size_t l = 0; l < shape_.layers.size(); l++) {
      options.layers.push_back({offset, stacked_planes(shape_.layers[l], kTokens)});
      offset += shape_.layer_bytes(l);
    }
    EXPECT_TRUE(Geometry::create(options, &private_buffer_).ok());
  }

  std::shared_ptr<Arena> arena_;
  std::shared_ptr<const Geometry> private_buffer_;
};

TEST_P(ForkTest, TheChildHasNoneOfTheArenas) {
  ASSERT_TRUE(mapped(arena_->base()));
  Child child([&] { return mapped(arena_->base()) ? 1 : 0; });
  EXPECT_EQ(child.end(), 0);
  EXPECT_TRUE(mapped(arena_->base()));
}

TEST_P(ForkTest, TransfersUnderWayArriveInTheParent) {
  const auto keys = stored_blocks();
  const uint32_t id = engine_->add_geometry(private_buffer_);
  const uint32_t key_list = engine_->keys(keys);
  const uint32_t slot_list = engine_->list(slots(kBlocks));
  for (int round = 0; round < 20; round++) {
    const auto memory = memory_of(*private_buffer_);
    std::ranges::fill(memory, static_cast<std::byte>(round));
    dp_descriptor d = describe(DP_OP_READ);
    d.dst_geometry = id;
    d.src_list = key_list;
    d.dst_list = slot_list;
    d.list_count = kBlocks;
    const uint32_t program = engine_->submit({d});
    Child child([] { return 0; });
    // With pages shared between the two, these writes would move the parent's away from under the reads.
    for (uint32_t slot = kBlocks; slot < 2 * kBlocks; slot++) *private_buffer_->slot(slot) = std::byte{1};
    const dp_record record = engine_->next();
    ASSERT_EQ(record.program, program);
    ASSERT_EQ(record.status, DP_ERROR_NONE);
    expect_kv(*private_buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
    ASSERT_EQ(child.end(), 0);
  }
}

TEST_P(ForkTest, AChildThatLivesOnHoldsNothingUp) {
  const auto keys = stored_blocks();
  Child child([] { return 0; });
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  engine_.reset();
  reactor_ = make_reactor();  // the first one ends, its ring's descriptor still open in the child
  open({});
  EXPECT_EQ(engine_->run({read(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
  EXPECT_EQ(child.end(), 0);
}

INSTANTIATE_TEST_SUITE_P(Both, ForkTest, kBothWays(), name_of_way);

}  // namespace
}  // namespace dualpath::test
