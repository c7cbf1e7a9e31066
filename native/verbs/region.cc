#include "verbs/region.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>

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
      register_memory(std::move(device), arena->name(), arena->base(), arena->bytes(), access, out);
  if (status.ok()) (*out)->arena_ = std::move(arena);
  return status;
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

Status KeyedGeometry::create(GeometryOptions options, std::vector<uint32_t> keys,
                             std::unique_ptr<KeyedGeometry>* out) {
  const size_t arenas = options.more_arenas.size() + 1;
  if (keys.size() != arenas) {
    return Status::error("INVALID_ARGUMENT", "geometry: " + std::to_string(keys.size()) + " keys for " +
                                                 std::to_string(arenas) + " arenas; give one an arena");
  }
  auto keyed = std::make_unique<KeyedGeometry>();
  keyed->keys_ = std::move(keys);
  keyed->slots_per_arena_ = options.slots_per_arena == 0 ? options.slots : options.slots_per_arena;
  const Status status = Geometry::create(std::move(options), &keyed->geometry_);
  if (status.ok()) *out = std::move(keyed);
  return status;
}

}  // namespace dualpath::verbs
