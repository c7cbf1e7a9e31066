#include "transfer/loopback.h"

#include <map>
#include <mutex>

namespace dualpath {

LoopbackEndpoint::LoopbackEndpoint(std::string name, std::shared_ptr<Door> door,
                                   std::shared_ptr<NicLink> ingress)
    : name_(std::move(name)), door_(std::move(door)), ingress_(std::move(ingress)) {}

void LoopbackEndpoint::close() {
  closed_.store(true, std::memory_order_relaxed);  // first, so that a stream of writers cannot hold us off
  std::unique_lock lock(mutex_);                   // those under way
}

void LoopbackEndpoint::drop_memory() {
  std::unique_lock lock(mutex_);
  geometries_.clear();
  door_.reset();
}

class LoopbackPeer final : public Peer {
 public:
  explicit LoopbackPeer(std::shared_ptr<LoopbackEndpoint> endpoint) : endpoint_(std::move(endpoint)) {}

  const char* transport() const override { return "loopback"; }
  const char* name() const override { return endpoint_->name_.c_str(); }
  NicLink* ingress() override { return endpoint_->ingress_.get(); }

  bool carries_steps() const override { return false; }

  PeerResult check(const Geometry& local, uint32_t, uint32_t remote_geometry) override {
    std::shared_lock lock(endpoint_->mutex_);
    if (endpoint_->closed_) return PeerResult::kLost;
    const auto* geometry = endpoint_->geometries_.find(remote_geometry);
    if (geometry == nullptr || (*geometry)->entries_per_block() != 1) return PeerResult::kOutOfBounds;
    // What is a memcpy here cannot be one there.
    if ((*geometry)->device() != nullptr || local.device() != nullptr) return PeerResult::kOutOfBounds;
    return (*geometry)->same_shape(local) ? PeerResult::kOk : PeerResult::kOutOfBounds;
  }

  PeerResult write(const SendPart& part, uint64_t* bytes) override {
    std::shared_lock lock(endpoint_->mutex_);
    if (endpoint_->closed_) return PeerResult::kLost;
    const Geometry& to = **endpoint_->geometries_.find(part.to_geometry);  // check() has seen it
    *bytes = 0;
    const uint64_t width = part.from->entries_per_block();
    for (uint32_t i = 0; i < part.count; i++) {
      if (!copy_block(*part.from, part.from_slots + i * width, to, part.to_slots + i, part.layer,
                      part.first_block + i, part.tokens, part.window_end, bytes)) {
        return PeerResult::kOutOfBounds;
      }
    }
    return PeerResult::kOk;
  }

  PeerResult signal(const PeerSignal& signal) override {
    std::shared_lock lock(endpoint_->mutex_);
    if (endpoint_->closed_) return PeerResult::kLost;
    if (!endpoint_->door_->signal(signal.mode, signal.counter, signal.value)) return PeerResult::kOutOfBounds;
    endpoint_->door_->notify();
    return PeerResult::kOk;
  }

 private:
  std::shared_ptr<LoopbackEndpoint> endpoint_;
};

namespace loopback {
namespace {

// The one thing of the process as a whole: workers have nothing else in common to meet by.
struct Names {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LoopbackEndpoint>> endpoints;
};

// Never destroyed: at exit other threads may still look.
Names& names() {
  static Names& instance = *new Names();
  return instance;
}

}  // namespace

Status listen(const std::shared_ptr<LoopbackEndpoint>& endpoint) {
  std::lock_guard lock(names().mutex);
  auto& entry = names().endpoints[endpoint->name()];
  if (!entry.expired()) {
    return Status::error("INVALID_ARGUMENT",
                         "an engine named '" + endpoint->name() +
                             "' is already on the loopback transport; choose another name");
  }
  entry = endpoint;
  return {};
}

void forget(const LoopbackEndpoint& endpoint) {
  std::lock_guard lock(names().mutex);
  const auto found = names().endpoints.find(endpoint.name());
  // The name may be another's by now.
  if (found != names().endpoints.end() && found->second.lock().get() == &endpoint) {
    names().endpoints.erase(found);
  }
}

Status connect(const std::string& name, std::unique_ptr<Peer>* out) {
  std::lock_guard lock(names().mutex);
  const auto found = names().endpoints.find(name);
  std::shared_ptr<LoopbackEndpoint> endpoint;
  if (found != names().endpoints.end()) endpoint = found->second.lock();
  if (endpoint == nullptr) {
    return Status::error("PEER_LOST", "no engine named '" + name +
                                          "' is on the loopback transport of this process; open it first");
  }
  *out = std::make_unique<LoopbackPeer>(std::move(endpoint));
  return {};
}

}  // namespace loopback
}  // namespace dualpath
