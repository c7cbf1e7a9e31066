#include "rdma/registered_memory.h"

#include <algorithm>

namespace dualpath::rdma {

Status RegisteredMemory::use(uint32_t id, const verbs::KeyedGeometry** out) {
  if (id < GeometryTable::kMax) *out = ready_[id].load(std::memory_order_acquire);
  if (id < GeometryTable::kMax && *out != nullptr) return {};
  const auto geometry = engine_.geometry(id);
  if (geometry == nullptr) {
    return Status::error("INVALID_ARGUMENT",
                         "engine '" + engine_.options().name + "' has no geometry " + std::to_string(id));
  }
  std::lock_guard lock(mutex_);
  if (entries_[id].keyed == nullptr) {
    const Status status = enter(id, geometry);
    if (!status.ok()) return status;
  }
  *out = entries_[id].keyed.get();
  ready_[id].store(*out, std::memory_order_release);
  return {};
}

Status RegisteredMemory::enter(uint32_t id, const std::shared_ptr<const Geometry>& geometry) {
  Entry entry;
  Status status;
  const verbs::MemoryRegion* region = nullptr;
  if (!geometry->paged()) {
    std::vector<uint32_t> keys;
    geometry->for_each_arena([&](const std::shared_ptr<Arena>& arena) {
      if (status.ok()) status = region_of(arena, verbs::RegionAccess::kPeersWrite, &region);
      if (!status.ok()) return;
      keys.push_back(region->local_key());
      entry.arenas.push_back(
          {reinterpret_cast<uint64_t>(arena->base()), arena->bytes(), region->remote_key()});
    });
    if (status.ok()) entry.keyed = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(keys));
  } else {
    std::vector<verbs::KeyedRange> ranges;
    geometry->for_each_region([&](const std::shared_ptr<Region>& owner) {
      for (const auto& slice : owner->slices()) {
        if (status.ok()) status = region_of(slice, verbs::RegionAccess::kLocal, &region);
        if (!status.ok()) return;
        const auto begin = reinterpret_cast<uint64_t>(slice->base());
        ranges.push_back({begin, begin + slice->bytes(), region->local_key()});
      }
    });
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    ranges.erase(std::unique(ranges.begin(), ranges.end(),
                             [](const auto& a, const auto& b) { return a.begin == b.begin; }),
                 ranges.end());
    if (status.ok()) entry.keyed = std::make_unique<verbs::KeyedGeometry>(geometry, std::move(ranges));
  }
  if (status.ok()) entries_[id] = std::move(entry);
  return status;
}

Status RegisteredMemory::region_of(const std::shared_ptr<Arena>& arena, verbs::RegionAccess access,
                                   const verbs::MemoryRegion** out) {
  const auto known = std::find_if(regions_.begin(), regions_.end(), [&](const Known& one) {
    return one.arena == arena && one.access == access;
  });
  if (known != regions_.end()) {
    *out = known->region.get();
    return {};
  }
  std::unique_ptr<verbs::MemoryRegion> region;
  const Status status = verbs::MemoryRegion::register_arena(device_, arena, access, &region);
  if (!status.ok()) return status;
  *out = region.get();
  const auto& gpu = arena->device();
  if (access != verbs::RegionAccess::kLocal && gpu != nullptr &&
      gpu->remote_flush() != RemoteFlush::kNotNeeded &&
      std::find(flushed_.begin(), flushed_.end(), gpu) == flushed_.end()) {
    flushed_.push_back(gpu);
    flushes_.store(true, std::memory_order_release);
  }
  regions_.push_back({arena, access, std::move(region)});
  return {};
}

Status RegisteredMemory::describe(RemoteMemory* out) {
  out->counter_entries = engine_.door().counter_entries();
  for (uint32_t id = 0; id < GeometryTable::kMax; id++) {
    const auto geometry = engine_.geometry(id);
    if (geometry == nullptr) continue;
    const verbs::KeyedGeometry* keyed = nullptr;
    const Status status = use(id, &keyed);
    if (!status.ok()) return status;
    if (geometry->paged()) continue;
    RemoteGeometry remote{id, geometry->options(), entries_[id].arenas};
    remote.layout.arena = nullptr;
    remote.layout.more_arenas.clear();
    out->geometries.push_back(std::move(remote));
  }
  return {};
}

Status RegisteredMemory::flush() {
  if (!flushes_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(mutex_);
  for (const auto& gpu : flushed_) {
    const Status status = gpu->flush_remote_writes();
    if (!status.ok()) return status;
  }
  return {};
}

void RegisteredMemory::drop() {
  std::lock_guard lock(mutex_);
  for (auto& one : ready_) one.store(nullptr, std::memory_order_release);
  for (Entry& entry : entries_) entry = Entry{};
  regions_.clear();
  flushed_.clear();
  flushes_.store(false, std::memory_order_release);
}

}  // namespace dualpath::rdma
