// An engine of another process of this host, over shared memory: its arenas are mapped here and written into
// by this reactor's thread; signals go through a mailbox. Emulation of a NIC, as loopback within a process
// is; reports name it "shared-memory".
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "shared/segment.h"
#include "store/posix.h"
#include "transfer/loopback.h"

namespace dualpath::shared {

struct RemoteArena {
  int fd = -1;  // in the peer's process
  uint64_t bytes = 0;
};

struct RemoteGeometry {
  uint32_t id = 0;
  GeometryOptions layout;  // without arenas
  std::vector<RemoteArena> arenas;
};

// What an engine tells one that is to send to it; both are processes of one user on one host.
struct Invitation {
  int pid = 0;
  int segment_fd = -1;
  int bell_fd = -1;  // of a pipe
  uint64_t nonce = 0;
  uint32_t mailbox = 0;
  uint32_t counter_entries = 0;
  std::vector<RemoteGeometry> geometries;
};

struct SharedStep final : PeerStep {
  StepRequest request{};
  uint32_t next_block = 0;
  uint64_t bytes = 0;
  PeerFailure failure;
};

// Where steps end: told to their owners by the transport's next poll.
class StepsOver {
 public:
  virtual SharedStep* take_step() = 0;  // nullptr: as many as there may be are under way
  virtual void step_over(SharedStep* step) = 0;

 protected:
  ~StepsOver() = default;
};

class SharedPeer final : public Peer {
 public:
  static constexpr uint32_t kChunkBytes = 256 << 10;

  // PEER_LOST when the process has gone, INVALID_ARGUMENT when what it says cannot be, MEMORY_LIMIT.
  static Status create(std::string name, const Invitation& invitation, StepsOver* over,
                       std::unique_ptr<SharedPeer>* out);

  const char* transport() const override { return "shared-memory"; }
  const char* name() const override { return name_.c_str(); }
  PeerResult check(const Geometry& local, uint32_t local_geometry, uint32_t remote_geometry) override;
  bool carries_steps() const override { return true; }
  PeerResult begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) override;
  PeerResult post(PeerStep* step, bool* moved, uint32_t* block, PeerFailure* failure) override;
  void abandon(PeerStep* step) override;

  // The owner's thread: nothing is sent to it any more.
  void lose() { lost_.store(true, std::memory_order_release); }
  uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }

 private:
  SharedPeer(std::string name, StepsOver* over) : name_(std::move(name)), over_(over) {}
  Status map_geometry(int pid, const RemoteGeometry& remote);
  PeerResult copy_chunk(SharedStep& step, uint32_t* block);
  bool room_for(uint32_t signals);
  void put_signals(const StepRequest& request);

  const std::string name_;
  StepsOver* const over_;
  std::unique_ptr<Segment> segment_;
  Mailbox* mailbox_ = nullptr;
  store::ScopedFd bell_;
  uint32_t counter_entries_ = 0;
  std::array<std::shared_ptr<const Geometry>, GeometryTable::kMax> geometries_;
  std::atomic<bool> lost_{false};
  std::atomic<uint64_t> sent_bytes_{0};
};

}  // namespace dualpath::shared
