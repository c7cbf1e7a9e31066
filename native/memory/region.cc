#include "memory/region.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace dualpath {
namespace {

Status invalid(const std::string& name, const std::string& message) {
  return Status::error("INVALID_ARGUMENT", "memory '" + name + "': " + message);
}

// Whether every byte of [begin, end) may be read and written (proc(5), /proc/pid/maps: in order of address).
bool mapped_writable(uint64_t begin, uint64_t end, uint64_t* hole) {
  FILE* file = fopen("/proc/self/maps", "re");
  if (file == nullptr) return true;  // no /proc: the caller's promise is all there is
  char line[512];
  uint64_t at = begin;
  while (at < end && fgets(line, sizeof line, file) != nullptr) {
    uint64_t from;
    uint64_t to;
    char mode[5];
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, mode) != 3) continue;
    if (to <= at) continue;
    if (from > at || mode[0] != 'r' || mode[1] != 'w') break;
    at = to;
  }
  fclose(file);
  *hole = at;
  return at >= end;
}

std::string hex(uint64_t address) {
  char text[24];
  snprintf(text, sizeof text, "0x%" PRIx64, address);
  return text;
}

}  // namespace

void Region::slice() {
  const uint64_t count = (bytes_ + Arena::kMaxBytes - 1) / Arena::kMaxBytes;
  for (uint64_t k = 0; k < count; k++) {
    const uint64_t from = k * Arena::kMaxBytes;
    const uint64_t bytes = std::min<uint64_t>(Arena::kMaxBytes, bytes_ - from);
    slices_.push_back(Arena::adopt(count == 1 ? name_ : name_ + "/" + std::to_string(k), base_ + from, bytes,
                                   kind_, device_));
  }
}

std::shared_ptr<Region> Region::of(const std::shared_ptr<Arena>& arena) {
  auto region = std::shared_ptr<Region>(new Region());
  region->name_ = arena->name();
  region->base_ = arena->base();
  region->bytes_ = arena->bytes();
  region->kind_ = arena->kind();
  region->device_ = arena->device();
  region->slices_.push_back(arena);
  return region;
}

Status Region::of_buffer(std::string name, std::byte* base, uint64_t bytes, ArenaKind kind,
                         std::shared_ptr<Region>* out) {
  if (base == nullptr || bytes == 0) return invalid(name, "the buffer is empty or has been transferred");
  auto region = std::shared_ptr<Region>(new Region());
  region->name_ = std::move(name);
  region->base_ = base;
  region->bytes_ = bytes;
  region->kind_ = kind;
  region->slice();
  *out = std::move(region);
  return {};
}

Status Region::adopt(std::string name, uint64_t address, uint64_t bytes, ArenaKind kind,
                     std::shared_ptr<Region>* out) {
  if (address == 0) return invalid(name, "the address is null; pass the address of its first byte");
  if (bytes == 0) return invalid(name, "0 bytes; pass how many bytes there are");
  uint64_t end;
  if (__builtin_add_overflow(address, bytes, &end)) {
    return invalid(
        name, std::to_string(bytes) + " bytes from " + hex(address) + " on overflow 64 bits; check both");
  }
  uint64_t hole;
  if (!mapped_writable(address, end, &hole)) {
    return invalid(name,
                   std::to_string(bytes) + " bytes from " + hex(address) + " on: " + hex(hole) +
                       " is not mapped readable and writable in this process; map it here first (memory "
                       "of another process is not reached by its address, that of a GPU by ofCuda)");
  }
  return of_buffer(std::move(name), reinterpret_cast<std::byte*>(address), bytes, kind, out);
}

Status Region::of_device(std::string name, std::shared_ptr<DeviceMemory> device, uint64_t address,
                         uint64_t bytes, std::shared_ptr<Region>* out) {
  const Status status = device->adopt(name, address, bytes);
  if (!status.ok()) return status;
  auto region = std::shared_ptr<Region>(new Region());
  region->name_ = std::move(name);
  region->base_ = reinterpret_cast<std::byte*>(address);
  region->bytes_ = bytes;
  region->kind_ = ArenaKind::kCuda;
  region->device_ = std::move(device);
  region->slice();
  *out = std::move(region);
  return {};
}

Status Region::map(std::string name, int fd, uint64_t offset, uint64_t bytes, ArenaKind kind,
                   std::shared_ptr<Region>* out) {
  struct stat file {};
  if (fstat(fd, &file) != 0) {
    const int error = errno;
    return Status::error("INVALID_ARGUMENT",
                         "memory '" + name + "': file descriptor " + std::to_string(fd) + ": " +
                             strerror(error) + "; pass one that is open",
                         error);
  }
  uint64_t end;
  if (bytes == 0 || __builtin_add_overflow(offset, bytes, &end)) {
    return invalid(name, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                             "; at least 1 is needed, and no more than 64 bits can say");
  }
  if (end > static_cast<uint64_t>(file.st_size)) {
    return invalid(name, std::to_string(bytes) + " bytes at offset " + std::to_string(offset) +
                             " asked, the file has " + std::to_string(file.st_size) +
                             "; ask for less, or make it that long before sharing it");
  }
  const uint64_t unit = std::max<uint64_t>(static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
                                           static_cast<uint64_t>(file.st_blksize));
  const uint64_t page = (unit & (unit - 1)) == 0 ? unit : static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t start = offset / page * page;
  const size_t length = end - start;
  void* mapping = mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(start));
  if (mapping == MAP_FAILED) {
    const int error = errno;
    const bool access = error == EACCES || error == EPERM;
    return Status::error(access ? "INVALID_ARGUMENT" : "MEMORY_LIMIT",
                         "memory '" + name + "': mapping " + std::to_string(bytes) +
                             " bytes of file descriptor " + std::to_string(fd) + ": " + strerror(error) +
                             (access ? "; open it for reading and writing, without a write seal"
                                     : "; share memory that can be mapped, or less of it"),
                         error);
  }
  const Status status =
      of_buffer(std::move(name), static_cast<std::byte*>(mapping) + (offset - start), bytes, kind, out);
  (*out)->mapping_ = mapping;
  (*out)->mapping_bytes_ = length;
  return status;
}

Region::~Region() {
  slices_.clear();
  if (mapping_ != nullptr) munmap(mapping_, mapping_bytes_);
}

}  // namespace dualpath
