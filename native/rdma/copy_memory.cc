#include "rdma/copy_memory.h"

#include <algorithm>

namespace dualpath::rdma {

const CopyMemory::Ends* CopyMemory::use(uint32_t id) {
  Entry& entry = entries_[id];
  if (entry.state == State::kUnknown) {
    const Status status = enter(engine_.geometry(id), &entry.ends);
    entry.state = status.ok() ? State::kUsable : State::kRefused;
    if (!status.ok()) {
      std::lock_guard lock(mutex_);
      if (refused_.empty()) refused_ = status.message;
    }
  }
  return entry.state == State::kUsable ? &entry.ends : nullptr;
}

Status CopyMemory::enter(const std::shared_ptr<const Geometry>& geometry, Ends* out) {
  Status status;
  std::vector<uint32_t> local_keys, remote_keys;
  std::vector<verbs::KeyedRange> local, remote;
  const auto take = [&](const std::shared_ptr<Arena>& arena) {
    const verbs::MemoryRegion* region = nullptr;
    if (status.ok()) status = region_of(arena, &region);
    if (!status.ok()) return;
    const auto begin = reinterpret_cast<uint64_t>(arena->base());
    local.push_back({begin, begin + arena->bytes(), region->local_key()});
    remote.push_back({begin, begin + arena->bytes(), region->remote_key()});
    local_keys.push_back(region->local_key());
    remote_keys.push_back(region->remote_key());
  };
  if (geometry->paged()) {
    geometry->for_each_region([&](const std::shared_ptr<Region>& owner) {
      for (const auto& slice : owner->slices()) take(slice);
    });
  } else {
    geometry->for_each_arena(take);
  }
  if (!status.ok()) return status;
  for (auto* ranges : {&local, &remote}) {
    std::sort(ranges->begin(), ranges->end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    const auto same = [](const auto& a, const auto& b) { return a.begin == b.begin; };
    ranges->erase(std::unique(ranges->begin(), ranges->end(), same), ranges->end());
  }
  out->from_ranges = std::make_unique<verbs::KeyedGeometry>(geometry, local);
  if (geometry->paged()) {
    out->from = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(local));
    out->to = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(remote));
  } else {
    out->from = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(local_keys));
    out->to = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(remote_keys));
  }
  const auto& device = geometry->device();
  if (device != nullptr && device->remote_flush() != RemoteFlush::kNotNeeded) out->flush = device;
  return {};
}

Status CopyMemory::region_of(const std::shared_ptr<Arena>& arena, const verbs::MemoryRegion** out) {
  const auto known =
      std::find_if(regions_.begin(), regions_.end(), [&](const Known& one) { return one.arena == arena; });
  if (known != regions_.end()) {
    *out = known->region.get();
    return {};
  }
  std::unique_ptr<verbs::MemoryRegion> region;
  const Status status =
      verbs::MemoryRegion::register_arena(device_, arena, verbs::RegionAccess::kPeersWrite, &region);
  if (!status.ok()) return status;
  *out = region.get();
  {
    std::lock_guard lock(mutex_);
    bytes_[static_cast<size_t>(region->way())] += arena->bytes();
  }
  regions_.push_back({arena, std::move(region)});
  return {};
}

std::string CopyMemory::refused() const {
  std::lock_guard lock(mutex_);
  return refused_;
}

std::array<uint64_t, verbs::kRegionWays> CopyMemory::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

void CopyMemory::drop() {
  for (Entry& entry : entries_) entry = Entry{};
  regions_.clear();
}

}  // namespace dualpath::rdma
