// Faults that tests inject where they would happen for real. Every field is off at zero.
#pragma once
#include <atomic>
#include <cstdint>

namespace dualpath {

struct FaultPlan {
  std::atomic<uint32_t> short_read_bytes{0};   // reads return at most this many bytes at a time
  std::atomic<uint32_t> short_write_bytes{0};  // writes take at most this many bytes at a time
  std::atomic<int64_t> read_error_after{0};    // n: the nth read from now fails with read_errno
  std::atomic<int32_t> read_errno{0};
  std::atomic<int64_t> write_error_after{0};  // n: the nth write from now fails with write_errno
  std::atomic<int32_t> write_errno{0};
  std::atomic<int64_t> flip_byte_after{0};  // n: the nth chunk copied from now delivers a flipped bit
  std::atomic<uint64_t> read_delay_ns{0};   // every storage read takes this much longer
  std::atomic<int64_t> submit_error_after{
      0};  // n: from the nth on, submit_errors submissions to io_uring fail
  std::atomic<uint32_t> submit_errors{0};
  std::atomic<int32_t> submit_errno{0};
  std::atomic<uint32_t> submit_at_most{0};  // the next submission takes no more requests than this
  std::atomic<uint32_t> accept_bad_blocks{
      0};                                  // 1: a block that was read is served whatever its checksums say
  std::atomic<int32_t> register_errno{0};  // registering a buffer fails with this
  // Renames that shall replace nothing fail with EINVAL, as on 9p and NFS, and cancel nothing that is linked
  // to them, as in Linux 6.1.
  std::atomic<bool> refuse_exclusive_renames{false};

  // True when the countdown reaches its end with this call.
  static bool strikes(std::atomic<int64_t>& countdown) {
    return countdown.load(std::memory_order_relaxed) > 0 &&
           countdown.fetch_sub(1, std::memory_order_relaxed) == 1;
  }
};

inline bool refuses_exclusive_renames(const FaultPlan* faults) {
  return faults != nullptr && faults->refuse_exclusive_renames.load(std::memory_order_relaxed);
}

}  // namespace dualpath
