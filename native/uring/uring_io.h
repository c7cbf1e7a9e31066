// Storage operations through one io_uring (liburing, Linux 5.19 or later): each chain is linked requests on a
// direct descriptor of the operation's own, reads and writes use registered buffers where the memory could be
// registered, and a few chains at a time are given to the kernel in one system call.
#pragma once
#include <liburing.h>

#include <memory>
#include <vector>

#include "uring/block_io.h"

namespace dualpath {

class UringIo final : public BlockIo {
 public:
  static Status create(FaultPlan* faults, std::unique_ptr<BlockIo>* out);
  ~UringIo() override;

  void submit() override;
  uint64_t retry_ns() const override { return retry_ns_; }
  void submit_and_wait(uint64_t timeout_ns) override;
  int add_file(int fd) override;
  void drop_file(int file) override;

 protected:
  void issue(BlockOp* op) override;
  BlockOp* next_stopped() override;
  int register_memory(unsigned index, std::byte* base, size_t bytes) override;
  void unregister_memory(unsigned index) override;

 private:
  explicit UringIo(FaultPlan* faults);
  Status set_up();
  void enable();
  void prepare_transfer(const BlockOp* op, int file, io_uring_sqe* entry);
  void prepare(BlockOp* op, BlockCall call, io_uring_sqe* entry);
  void add_call(BlockOp* op, unsigned index, unsigned flags);
  int enter();
  void settle(unsigned waiting, int rc);
  void take_back(unsigned entries_left, int error);
  bool answered(BlockOp& op, unsigned index, int result);

  io_uring ring_{};
  bool ready_ = false;
  bool enabled_ = false;
  unsigned unsubmitted_ = 0;  // chains since the last submission
  unsigned failures_ = 0;     // submissions in a row of which the kernel took nothing
  uint64_t retry_ns_ = kNever;
  std::vector<BlockOp*> stopped_;  // chains that ended here, not by a completion
  std::array<bool, kMaxFiles> files_{};
};

}  // namespace dualpath
