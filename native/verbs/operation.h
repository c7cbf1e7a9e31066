// What a caller waits for: any number of chains, on one or several queue pairs, that together end once. While
// any of them is in flight it holds the memory they read or write. All on one thread.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "verbs/memory_owner.h"
#include "verbs/work_error.h"

namespace dualpath::verbs {

class Operation {
 public:
  using Ended = void (*)(Operation& operation, void* context);

  Operation() = default;
  ~Operation() {
    if (chains_ != 0) abort();
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Not while it is under way. `ended` is called once, after the hold has been dropped.
  void begin(MemoryOwner::Hold hold, Ended ended, void* context) {
    if (under_way_) abort();
    under_way_ = true;
    sealed_ = false;
    error_ = WorkError{};
    hold_ = std::move(hold);
    ended_ = ended;
    context_ = context;
  }
  // Nothing more will be posted; it ends when what is in flight has completed, which may be now.
  void seal() {
    sealed_ = true;
    end_if_over();
  }
  // Fails with this cause unless it has one; what is in flight completes all the same.
  void fail(const WorkError& error) {
    if (error_.ok()) error_ = error;
  }

  bool under_way() const { return under_way_; }
  uint32_t chains_in_flight() const { return chains_; }
  const WorkError& error() const { return error_; }

 private:
  friend class QueuePair;
  void chain_posted() { chains_++; }
  void chain_ended() {
    chains_--;
    end_if_over();
  }
  void end_if_over() {
    if (!under_way_ || !sealed_ || chains_ != 0) return;
    under_way_ = false;
    hold_.drop();
    ended_(*this, context_);
  }

  bool under_way_ = false;
  bool sealed_ = false;
  uint32_t chains_ = 0;
  WorkError error_;
  MemoryOwner::Hold hold_;
  Ended ended_ = nullptr;
  void* context_ = nullptr;
};

}  // namespace dualpath::verbs
