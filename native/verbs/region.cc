#include "verbs/region.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

namespace dualpath::verbs {
namespace {

int flags_of(RegionAccess access) {
  switch (access) {
    case RegionAccess::kLocal:
      return IBV_ACCESS_LOCAL_WRITE;
    case RegionAccess::kPeersWrite:
      return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    case RegionAccess::kPeersReadAndWrite:
      break;
  }
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
}

Status refused(const Device& device, const std::string& name, size_t bytes, int error) {
  const std::string what = "registering '" + name + "' (" + std::to_string(bytes) +
                           " bytes) with RDMA device '" + device.name() + "' failed: " + strerror(error);
  if (error != ENOMEM && error != EAGAIN) {
    return Status::error("RDMA_FAILED",
                         what + "; the device cannot register this memory: use memory of an arena", error);
  }
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  if (limit.rlim_cur == RLIM_INFINITY) {
    return Status::error("MEMORY_LIMIT",
                         what +
                             "; RLIMIT_MEMLOCK is unlimited, so the device or the machine has no room for "
                             "it: register less",
                         error);
  }
  return Status::error(
      "MEMORY_LIMIT",
      what + "; RLIMIT_MEMLOCK is " + std::to_string(limit.rlim_cur) + " bytes and " + std::to_string(bytes) +
          " more are needed: raise it with 'ulimit -l unlimited' (or LimitMEMLOCK=infinity in "
          "the service), or register less",
      error);
}

}  // namespace

const char* region_way_name(RegionWay way) {
  switch (way) {
    case RegionWay::kHost:
      return "host";
    case RegionWay::kDmaBuf:
      return "dma-buf";
    case RegionWay::kPeerMemory:
      break;
  }
  return "nvidia-peermem";
}

Status MemoryRegion::register_memory(std::shared_ptr<Device> device, const std::string& name, std::byte* base,
                                     size_t bytes, RegionAccess access, std::unique_ptr<MemoryRegion>* out) {
  ibv_mr* const mr = device->verbs().reg_mr(device->pd(), base, bytes, flags_of(access));
  if (mr == nullptr) return refused(*device, name, bytes, errno);
  out->reset(new MemoryRegion(std::move(device), mr));
  return {};
}

Status MemoryRegion::register_arena(std::shared_ptr<Device> device, std::shared_ptr<Arena> arena,
                                    RegionAccess access, std::unique_ptr<MemoryRegion>* out) {
  const Status status =
      arena->device() != nullptr
          ? register_device_memory(std::move(device), *arena, access, out)
          : register_memory(std::move(device), arena->name(), arena->base(), arena->bytes(), access, out);
  if (status.ok()) (*out)->arena_ = std::move(arena);
  return status;
}

Status MemoryRegion::register_device_memory(std::shared_ptr<Device> device, const Arena& arena,
                                            RegionAccess access, std::unique_ptr<MemoryRegion>* out) {
  DeviceMemory& gpu = *arena.device();
  const uint64_t address = reinterpret_cast<uint64_t>(arena.base());
  if (access != RegionAccess::kLocal && gpu.remote_flush() == RemoteFlush::kByStreamOnly) {
    return Status::error(
        "RDMA_UNAVAILABLE",
        "'" + arena.name() + "': " + gpu.name() +
            " shows its kernels what a NIC has written only after a flush by a stream of its "
            "own, which is not done here; let its copies go by the driver, and give peers "
            "memory of the host to write to");
  }
  DmaBuf exported;
  Status status = gpu.export_dmabuf(arena.name(), address, arena.bytes(), &exported);
  if (status.ok()) {
    status = register_dmabuf(device, arena.name(), exported.fd, exported.offset, arena.bytes(), address,
                             access, out);
    close(exported.fd);  // the registration has its own reference
    if (status.ok()) (*out)->way_ = RegionWay::kDmaBuf;
  }
  if (status.ok()) return {};
  const std::string refused = status.message;
  status = register_memory(device, arena.name(), arena.base(), arena.bytes(), access, out);
  if (status.ok()) {
    (*out)->way_ = RegionWay::kPeerMemory;
    (*out)->dmabuf_refused_ = refused;
    return {};
  }
  return Status::error("RDMA_UNAVAILABLE",
                       "memory '" + arena.name() + "' of " + gpu.name() +
                           " cannot be reached by RDMA device '" + device->name() + "'. As a dma-buf: " +
                           refused + ". By nvidia-peermem: " + strerror(status.sys_errno) +
                           "; load nvidia-peermem (modprobe nvidia-peermem), or let copies go by the driver",
                       status.sys_errno);
}

Status MemoryRegion::register_dmabuf(std::shared_ptr<Device> device, const std::string& name, int fd,
                                     uint64_t offset, size_t bytes, uint64_t iova, RegionAccess access,
                                     std::unique_ptr<MemoryRegion>* out) {
  ibv_mr* const mr = device->verbs().reg_dmabuf_mr(device->pd(), offset, bytes, iova, fd, flags_of(access));
  if (mr == nullptr) {
    const int error = errno;
    if (error != EOPNOTSUPP && error != ENOSYS) return refused(*device, name, bytes, error);
    return Status::error(
        "RDMA_UNAVAILABLE",
        "registering the dma-buf of '" + name + "' with RDMA device '" + device->name() +
            "' is not supported by its library, kernel or driver (rdma-core 34, Linux 5.12 and a "
            "driver that can); use nvidia-peermem or copy through the host",
        error);
  }
  out->reset(new MemoryRegion(std::move(device), mr));
  return {};
}

MemoryRegion::~MemoryRegion() { device_->verbs().dereg_mr(mr_); }

KeyedGeometry::KeyedGeometry(std::shared_ptr<const Geometry> geometry, std::vector<uint32_t> keys)
    : geometry_(std::move(geometry)),
      keys_(std::move(keys)),
      slots_per_arena_(geometry_->options().slots_per_arena) {}

KeyedGeometry::KeyedGeometry(std::shared_ptr<const Geometry> geometry, std::vector<KeyedRange> ranges)
    : geometry_(std::move(geometry)), ranges_(std::move(ranges)) {}

Status KeyedGeometry::create(GeometryOptions options, std::vector<uint32_t> keys,
                             std::unique_ptr<KeyedGeometry>* out) {
  const size_t arenas = options.more_arenas.size() + 1;
  if (keys.size() != arenas) {
    return Status::error("INVALID_ARGUMENT", "geometry: " + std::to_string(keys.size()) + " keys for " +
                                                 std::to_string(arenas) + " arenas; give one an arena");
  }
  std::shared_ptr<const Geometry> geometry;
  const Status status = Geometry::create(std::move(options), &geometry);
  if (status.ok()) *out = std::make_unique<KeyedGeometry>(std::move(geometry), std::move(keys));
  return status;
}

const KeyedRange& KeyedGeometry::range(uint64_t address) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t value, const KeyedRange& range) { return value < range.begin; });
  return *(after - 1);
}

}  // namespace dualpath::verbs
