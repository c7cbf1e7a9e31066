// A queue pair to one peer in one traffic class, and the steps that go over it: expanded into a chain at a
// time, each chain one doorbell and one completion, a step's signals behind its data. On the reactor's
// thread.
#pragma once
#include <memory>
#include <string>

#include "transfer/peer.h"
#include "verbs/expand.h"
#include "verbs/queue_pair.h"

namespace dualpath::rdma {

class Connection;

struct Step final : PeerStep {
  StepRequest request{};
  Connection* connection = nullptr;
  verbs::Operation operation;
  verbs::PartExpander expander;
  uint64_t bytes = 0;  // posted
  bool expanded = false;
  bool signalled = false;
};

// The transport.
class ConnectionOwner {
 public:
  virtual void signal_came(uint8_t mode, uint32_t counter, uint64_t value) = 0;
  virtual void bad_signal_came() = 0;
  virtual void connection_broke(Connection& connection, const verbs::WorkError& error) = 0;
  virtual void connection_drained(Connection& connection) = 0;
  virtual void step_over(Step& step) = 0;  // to be released, later
  // A step waits for the peer's receives. The peer writes into memory that there are more: no event says so.
  virtual void credits_awaited() = 0;

 protected:
  ~ConnectionOwner() = default;
};

struct ConnectionOptions {
  uint32_t id = 0;
  uint8_t traffic_class = DP_CLASS_KV;
  int gid_index = -1;
  uint32_t psn = 0;
  verbs::QueuePairOptions queue_pair;
  uint64_t chain_bytes = 1 << 20;      // then it is posted
  uint64_t in_flight_bytes = 8 << 20;  // then nothing more is, until some have arrived
};

class Connection final : private verbs::QueuePairEvents {
 public:
  static Status open(ConnectionOwner& owner, verbs::CompletionQueue& completion_queue,
                     const ConnectionOptions& options, std::unique_ptr<Connection>* out);
  ~Connection() override;  // when none of its steps is in use
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const ConnectionOptions& options() const { return options_; }
  uint32_t id() const { return options_.id; }
  verbs::QueuePairAddress address() const { return queue_pair_->address(); }
  Status connect(const verbs::PathParameters& path) { return queue_pair_->connect(path); }
  void drain();
  // The queue pair goes, whatever is in flight; steps end.
  void destroy();
  bool destroyed() const { return queue_pair_ == nullptr; }
  bool draining() const {
    return queue_pair_ != nullptr && queue_pair_->state() == verbs::QueuePair::State::kDraining;
  }
  // Nothing is in flight in either direction.
  bool quiet() const;
  uint32_t steps() const { return steps_in_use_; }
  const verbs::QueuePair* queue_pair() const { return queue_pair_.get(); }
  const verbs::WorkError& first_error() const { return first_error_; }
  // Of the queue pair, also when that is gone.
  verbs::QueuePairCounters counters() const;
  uint32_t qp_num() const { return qp_num_; }

  // As Peer has them. `from` and `to` are nullptr for signals alone.
  PeerResult begin(const StepRequest& request, const verbs::KeyedGeometry* from,
                   const verbs::KeyedGeometry* to, Step** out, PeerFailure* failure);
  PeerResult post(Step& step, bool* moved, uint32_t* block, PeerFailure* failure);
  void abandon(Step& step);
  // Its owner has been told of its end.
  void release(Step& step);
  PeerFailure failure_of(const verbs::WorkError& error) const;

  // Peers that lead here; the transport's to keep.
  uint32_t peer = DP_NONE;

 private:
  Connection(ConnectionOwner& owner, const ConnectionOptions& options);
  bool append_signals(Step& step);
  PeerResult post_chain(Step& step, bool* moved, PeerFailure* failure);
  void on_message(verbs::QueuePair& from, std::span<const std::byte> message) override;
  void on_announced(verbs::QueuePair& from, uint64_t immediate) override;
  void on_broken(verbs::QueuePair& queue_pair, const verbs::WorkError& error) override;
  void on_drained(verbs::QueuePair& queue_pair) override;

  ConnectionOwner& owner_;
  const ConnectionOptions options_;
  std::unique_ptr<verbs::QueuePair> queue_pair_;
  std::unique_ptr<verbs::Chain> chain_;
  Step* building_ = nullptr;  // whose requests the chain holds
  std::unique_ptr<Step[]> steps_;
  std::vector<Step*> free_;
  uint32_t steps_in_use_ = 0;
  uint32_t qp_num_ = 0;
  verbs::WorkError first_error_;
  verbs::QueuePairCounters last_counters_;
};

}  // namespace dualpath::rdma
