// Memory in flight belongs to the operation. A MemoryOwner stands for memory that may be read or written by a
// NIC; each reason why it may be is a Hold, and whoever wants the memory back calls retire(). The release
// runs once, when it is retired and the last hold is gone. Holds are dropped in three places only: an
// Operation whose completions have been polled, the peer's word that it will not write any more, a queue pair
// that is quiescent. All on one thread.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <utility>

namespace dualpath::verbs {

class MemoryOwner {
 public:
  using Release = void (*)(void* context, uint64_t cookie);

  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Hold& operator=(Hold&& other) noexcept {
      if (this != &other) {
        drop();
        owner_ = std::exchange(other.owner_, nullptr);
      }
      return *this;
    }
    ~Hold() { drop(); }
    explicit operator bool() const { return owner_ != nullptr; }

   private:
    friend class MemoryOwner;
    friend class Operation;
    friend class LandingTable;
    explicit Hold(MemoryOwner* owner) : owner_(owner) {}
    void drop() {
      if (owner_ != nullptr) std::exchange(owner_, nullptr)->dropped();
    }
    MemoryOwner* owner_ = nullptr;
  };

  MemoryOwner(Release release, void* context, uint64_t cookie)
      : release_(release), context_(context), cookie_(cookie) {}
  // Destroying it while something may still touch the memory would be the bug this class is there to prevent.
  ~MemoryOwner() {
    if (holds_ != 0) abort();
  }
  MemoryOwner(const MemoryOwner&) = delete;
  MemoryOwner& operator=(const MemoryOwner&) = delete;

  Hold hold() {
    holds_++;
    return Hold(this);
  }
  void retire() {
    if (retired_) return;
    retired_ = true;
    if (holds_ == 0) release_(context_, cookie_);
  }
  uint32_t holds() const { return holds_; }

 private:
  void dropped() {
    if (--holds_ == 0 && retired_) release_(context_, cookie_);
  }

  const Release release_;
  void* const context_;
  const uint64_t cookie_;
  uint32_t holds_ = 0;
  bool retired_ = false;
};

}  // namespace dualpath::verbs
