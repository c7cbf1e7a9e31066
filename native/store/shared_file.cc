#include "store/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <new>
#include <utility>

#include "store/paths.h"

namespace dualpath::store {
namespace {

std::string read_boot_id() {
  const ScopedFd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[36];
  if (!fd.valid() || read(fd.get(), text, sizeof text) != sizeof text) return "unknown";
  const std::string id(text, sizeof text);
  return id.find_first_not_of("0123456789abcdef-") == std::string::npos ? id : "unknown";
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      shared_(other.shared_) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this == &other) return *this;
  reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  shared_ = other.shared_;
  return *this;
}

bool Mapping::map(int fd, size_t bytes, bool writable) noexcept {
  void* data = mmap(nullptr, bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return false;
  reset();
  data_ = data;
  bytes_ = bytes;
  shared_ = true;
  return true;
}

void Mapping::allocate(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) throw std::bad_alloc();
  reset();
  data_ = data;
  bytes_ = bytes;
  shared_ = false;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) munmap(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
}

bool take_space(int fd, size_t bytes) noexcept {
  return posix_fallocate(fd, 0, static_cast<off_t>(bytes)) == 0;
}

const std::string& host_directory() {
  static const std::string directory = std::string(kHosts) + "/" + read_boot_id();
  return directory;
}

}  // namespace dualpath::store
