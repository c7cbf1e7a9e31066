// Whole-file block reads and writes through one io_uring: open, read or write (short ones continued),
// publish by rename, close. A fixed table of operations; nothing is allocated per block.
#pragma once
#include <liburing.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/faults.h"
#include "core/status.h"

namespace dualpath {

enum class BlockCall : uint8_t { kOpen, kTransfer, kSync, kPublish };

struct BlockOp {
  static constexpr size_t kPathBytes = 128;

  bool write = false;
  bool durable = false;
  bool direct = false;                // O_DIRECT
  BlockCall call = BlockCall::kOpen;  // the one under way, or the one that failed
  int error = 0;                      // errno of `call`, 0 when all went well
  int fd = -1;
  int directory_fd = -1;
  std::byte* buffer = nullptr;
  size_t bytes = 0;
  size_t done = 0;  // less than bytes after a read that met the end of the file
  char path[kPathBytes] = {};
  char final_path[kPathBytes] = {};  // writes only
  // The owner's.
  void* owner = nullptr;  // who is told that it ended
  void* context = nullptr;
  uint32_t index = 0;
  std::array<uint8_t, 32> key{};
  uint64_t due_ns = 0;
};

class BlockIo {
 public:
  static constexpr unsigned kMaxOps = 128;

  // STORAGE_IO when io_uring is refused, saying by what (seccomp, sysctl kernel.io_uring_disabled).
  static Status create(FaultPlan* faults, std::unique_ptr<BlockIo>* out);
  ~BlockIo();
  BlockIo(const BlockIo&) = delete;
  BlockIo& operator=(const BlockIo&) = delete;

  int fd() const { return ring_.ring_fd; }

  // An operation to fill in and start(), or nullptr when kMaxOps are taken.
  BlockOp* acquire();
  void start(BlockOp* op, bool direct);
  // Gives everything prepared to the kernel.
  void submit();
  // Calls finished(BlockOp*) for each operation that has ended; the owner must release() it, then or later.
  template <typename Finished>
  bool reap(Finished finished) {
    bool any = false;
    io_uring_cqe* cqe;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      BlockOp* op = static_cast<BlockOp*>(io_uring_cqe_get_data(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      any = true;
      if (op == nullptr || !advance(op, result)) continue;
      in_flight_--;
      finished(op);
    }
    return any;
  }
  void release(BlockOp* op);

 private:
  BlockIo() = default;
  bool advance(BlockOp* op, int result);
  bool fail(BlockOp* op, int error);
  void prepare_transfer(BlockOp* op);
  void prepare_publish(BlockOp* op);
  void prepare_close(BlockOp* op);
  io_uring_sqe* sqe();

  io_uring ring_{};
  bool ready_ = false;
  FaultPlan* faults_ = nullptr;
  std::array<BlockOp, kMaxOps> ops_;
  std::vector<BlockOp*> free_;
  unsigned in_flight_ = 0;  // started and not ended; one that has ended may still be its owner's
};

}  // namespace dualpath
