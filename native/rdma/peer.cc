#include "rdma/peer.h"

namespace dualpath::rdma {
namespace {

Status invalid(const std::string& peer, const std::string& what) {
  return Status::error("INVALID_ARGUMENT", "peer '" + peer + "' describes its memory wrongly: " + what +
                                               "; run the same version of dualpath on both sides");
}

Status keyed_of(const std::string& peer, const RemoteGeometry& remote,
                std::unique_ptr<verbs::KeyedGeometry>* out) {
  GeometryOptions options = remote.layout;
  std::vector<uint32_t> keys;
  for (const RemoteArena& arena : remote.arenas) {
    uint64_t end;
    if (arena.bytes == 0 || arena.bytes > Arena::kMaxBytes ||
        __builtin_add_overflow(arena.address, arena.bytes, &end)) {
      return invalid(peer, "an arena of " + std::to_string(arena.bytes) + " bytes");
    }
    auto adopted = Arena::adopt("memory of " + peer, reinterpret_cast<std::byte*>(arena.address), arena.bytes,
                                ArenaKind::kHost);
    keys.push_back(arena.key);
    if (options.arena == nullptr) {
      options.arena = std::move(adopted);
    } else {
      options.more_arenas.push_back(std::move(adopted));
    }
  }
  const Status status = options.arena == nullptr
                            ? invalid(peer, "a geometry without an arena")
                            : verbs::KeyedGeometry::create(std::move(options), std::move(keys), out);
  return status.ok() ? status : invalid(peer, status.message);
}

}  // namespace

Status VerbsPeer::create(std::string name, RemoteMemory memory, std::shared_ptr<RegisteredMemory> own,
                         std::unique_ptr<VerbsPeer>* out) {
  auto peer = std::unique_ptr<VerbsPeer>(new VerbsPeer(name, memory.counter_entries, std::move(own)));
  for (const RemoteGeometry& remote : memory.geometries) {
    if (remote.id >= peer->geometries_.size()) {
      return invalid(name, "geometry " + std::to_string(remote.id) + " of at most " +
                               std::to_string(peer->geometries_.size()));
    }
    const Status status = keyed_of(name, remote, &peer->geometries_[remote.id]);
    if (!status.ok()) return status;
  }
  *out = std::move(peer);
  return {};
}

PeerResult VerbsPeer::check(const Geometry& local, uint32_t local_geometry, uint32_t remote_geometry) {
  const verbs::KeyedGeometry* const to = find(remote_geometry);
  if (to == nullptr || !to->geometry().same_shape(local)) return PeerResult::kOutOfBounds;
  const verbs::KeyedGeometry* from = nullptr;
  return own_->use(local_geometry, &from).ok() ? PeerResult::kOk : PeerResult::kOutOfBounds;
}

PeerResult VerbsPeer::begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) {
  for (uint32_t i = 0; i < request.signal_count; i++) {
    if ((request.signals[i].counter & DP_COUNTER_MASK) < counter_entries_) continue;
    failure->result = PeerResult::kOutOfBounds;
    return PeerResult::kOutOfBounds;
  }
  Connection* const connection = connections_[request.traffic_class];
  if (connection == nullptr) {
    failure->result = PeerResult::kLost;
    return PeerResult::kLost;
  }
  const verbs::KeyedGeometry* from = nullptr;
  if (request.part.count != 0 && !own_->use(request.part.from_geometry, &from).ok()) {
    failure->result = PeerResult::kOutOfBounds;
    return PeerResult::kOutOfBounds;
  }
  Step* begun = nullptr;
  const PeerResult result = connection->begin(request, from, find(request.part.to_geometry), &begun, failure);
  *step = begun;
  return result;
}

PeerResult VerbsPeer::post(PeerStep* step, bool* moved, uint32_t* block, PeerFailure* failure) {
  Step& posted = *static_cast<Step*>(step);
  return posted.connection->post(posted, moved, block, failure);
}

void VerbsPeer::abandon(PeerStep* step) {
  Step& abandoned = *static_cast<Step*>(step);
  abandoned.connection->abandon(abandoned);
}

}  // namespace dualpath::rdma
