// One direction of a network link with a rate: a token bucket kept as a virtual clock. A transfer
// reserves its bytes and learns when the last of them has crossed; the link is busy exactly
// bytes / rate, so nothing drifts. Safe to use from several threads. Emulates a NIC: where the bytes
// really go is the caller's business.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace dualpath {

class RateLink {
 public:
  // bytes_per_s 0: not limited (bytes are still counted).
  RateLink(std::string name, uint64_t bytes_per_s) : name_(std::move(name)), bytes_per_s_(bytes_per_s) {}

  // Time at which `bytes` reserved now have crossed.
  uint64_t reserve(uint64_t bytes, uint64_t now) {
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    operations_.fetch_add(1, std::memory_order_relaxed);
    if (bytes_per_s_ == 0) return now;
    const uint64_t cost = duration_ns(bytes);
    busy_ns_.fetch_add(cost, std::memory_order_relaxed);
    uint64_t free_at = free_at_.load(std::memory_order_relaxed);
    uint64_t end;
    do {
      end = std::max(free_at, now) + cost;
    } while (!free_at_.compare_exchange_weak(free_at, end, std::memory_order_relaxed));
    return end;
  }

  // Whether another transfer may be queued: the link has work for no longer than lookahead.
  bool accepts(uint64_t now, uint64_t lookahead_ns) const { return free_at() <= now + lookahead_ns; }
  uint64_t free_at() const { return free_at_.load(std::memory_order_relaxed); }

  uint64_t duration_ns(uint64_t bytes) const {
    return bytes_per_s_ == 0
               ? 0
               : static_cast<uint64_t>(static_cast<unsigned __int128>(bytes) * 1'000'000'000u / bytes_per_s_);
  }

  const std::string& name() const { return name_; }
  uint64_t bytes_per_s() const { return bytes_per_s_; }
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  uint64_t operations() const { return operations_.load(std::memory_order_relaxed); }
  uint64_t busy_ns() const { return busy_ns_.load(std::memory_order_relaxed); }

 private:
  const std::string name_;
  const uint64_t bytes_per_s_;
  std::atomic<uint64_t> free_at_{0};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<uint64_t> operations_{0};
  std::atomic<uint64_t> busy_ns_{0};
};

}  // namespace dualpath
