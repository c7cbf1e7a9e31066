// A reliable connection (RC) queue pair with strict accounting: it never has more requests outstanding than
// its send queue has entries, whatever the provider would allow; a slot is free when a completion that covers
// it has been polled. A queue pair is made for one peer and one traffic class, and is not used again after an
// error.
#pragma once
#include <cstdint>
#include <memory>
#include <span>

#include "core/status.h"
#include "verbs/chain.h"
#include "verbs/completion_queue.h"
#include "verbs/fixed_ring.h"
#include "verbs/landing.h"
#include "verbs/operation.h"
#include "verbs/region.h"

namespace dualpath::verbs {

struct QueuePairOptions {
  uint32_t send_entries = 256;    // one of them is kept for the marker that drains the queue
  uint32_t receive_entries = 64;  // likewise
  uint32_t sges = 4;              // of a request
  uint32_t inline_bytes = 64;     // asked for; chain_options() says what was granted
  uint32_t landings = 1024;       // 0: announcements are told as they come, by their immediates
  uint8_t port = 1;
};

// What each side tells the other (handshake).
struct QueuePairAddress {
  uint32_t qp_num = 0;
  uint32_t psn = 0;
  uint32_t receives = 0;        // posted: the peer's first credits
  uint64_t credit_address = 0;  // where the peer writes how many receives it has posted since
  uint32_t credit_key = 0;
};

// Agreed by both sides (src/rdma/path.ts), and fixed for the queue pair's life.
struct PathParameters {
  QueuePairAddress peer;
  uint16_t peer_lid = 0;      // InfiniBand
  ibv_gid peer_gid{};         // RoCE, or InfiniBand across routers
  int gid_index = -1;         // of this side; -1: not global
  uint8_t service_level = 0;  // InfiniBand SL, 0 to 15; on RoCE the priority
  uint8_t traffic_class = 0;  // of the IP header: DSCP << 2
  uint8_t hop_limit = 64;
  uint32_t mtu_bytes = 1024;
  uint8_t timeout = 17;        // 4.096 us * 2^timeout: an ACK is late; 17 to 31
  uint8_t retry_count = 6;     // 0 to 6: soft-RoCE takes 7 for ever
  uint8_t rnr_retry = 6;       // 1 to 6: 7 would mean for ever
  uint8_t min_rnr_timer = 12;  // 0.64 ms
};

struct QueuePairCounters {
  uint64_t post_calls = 0, requests = 0, chains = 0, bytes = 0;
  uint64_t completions = 0;    // of the send queue, that were successes
  uint64_t errors = 0;         // completions that were not, without flushed ones
  uint64_t flushed = 0;        // noise after the first error
  uint64_t refused = 0;        // posts the provider refused for want of room
  uint64_t messages = 0;       // taken in
  uint64_t announcements = 0;  // taken in
};

// Called on the polling thread; must not destroy the queue pair.
class QueuePairEvents {
 public:
  virtual ~QueuePairEvents() = default;
  virtual void on_message(QueuePair& from, std::span<const std::byte> message) = 0;
  virtual void on_announced(QueuePair& from, uint64_t cookie) = 0;  // of the landing, or the immediate
  // Its first error; it is draining already.
  virtual void on_broken(QueuePair& queue_pair, const WorkError& error) = 0;
  // Nothing is in flight any more, in either direction: it can be destroyed and built anew.
  virtual void on_drained(QueuePair& queue_pair) = 0;
};

enum class PostResult { kPosted, kAgain, kFailed };

class QueuePair {
 public:
  static constexpr uint32_t kMessageBytes = 32;
  enum class State { kInitialised, kReady, kDraining, kDrained };

