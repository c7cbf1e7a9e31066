// The loopback transport: engines of one process, in any thread, that meet by name. A write is a memcpy
// into the peer's region by the sender's thread, as an RDMA write needs no work of the target's CPU.
// It is emulation: no wire, no NIC; what it reports is named "loopback".
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>

#include "core/status.h"
#include "transfer/door.h"
#include "transfer/peer.h"

namespace dualpath {

// Geometries of one engine by number. Appended to by the owner, read by anyone, never shrunk.
class GeometryTable {
 public:
  static constexpr uint32_t kMax = 64;

  bool add(std::shared_ptr<const Geometry> geometry, uint32_t* id) {
    const uint32_t n = count_.load(std::memory_order_relaxed);
    if (n == kMax) return false;
    entries_[n] = std::move(geometry);
    count_.store(n + 1, std::memory_order_release);
    *id = n;
    return true;
  }
  const std::shared_ptr<const Geometry>* find(uint32_t id) const {
    return id < count_.load(std::memory_order_acquire) ? &entries_[id] : nullptr;
  }
  // When nobody looks any more.
  void clear() {
    count_.store(0, std::memory_order_release);
    for (auto& entry : entries_) entry.reset();
  }

 private:
  std::array<std::shared_ptr<const Geometry>, kMax> entries_;
  std::atomic<uint32_t> count_{0};
};

// What an engine offers its peers. Once closed, no peer touches its memory again: writers hold the
// mutex shared for the length of one part, close() takes it alone.
class LoopbackEndpoint {
 public:
  LoopbackEndpoint(std::string name, std::shared_ptr<Door> door, std::shared_ptr<NicLink> ingress);

  const std::string& name() const { return name_; }
  GeometryTable& geometries() { return geometries_; }
  void close();
  // Closed, and its owner has ended: peers that were connected hold nothing of its memory any more.
  void drop_memory();

 private:
  friend class LoopbackPeer;
  const std::string name_;
  std::shared_ptr<Door> door_;
  std::shared_ptr<NicLink> ingress_;
  GeometryTable geometries_;
  std::shared_mutex mutex_;
  std::atomic<bool> closed_{false};
};

// The names of this process's endpoints. PEER_LOST for a name nobody has, INVALID_ARGUMENT for one taken.
namespace loopback {
Status listen(const std::shared_ptr<LoopbackEndpoint>& endpoint);
void forget(const LoopbackEndpoint& endpoint);  // fine when it is not there
Status connect(const std::string& name, std::unique_ptr<Peer>* out);
}  // namespace loopback

}  // namespace dualpath
