// Storage operations under way at once: a fixed table of them, memory registered for them, files opened for
// them. Nothing is allocated per block. Two implementations make the calls: io_uring (uring_io.h), and a pool
// of threads where io_uring is refused (pool_io.h). Both run the same chains (block_op.h).
//
// One thread uses it: the one that submits first.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/faults.h"
#include "core/status.h"
#include "memory/arena.h"
#include "uring/block_op.h"

namespace dualpath {

enum class StorageIo : uint8_t {
  kAuto,  // io_uring, or where it is refused the pool
  kUring,
  kThreadPool
};

// What every report says about storage: who carries it, and why it is not io_uring.
struct StorageIoFacts {
  StorageIo io = StorageIo::kUring;
  std::string refused;                           // why io_uring is not used although it was wanted
  std::atomic<uint64_t> registered_arenas{0};    // now
  std::atomic<uint64_t> unregistered_arenas{0};  // now, as the kernel refused
  std::atomic<int32_t> register_errno{0};        // of the last refusal
};

const char* storage_io_name(StorageIo io);  // "io_uring" or "thread_pool"

class BlockIo {
 public:
  static constexpr unsigned kMaxOps = 128;
  static constexpr size_t kMaxWatched = 2;
  static constexpr unsigned kMaxFiles = 8;
  static constexpr unsigned kMaxArenas = 1024;
  static constexpr uint64_t kLongestSleep_ns = 3'600'000'000'000;

  // STORAGE_IO when io_uring is wanted and refused, saying by what (seccomp, sysctl kernel.io_uring_disabled,
  // an old kernel), or when the pool's threads cannot be had.
  static Status create(StorageIo wanted, FaultPlan* faults, std::unique_ptr<BlockIo>* out);
  virtual ~BlockIo() = default;
  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;

  const StorageIoFacts& facts() const { return facts_; }

  // An operation to fill in and start(), or nullptr when kMaxOps are taken.
  BlockOp* acquire();
  void release(BlockOp* op) { free_.push_back(op); }
  void start(BlockOp* op);
  // Gives everything started to whoever makes the calls. What the kernel does not take now is tried again
  // with the next submit(), which is worth calling at retry_ns(); what it refuses for long fails.
  virtual void submit() = 0;
  virtual uint64_t retry_ns() const { return kNever; }
  // submit(), then sleeps until something has ended, a watched descriptor becomes readable or `timeout_ns`
  // have passed. Reading what is watched is the caller's.
  virtual void submit_and_wait(uint64_t timeout_ns) = 0;
  void watch(std::array<int, kMaxWatched> fds) { watched_fds_ = fds; }
  // Calls finished(BlockOp*) for each operation that has ended; the owner must release() it, then or later.
  template <typename Finished>
  bool reap(Finished finished) {
    bool any = false;
    while (BlockOp* op = next_stopped()) {
      any = true;
      if (!advance_block(*op, op->failed_index, op->result, faults_)) {
        issue(op);
        continue;
      }
      if (!op->exclusive) exclusive_renames_ = false;
      in_flight_--;
      finished(op);
    }
    return any;
  }
  // Waits until nothing is under way. Buffers belong to operations until these have ended.
  void drain();

  // Registers the arena's memory with the kernel, once however many users it has; false when that was
  // refused: operations work all the same. The arena is kept until its last user lets go.
  bool add_arena(const std::shared_ptr<Arena>& arena);
  void drop_arena(const Arena* arena);
  // A file for BlockOp::file, or -errno. The caller may close its descriptor.
  virtual int add_file(int fd) = 0;
  virtual void drop_file(int file) = 0;

 protected:
  struct User {
    std::shared_ptr<Arena> arena;
    unsigned users;
    int index;  // of the registered buffer, -1: refused
  };

  BlockIo(StorageIo io, FaultPlan* faults);
  // The operation's chain is to be made.
  virtual void issue(BlockOp* op) = 0;
  // An operation whose chain has stopped, nullptr: none.
  virtual BlockOp* next_stopped() = 0;
  // 0 or an errno.
  virtual int register_memory(unsigned index, std::byte* base, size_t bytes) = 0;
  virtual void unregister_memory(unsigned index) = 0;

  FaultPlan* faults_;
  StorageIoFacts facts_;
  std::array<BlockOp, kMaxOps> ops_;
  std::array<int, kMaxWatched> watched_fds_{-1, -1};  // -1: none

 private:
  int buffer_index(const std::byte* memory, size_t bytes) const;

  std::vector<BlockOp*> free_;
  std::vector<User> arenas_;  // by address
  std::vector<unsigned> free_buffers_;
  unsigned in_flight_ = 0;  // started and not ended; one that has ended may still be its owner's
  bool exclusive_renames_ = true;
};

}  // namespace dualpath
