#include "transfer/door.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <string>

namespace dualpath {
namespace {

constexpr size_t kPage = 4096;
constexpr uint8_t kMaxGeneration = 254;  // so that no handle is DP_NONE

uint32_t place(size_t* cursor, size_t bytes) {
  const size_t offset = *cursor;
  *cursor = (offset + bytes + kPage - 1) / kPage * kPage;
  return static_cast<uint32_t>(offset);
}

}  // namespace

Status Door::create(const DoorOptions& options, std::shared_ptr<Door>* out) {
  for (const uint32_t entries : {options.submission_entries, options.completion_entries}) {
    if (!std::has_single_bit(entries) || entries > (1u << 20)) {
      return Status::error("INVALID_ARGUMENT", "ring of " + std::to_string(entries) +
                                                   " entries: a power of two up to 1048576 is needed");
    }
  }
  if (options.counter_entries == 0 || options.counter_entries > (1u << 24) || options.slot_entries == 0 ||
      options.slot_entries > (1u << 26) || options.key_entries == 0 || options.key_entries > (1u << 22)) {
    return Status::error("INVALID_ARGUMENT",
                         "door tables: 1 to 2^24 counters, 1 to 2^26 slot numbers, 1 to 2^22 keys allowed");
  }
  size_t cursor = 0;
  place(&cursor, sizeof(dp_door_header));
  DoorLayout layout{};
  layout.submission_entries = options.submission_entries;
  layout.completion_entries = options.completion_entries;
  layout.counter_entries = options.counter_entries;
  layout.slot_entries = options.slot_entries;
  layout.key_entries = options.key_entries;
  layout.submission_offset = place(&cursor, sizeof(dp_descriptor) * options.submission_entries);
  layout.completion_offset = place(&cursor, sizeof(dp_record) * options.completion_entries);
  layout.counter_offset = place(&cursor, sizeof(uint64_t) * options.counter_entries);
  layout.slot_offset = place(&cursor, sizeof(uint32_t) * options.slot_entries);
  layout.key_offset = place(&cursor, sizeof(store::BlockKey) * options.key_entries);

  // Sealed in its size: a process that has it and cuts it off would end this one by SIGBUS.
  const int fd = memfd_create("dualpath-door", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* base = MAP_FAILED;
  if (fd >= 0 && ftruncate(fd, static_cast<off_t>(cursor)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    base = mmap(nullptr, cursor, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  if (base == MAP_FAILED) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return Status::error(
        "MEMORY_LIMIT",
        "door of " + std::to_string(cursor) + " bytes: " + strerror(error) + "; use smaller rings and tables",
        error);
  }
  auto door = std::shared_ptr<Door>(new Door());
  door->header_ = static_cast<dp_door_header*>(base);
  door->bytes_ = cursor;
  door->memfd_ = fd;
  door->layout_ = layout;
  door->generations_.resize(options.counter_entries, 1);
  door->write_header();
  if (options.shared) {
    door->submission_bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    door->completion_bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (door->submission_bell_ < 0 || door->completion_bell_ < 0) {
      return Status::error("CAPACITY_EXHAUSTED",
                           "door: eventfd failed: no file descriptor is left; raise 'ulimit -n'", errno);
    }
  }
  *out = std::move(door);
  return {};
}

void Door::write_header() {
  dp_door_header& header = *header_;
  header.magic = DP_ABI_MAGIC;
  header.version = DP_ABI_VERSION;
  header.total_bytes = static_cast<uint32_t>(bytes_);
  header.descriptor_bytes = sizeof(dp_descriptor);
  header.record_bytes = sizeof(dp_record);
  header.submission_entries = layout_.submission_entries;
  header.completion_entries = layout_.completion_entries;
  header.counter_entries = layout_.counter_entries;
  header.slot_entries = layout_.slot_entries;
  header.key_entries = layout_.key_entries;
  header.submission_offset = layout_.submission_offset;
  header.completion_offset = layout_.completion_offset;
  header.counter_offset = layout_.counter_offset;
  header.slot_offset = layout_.slot_offset;
  header.key_offset = layout_.key_offset;
}

void Door::zero_counters(uint32_t first, uint32_t count) {
  std::lock_guard lock(generations_mutex_);
  for (uint32_t index = first; index < first + count; index++) {
    ref(index).store(0, std::memory_order_release);
  }
  // One generation for the range: a handle goes on from counter to counter.
  uint8_t generation = 0;
  for (uint32_t i = 0; i < count; i++) generation = std::max(generation, generations_[first + i]);
  generation = generation == kMaxGeneration ? 1 : generation + 1;
  for (uint32_t i = 0; i < count; i++) generations_[first + i] = generation;
}

uint32_t Door::counter_handle(uint32_t index) {
  std::lock_guard lock(generations_mutex_);
  return index | uint32_t{generations_[index]} << DP_COUNTER_BITS;
}

bool Door::signal(uint8_t mode, uint32_t handle, uint64_t value) {
  const uint32_t index = handle & DP_COUNTER_MASK;
  const uint32_t generation = handle >> DP_COUNTER_BITS;
  if (index >= layout_.counter_entries) return false;
  std::lock_guard lock(generations_mutex_);
  if (generation != 0 && generation != generations_[index]) {
    stale_signals_.fetch_add(1, std::memory_order_relaxed);
  } else if (mode == DP_SIGNAL_ADD) {
    counter_add(index, value);
  } else {
    counter_raise(index, value);
  }
  return true;
}

// The other process may have filled the bell and made writing to it wait: it has been rung then.
void Door::ring_completion() {
  pollfd one{completion_bell_, POLLOUT, 0};
  if (poll(&one, 1, 0) != 1 || (one.revents & POLLOUT) == 0) return;
  const uint64_t count = 1;
  [[maybe_unused]] ssize_t n = write(completion_bell_, &count, sizeof count);
}

Door::~Door() {
  if (header_ != nullptr) munmap(header_, bytes_);
  for (const int fd : {memfd_, submission_bell_, completion_bell_}) {
    if (fd >= 0) close(fd);
  }
}

bool Door::add_waker(std::shared_ptr<Waker> waker) {
  const size_t count = waker_count_.load(std::memory_order_relaxed);
  if (count == kMaxWakers) return false;
  wakers_[count] = std::move(waker);
  waker_count_.store(count + 1, std::memory_order_release);
  return true;
}

}  // namespace dualpath
