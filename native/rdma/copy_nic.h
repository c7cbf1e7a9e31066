// Copies within a host through its NIC, as the paper's traffic manager makes them: two queue pairs of one
// device, connected to each other; a copy is RDMA writes on the first, a chain at a time, one doorbell and
// one completion each. A pair that breaks is built anew, after a while that grows.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "rdma/connection.h"
#include "rdma/copy_memory.h"
#include "rdma/progress.h"

namespace dualpath::rdma {

struct CopyNicOptions {
  TransferEngine* engine = nullptr;  // which outlives it
  Reactor* reactor = nullptr;        // the engine's
  std::shared_ptr<verbs::Verbs> verbs;
  bool emulated = false;  // as reports say
  std::string device;
  uint8_t port = 1;
  int gid_index = -1;         // -1: none (InfiniBand)
  uint8_t service_level = 0;  // of the class that copies are in
  uint8_t traffic_class = 0;  // DSCP << 2
  verbs::QueuePairOptions queue_pair;
  uint64_t chain_bytes = ConnectionOptions{}.chain_bytes;
  uint64_t in_flight_bytes = ConnectionOptions{}.in_flight_bytes;
};

struct CopyNicStatistics {
  verbs::QueuePairCounters counters;  // of all its queue pairs
  uint64_t rebuilt = 0;
  std::string first_error;  // of the last queue pair that broke, empty: none did
  std::string refused;      // memory it could not register, empty: none
  std::array<uint64_t, verbs::kRegionWays> registered_bytes{};
};

class CopyNic final : public CopyCarrier, private ConnectionOwner, private ProgressUser {
 public:
  // RDMA_UNAVAILABLE, INVALID_ARGUMENT, CAPACITY_EXHAUSTED, RDMA_FAILED. The owner's thread.
  static Status create(CopyNicOptions options, std::shared_ptr<CopyNic>* out);
  ~CopyNic() override;
  CopyNic(const CopyNic&) = delete;
  CopyNic& operator=(const CopyNic&) = delete;

  const CopyNicOptions& options() const { return options_; }
  CopyNicStatistics statistics();
  // No copy begins on it any more; what is in flight ends, and is copied the other way where that is wanted.
  // Call it until it says that nothing is left of it. Afterwards the engine can have another.
  bool end();
  bool ended() const override { return left_; }

  // As the engine uses it, on the reactor's thread.
  const char* transport() const override { return "loopback over verbs"; }
  const char* name() const override { return options_.device.c_str(); }
  bool carries_steps() const override { return true; }
  PeerResult check(const Geometry& local, uint32_t local_geometry, uint32_t remote_geometry) override;
  NicRefusal refusal(uint32_t from_geometry, uint32_t to_geometry) override;
  PeerResult begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) override;
  PeerResult post(PeerStep* step, bool* moved, uint32_t* block, PeerFailure* failure) override;
  void abandon(PeerStep* step) override;
  void close(uint64_t now) override;
  bool quiet(uint64_t now) override;
  void leave() override;
  uint64_t next_due() const override;

 private:
  explicit CopyNic(CopyNicOptions options);
  Status open_pair();
  Status join(Connection& from, const Connection& to);
  void retire_pair();
  void rebuild(uint64_t now);
  void finish(Step& step);

  void signal_came(uint8_t, uint32_t, uint64_t) override {}
  void bad_signal_came() override {}
  void connection_broke(Connection& connection, const verbs::WorkError& error) override;
  void connection_drained(Connection&) override {}
  void step_over(Step& step) override { over_.push_back(&step); }
  void credits_awaited() override {}

  bool deliver() override;
  void port_event(uint8_t, bool) override {}
  void device_failed(const std::string& cause) override;
  void stop() override { leave(); }

  const CopyNicOptions options_;
  std::shared_ptr<Progress> progress_;
  std::unique_ptr<CopyMemory> memory_;
  // The reactor's thread.
  std::unique_ptr<Connection> source_, target_;
  std::vector<std::unique_ptr<Connection>> retired_;
  std::vector<Step*> over_, delivering_;
  bool broken_ = false;
  uint64_t rebuild_at_ns_ = kNever;
  uint64_t back_off_ns_ = 0;
  uint64_t closing_until_ns_ = kNever;
  bool closing_ = false;
  bool left_ = false;
  verbs::QueuePairCounters past_;
  uint64_t rebuilt_ = 0;
  std::string first_error_;
};

}  // namespace dualpath::rdma
