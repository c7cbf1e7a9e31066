// Memory registered with a device. Arenas hold at most 1 GiB each, so a region does too.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/status.h"
#include "memory/geometry.h"
#include "verbs/device.h"

namespace dualpath::verbs {

enum class RegionAccess { kLocal, kPeersWrite, kPeersReadAndWrite };

// How the device came to the memory: by its pages in the host, as a dma-buf that the GPU's driver exported,
// or by the GPU's address, which nvidia-peermem answers for.
enum class RegionWay { kHost, kDmaBuf, kPeerMemory };
inline constexpr size_t kRegionWays = 3;
const char* region_way_name(RegionWay way);

class MemoryRegion {
 public:
  // MEMORY_LIMIT when the limit on locked memory is in the way (the message names its value, what was asked
  // and the remedy), RDMA_FAILED when the device refuses it. The memory must outlive the region.
  static Status register_memory(std::shared_ptr<Device> device, const std::string& name, std::byte* base,
                                size_t bytes, RegionAccess access, std::unique_ptr<MemoryRegion>* out);
  // Memory of a GPU too: as a dma-buf where that is possible, by nvidia-peermem elsewhere.
  static Status register_arena(std::shared_ptr<Device> device, std::shared_ptr<Arena> arena,
                               RegionAccess access, std::unique_ptr<MemoryRegion>* out);
  // Device memory exported as a dma-buf, seen by peers at `iova` (ibv_reg_dmabuf_mr(3)). RDMA_UNAVAILABLE
  // where library, kernel or device cannot.
  static Status register_dmabuf(std::shared_ptr<Device> device, const std::string& name, int fd,
                                uint64_t offset, size_t bytes, uint64_t iova, RegionAccess access,
                                std::unique_ptr<MemoryRegion>* out);
  ~MemoryRegion();
  MemoryRegion(const MemoryRegion&) = delete;
  MemoryRegion& operator=(const MemoryRegion&) = delete;

  RegionWay way() const { return way_; }
  const std::string& dmabuf_refused() const { return dmabuf_refused_; }  // why it is kPeerMemory
  uint32_t local_key() const { return mr_->lkey; }
  uint32_t remote_key() const { return mr_->rkey; }

 private:
  static Status register_device_memory(std::shared_ptr<Device> device, const Arena& arena,
                                       RegionAccess access, std::unique_ptr<MemoryRegion>* out);
  MemoryRegion(std::shared_ptr<Device> device, ibv_mr* mr) : device_(std::move(device)), mr_(mr) {}
  std::shared_ptr<Device> device_;
  std::shared_ptr<Arena> arena_;  // kept alive, when there is one
  RegionWay way_ = RegionWay::kHost;
  std::string dmabuf_refused_;
  ibv_mr* mr_;
};

// Memory of one region, by address.
struct KeyedRange {
  uint64_t begin;
  uint64_t end;
  uint32_t key;
};

// A geometry with the key of each arena it lies in: local keys for this side's memory, remote keys for a
// peer's. The geometry of a peer is one over arenas adopted at the peer's addresses, which nothing here
// dereferences.
class KeyedGeometry {
 public:
  // Of slots: a key for each arena, in order.
  KeyedGeometry(std::shared_ptr<const Geometry> geometry, std::vector<uint32_t> keys);
  // Of an engine's pages: ranges in order of address that cover every page.
  KeyedGeometry(std::shared_ptr<const Geometry> geometry, std::vector<KeyedRange> ranges);
  // INVALID_ARGUMENT when the geometry is wrong or there is not one key an arena.
  static Status create(GeometryOptions options, std::vector<uint32_t> keys,
                       std::unique_ptr<KeyedGeometry>* out);

  const Geometry& geometry() const { return *geometry_; }
  const std::shared_ptr<const Geometry>& shared() const { return geometry_; }
  // Of slots.
  uint32_t key(uint32_t slot) const { return keys_.size() == 1 ? keys_[0] : keys_[slot / slots_per_arena_]; }
  // Of pages: of the memory at this address.
  const KeyedRange& range(uint64_t address) const;

 private:
  std::shared_ptr<const Geometry> geometry_;
  std::vector<uint32_t> keys_;
  uint32_t slots_per_arena_ = 0;
  std::vector<KeyedRange> ranges_;
};

}  // namespace dualpath::verbs
