// What an engine shares with the processes that send to it over shared memory: a mailbox for each of them,
// with the signals of its steps in a ring, and whether it may write. The sender copies blocks into the
// engine's arenas itself and raises no counter there: which use of a counter a signal is for, its owner
// decides (Door::signal).
//
// Everything here may be written by others at any moment: what is read is read once and checked.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "core/status.h"
#include "transfer/peer.h"

namespace dualpath::shared {

struct SharedSignal {
  uint32_t counter;
  uint32_t mode;
  uint64_t value;
};

// One sender. It is never given to another: a process that was stopped may go on at any time.
struct Mailbox {
  static constexpr uint32_t kEntries = 1024;

  alignas(64) std::atomic<uint32_t> open;  // by the owner; 0: nothing may be written any more
  alignas(64) std::atomic<uint32_t> busy;  // by the sender: it may be writing into the owner's memory
  std::atomic<uint32_t> tail;              // by the sender: signals ever put in
  alignas(64) std::atomic<uint32_t> head;  // by the owner: signals ever taken out
  SharedSignal entries[kEntries];
};

struct SegmentHeader {
  uint64_t magic;
  uint64_t nonce;
  std::atomic<uint32_t> sleeping;  // the owner's thread: ring its bell
};

static_assert(std::atomic<uint32_t>::is_always_lock_free);

class Segment {
 public:
  static constexpr uint32_t kMailboxes = 256;
  static constexpr uint64_t kMagic = 0x31626d7068747564;  // "dualpmb1"

  // MEMORY_LIMIT.
  static Status create(std::unique_ptr<Segment>* out);
  // Another process's. INVALID_ARGUMENT when it is not what was told.
  static Status map(int fd, uint64_t nonce, std::unique_ptr<Segment>* out);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  int memfd() const { return memfd_; }  // of one made here
  uint64_t nonce() const { return nonce_; }
  SegmentHeader& header() { return *static_cast<SegmentHeader*>(base_); }
  Mailbox& mailbox(uint32_t index);

 private:
  Segment() = default;

  void* base_ = nullptr;
  int memfd_ = -1;
  uint64_t nonce_ = 0;
};

// Whether a sender may write, and that it does: Dekker's algorithm with Mailbox::open. While one is held the
// owner's memory is the sender's to write into.
class Writing {
 public:
  explicit Writing(Mailbox& mailbox) : mailbox_(mailbox) {
    mailbox_.busy.store(1, std::memory_order_seq_cst);
    allowed_ = mailbox_.open.load(std::memory_order_seq_cst) != 0;
  }
  ~Writing() { mailbox_.busy.store(0, std::memory_order_release); }
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  bool allowed() const { return allowed_; }

 private:
  Mailbox& mailbox_;
  bool allowed_;
};

// The owner's side: from now on nothing is begun; whether nothing is under way either.
inline bool shut(Mailbox& mailbox) {
  mailbox.open.store(0, std::memory_order_seq_cst);
  return mailbox.busy.load(std::memory_order_seq_cst) == 0;
}

}  // namespace dualpath::shared
