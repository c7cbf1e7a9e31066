// The verbs transport: one engine on one port of an RDMA device. Connections to peers, each of one traffic
// class, are made, connected, drained and closed on its owner's word; what happens to them is told in events.
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/live.h"
#include "rdma/peer.h"
#include "rdma/port_claim.h"
#include "rdma/progress.h"

namespace dualpath::rdma {

struct TransportOptions {
  TransferEngine* engine = nullptr;  // which outlives the transport
  Reactor* reactor = nullptr;        // the engine's
  std::shared_ptr<verbs::Verbs> verbs;
  bool emulated = false;  // as reports say
  std::string device;
  uint8_t port = 1;
  int gid_index = -1;      // -1: none (InfiniBand within a subnet)
  bool exclusive = false;  // no other engine of the host has the port
  verbs::QueuePairOptions queue_pair;
  uint64_t chain_bytes = ConnectionOptions{}.chain_bytes;
  uint64_t in_flight_bytes = ConnectionOptions{}.in_flight_bytes;
  uint32_t max_connections = 256;
  std::function<void()> wake_owner;  // there are events
};

struct TransportFacts {
  std::string provider;
  bool emulated;
  std::string device;
  uint8_t port;
  int gid_index;
  ibv_gid gid;
  verbs::PortFacts port_facts;
};

// One end of a connection, as the other has to know it.
struct ConnectionHalf {
  uint32_t connection = 0;
  verbs::QueuePairAddress address;
  ibv_gid gid{};
  uint16_t lid = 0;
};

struct TransportEvent {
  enum class Kind { kBroke, kDrained, kPort, kDeviceFailed };
  explicit TransportEvent(Kind of, const Connection* connection_of = nullptr);
  Kind kind;
  uint32_t connection = 0;
  uint32_t peer = DP_NONE;
  verbs::WorkError error;  // kBroke
  uint8_t port = 0;        // kPort
  bool up = false;         // kPort
  std::string cause;       // kDeviceFailed
};

struct ConnectionStatistics {
  uint32_t connection, peer, qp_num, credits;
  uint8_t traffic_class;
  verbs::QueuePair::State state;
  uint64_t in_flight_bytes;
  verbs::QueuePairCounters counters;
};

struct TransportStatistics {
  std::vector<ConnectionStatistics> connections;  // open now
  verbs::QueuePairCounters closed;                // of those that are not any more
  uint64_t connections_opened = 0, bad_signals = 0;
  uint32_t completion_entries = 0, completion_entries_used = 0;
};

class Transport final : public PeerTransport, private ConnectionOwner, private ProgressUser {
 public:
  // RDMA_UNAVAILABLE, INVALID_ARGUMENT, CAPACITY_EXHAUSTED, RDMA_FAILED.
  static Status create(TransportOptions options, std::shared_ptr<Transport>* out);
  ~Transport() override;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // The owner's thread, as long as the reactor runs.
  Status facts(TransportFacts* out);
  Status memory(RemoteMemory* out) { return memory_->describe(out); }
  Status add_peer(const std::string& name, RemoteMemory memory, uint32_t* id);
  Status open(uint8_t traffic_class, int gid_index, ConnectionHalf* out);
  // The peer's connection of its class from now on; the one before is closed.
  Status connect(uint32_t connection, uint32_t peer, const verbs::PathParameters& path);
  Status drain(uint32_t connection);
  Status close_connection(uint32_t connection);
  TransportStatistics statistics();
  std::vector<TransportEvent> take_events();
  void shut_down();

  // The reactor's thread.
  void close(uint64_t now) override;
  bool quiet(uint64_t now) override;
  void leave() override;
  uint64_t next_due() const override;

 private:
  explicit Transport(TransportOptions options);
  Status run(const std::function<Status()>& work);
  Status find(uint32_t id, Connection** out);
  Status open_now(uint8_t traffic_class, int gid_index, uint32_t psn, ConnectionHalf* out);
  Status connect_now(uint32_t connection, uint32_t peer, const verbs::PathParameters& path);
  void retire(std::unique_ptr<Connection> connection);
  void destroy_all();
  void await_drain();
  void end_drains();
  void tell(TransportEvent event);

  void signal_came(uint8_t mode, uint32_t counter, uint64_t value) override;
  void bad_signal_came() override { bad_signals_++; }
  void connection_broke(Connection& connection, const verbs::WorkError& error) override;
  void connection_drained(Connection& connection) override;
  void step_over(Step& step) override { over_.push_back(&step); }
  void credits_awaited() override { credits_awaited_ = true; }

  bool deliver() override;
  void port_event(uint8_t port, bool up) override;
  void device_failed(const std::string& cause) override;
  void stop() override { leave(); }

  const TransportOptions options_;
  std::shared_ptr<Door> door_;
  std::shared_ptr<Progress> progress_;
  std::shared_ptr<RegisteredMemory> memory_;
  std::unique_ptr<PortClaim> claim_;

  // The reactor's thread.
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> retired_;  // closed, with steps still in use
  std::vector<std::pair<uint32_t, VerbsPeer*>> peers_;
  std::vector<Step*> over_, delivering_;
  std::string flush_failure_;     // of memory of a GPU, until deliver() has told of it
  bool signalled_ = false;        // since the last deliver()
  bool credits_awaited_ = false;  // likewise
  uint64_t credits_poll_ns_ = 0;
  uint32_t last_id_ = 0;
  verbs::QueuePairCounters closed_;
  uint64_t bad_signals_ = 0;
  bool closing_ = false;
  bool left_ = false;
  uint64_t closing_until_ns_ = kNever;
  uint64_t draining_until_ns_ = kNever;  // then what still drains is destroyed

  std::mutex events_mutex_;
  std::vector<TransportEvent> events_;
  Live<LiveKind::kVerbsTransport> live_;
};

}  // namespace dualpath::rdma
