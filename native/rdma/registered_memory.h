// An engine's geometries as an RDMA device knows them: arenas registered on first use, once each, and what a
// peer is told of them.
#pragma once
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "transfer/engine.h"
#include "verbs/region.h"

namespace dualpath::rdma {

// Of an arena, as the one who may write it is told.
struct RemoteArena {
  uint64_t address;
  uint64_t bytes;
  uint32_t key;
};

struct RemoteGeometry {
  uint32_t id = 0;
  GeometryOptions layout;  // without arenas
  std::vector<RemoteArena> arenas;
};

struct RemoteMemory {
  uint32_t counter_entries = 0;
  std::vector<RemoteGeometry> geometries;
};

class RegisteredMemory {
 public:
  RegisteredMemory(std::shared_ptr<verbs::Device> device, TransferEngine& engine)
      : device_(std::move(device)), engine_(engine) {}

  // Any thread. Slots may be written by peers, paged memory is only sent from. MEMORY_LIMIT, RDMA_FAILED,
  // INVALID_ARGUMENT when there is no such geometry.
  Status use(uint32_t geometry, const verbs::KeyedGeometry** out);
  // Registers every geometry that the engine has, and describes those that are slots.
  Status describe(RemoteMemory* out);
  // What peers have written into memory of GPUs is seen there; nothing to do where none demands it. The
  // reactor's thread.
  Status flush();
  void drop();  // when nothing uses it any more

 private:
  struct Entry {
    std::unique_ptr<verbs::KeyedGeometry> keyed;
    std::vector<RemoteArena> arenas;  // of slots
  };
  struct Known {
    std::shared_ptr<Arena> arena;
    verbs::RegionAccess access;
    std::unique_ptr<verbs::MemoryRegion> region;
  };

  Status enter(uint32_t id, const std::shared_ptr<const Geometry>& geometry);
  Status region_of(const std::shared_ptr<Arena>& arena, verbs::RegionAccess access,
                   const verbs::MemoryRegion** out);

  const std::shared_ptr<verbs::Device> device_;
  TransferEngine& engine_;
  std::mutex mutex_;  // guards what follows but for ready_
  std::vector<Known> regions_;
  std::vector<std::shared_ptr<DeviceMemory>> flushed_;
  std::atomic<bool> flushes_{false};
  std::array<Entry, GeometryTable::kMax> entries_;
  std::array<std::atomic<const verbs::KeyedGeometry*>, GeometryTable::kMax> ready_{};
};

}  // namespace dualpath::rdma
