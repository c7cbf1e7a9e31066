// An engine reached over verbs: its memory as it described it, and a connection for each traffic class.
#pragma once
#include <array>
#include <memory>
#include <string>

#include "rdma/connection.h"
#include "rdma/registered_memory.h"
#include "transfer/peer.h"

namespace dualpath::rdma {

class VerbsPeer final : public Peer {
 public:
  static constexpr size_t kClasses = 3;  // dp_traffic_class

  // INVALID_ARGUMENT when the description cannot be right.
  static Status create(std::string name, RemoteMemory memory, std::shared_ptr<RegisteredMemory> own,
                       std::unique_ptr<VerbsPeer>* out);

  const char* transport() const override { return "verbs"; }
  const char* name() const override { return name_.c_str(); }
  PeerResult check(const Geometry& local, uint32_t local_geometry, uint32_t remote_geometry) override;
  bool carries_steps() const override { return true; }
  PeerResult begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) override;
  PeerResult post(PeerStep* step, bool* moved, uint32_t* block, PeerFailure* failure) override;
  void abandon(PeerStep* step) override;

  // The reactor's thread. nullptr: none; steps of the class fail.
  Connection*& connection(uint8_t traffic_class) { return connections_[traffic_class]; }

 private:
  VerbsPeer(std::string name, uint32_t counter_entries, std::shared_ptr<RegisteredMemory> own)
      : name_(std::move(name)), counter_entries_(counter_entries), own_(std::move(own)) {}
  const verbs::KeyedGeometry* find(uint32_t remote_geometry) const {
    return remote_geometry < geometries_.size() ? geometries_[remote_geometry].get() : nullptr;
  }

  const std::string name_;
  const uint32_t counter_entries_;
  const std::shared_ptr<RegisteredMemory> own_;
  std::array<std::unique_ptr<verbs::KeyedGeometry>, GeometryTable::kMax> geometries_;
  std::array<Connection*, kClasses> connections_{};
};

}  // namespace dualpath::rdma
