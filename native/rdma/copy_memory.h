// An engine's geometries as a NIC that copies within the host knows them: registered on first use, for
// reading from and for writing to.
#pragma once
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "transfer/engine.h"
#include "verbs/region.h"

namespace dualpath::rdma {

class CopyMemory {
 public:
  struct Ends {
    std::unique_ptr<verbs::KeyedGeometry> from;         // of slots: by arena, of pages: by range
    std::unique_ptr<verbs::KeyedGeometry> from_ranges;  // by range in any case
    std::unique_ptr<verbs::KeyedGeometry> to;
    std::shared_ptr<DeviceMemory> flush;  // whose kernels see what the NIC has written only after a flush
  };

  CopyMemory(std::shared_ptr<verbs::Device> device, TransferEngine& engine)
      : device_(std::move(device)), engine_(engine) {}

  // The reactor's thread. nullptr where it cannot be registered; refused() says why.
  const Ends* use(uint32_t geometry);
  void drop();  // when nothing uses it any more

  // Any thread.
  std::string refused() const;                             // the first refusal, empty: none
  std::array<uint64_t, verbs::kRegionWays> bytes() const;  // registered, by way

 private:
  struct Known {
    std::shared_ptr<Arena> arena;
    std::unique_ptr<verbs::MemoryRegion> region;
  };
  enum class State { kUnknown, kUsable, kRefused };
  struct Entry {
    State state = State::kUnknown;
    Ends ends;
  };

  Status enter(const std::shared_ptr<const Geometry>& geometry, Ends* out);
  Status region_of(const std::shared_ptr<Arena>& arena, const verbs::MemoryRegion** out);

  const std::shared_ptr<verbs::Device> device_;
  TransferEngine& engine_;
  std::vector<Known> regions_;
  std::array<Entry, GeometryTable::kMax> entries_;
  mutable std::mutex mutex_;  // guards what follows
  std::string refused_;
  std::array<uint64_t, verbs::kRegionWays> bytes_{};
};

}  // namespace dualpath::rdma