  // Made, initialised, receives posted. CAPACITY_EXHAUSTED, INVALID_ARGUMENT, RDMA_FAILED, MEMORY_LIMIT.
  static Status create(CompletionQueue& completion_queue, const QueuePairOptions& options, uint32_t psn,
                       QueuePairEvents* events, std::unique_ptr<QueuePair>* out);
  ~QueuePair();  // destroys it whatever is in flight; that ends every operation, too
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  QueuePairAddress address() const;
  // To RTR, then RTS. INVALID_ARGUMENT names what is out of range.
  Status connect(const PathParameters& path);
  // To the error state. Nothing can be posted any more; on_drained() follows when all has come out.
  void drain();

  // For chains to be posted here: at most half the send queue.
  ChainOptions chain_options() const { return chain_options_; }
  // Requests that the send queue has room for; none once it drains.
  uint32_t room() const {
    return state_ == State::kReady ? usable_ - static_cast<uint32_t>(posted_ - released_) : 0;
  }
  uint64_t bytes_in_flight() const { return bytes_in_flight_; }
  uint32_t credits() const;  // messages and announcements the peer has receives for

  // One ibv_post_send, one completion. kAgain: no room or no credit now; what was not posted stays in the
  // chain. kFailed: the operation has the error. On kPosted the chain is empty again.
  PostResult post(Chain& chain, Operation* operation);
  // Appends a message of 1 to kMessageBytes bytes to a chain that is posted here next; false when there is no
  // room.
  bool append_message(Chain& chain, std::span<const std::byte> message);

  State state() const { return state_; }
  const WorkError& first_error() const { return first_error_; }
  LandingTable& landings() { return landings_; }
  const QueuePairCounters& counters() const { return counters_; }
  uint32_t qp_num() const { return qp_num_; }

 private:
  friend class CompletionQueue;
  struct InFlight {
    uint64_t end;  // position after its last request
    Operation* operation;
    bool signalled;
    uint64_t bytes;
  };

  QueuePair(CompletionQueue& completion_queue, const QueuePairOptions& options, QueuePairEvents* events);
  Status make(uint32_t psn);
  Status make_control_memory();
  Status post_receive(uint32_t buffer, WorkKind kind);
  void completed(const ibv_wc& wc);
  void sent(const ibv_wc& wc);
  void received(const ibv_wc& wc);
  void retire_until(uint64_t position);
  void retire_front();
  void offer_credits();
  void cover_tail();
  void fail(const WorkError& error);
  PostResult refused(Chain& chain, Operation* operation, uint32_t accepted, int error);
  void finish_drain();
  void destroy();

  // Control memory: the credit cell that the peer writes, the cell our own is sent from (64 bytes each),
  // receive buffers, staging for outgoing messages.
  std::byte* credit_out() const { return control_ + 64; }
  std::byte* receive_buffer(uint32_t i) const { return control_ + 128 + size_t{i} * kMessageBytes; }
  std::byte* staging(uint64_t position) const {
    return receive_buffer(options_.receive_entries + static_cast<uint32_t>(position % options_.send_entries));
  }

  CompletionQueue& completion_queue_;
  QueuePairOptions options_;
  QueuePairEvents* const events_;
  ChainOptions chain_options_;
  State state_ = State::kInitialised;
  ibv_qp* qp_ = nullptr;  // nullptr once destroyed
  uint32_t qp_num_ = 0;
  uint64_t prefix_ = 0;  // of wr_ids
  bool attached_ = false;
  uint32_t psn_ = 0;

  uint32_t usable_ = 0;  // send entries without the marker's
  uint64_t posted_ = 0, released_ = 0;
  FixedRing<InFlight> in_flight_;
  uint32_t signalled_in_flight_ = 0;
  uint64_t bytes_in_flight_ = 0;
  bool send_drained_ = false, receive_drained_ = false;
  WorkError first_error_;

  std::byte* control_ = nullptr;
  std::unique_ptr<MemoryRegion> control_region_;
  PathParameters path_;
  uint64_t credits_used_ = 0;
  uint64_t receives_posted_ = 0;   // ever
  uint64_t receives_offered_ = 0;  // of them, that the peer knows of
  Chain own_chain_;                // of one request: credits, covers
  LandingTable landings_;
  QueuePairCounters counters_;
};

}  // namespace dualpath::verbs
