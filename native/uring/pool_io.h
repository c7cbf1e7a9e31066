// Storage operations by a fixed number of threads, where io_uring is refused (seccomp,
// kernel.io_uring_disabled, an old kernel): one thread makes the calls of a chain one after another (preadv,
// pwritev and so on) and an eventfd says that it has stopped.
#pragma once
#include <array>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "uring/block_io.h"

namespace dualpath {

class PoolIo final : public BlockIo {
 public:
  static constexpr unsigned kThreads = 16;

  static Status create(FaultPlan* faults, std::unique_ptr<BlockIo>* out);
  ~PoolIo() override;

  void submit() override;
  void submit_and_wait(uint64_t timeout_ns) override;
  int add_file(int fd) override;
  void drop_file(int file) override;

 protected:
  void issue(BlockOp* op) override { issued_.push_back(op); }
  BlockOp* next_stopped() override;
  int register_memory(unsigned, std::byte*, size_t) override;
  void unregister_memory(unsigned) override {}

 private:
  explicit PoolIo(FaultPlan* faults);
  void run();
  void make_chain(BlockOp& op);
  int make_call(BlockOp& op, BlockCall call);
  int transfer(BlockOp& op);

  int wake_fd_ = -1;
  std::vector<BlockOp*> issued_;   // the user's thread's: not yet given to the threads
  std::vector<BlockOp*> stopped_;  // the user's thread's: taken from the threads
  std::array<int, kMaxFiles> files_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable work_;
  std::array<BlockOp*, kMaxOps> queue_{};  // a ring
  unsigned queue_head_ = 0;
  unsigned queue_count_ = 0;
  std::vector<BlockOp*> finished_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dualpath
