#include "store/evictor.h"

#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <new>
#include <utility>

#include "core/clock.h"
#include "store/ages.h"
#include "store/collector.h"

namespace dualpath::store {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int64_t kNoSpacePause_s = 10;
constexpr int64_t kRetryPause_s = 1;
// How old a count of the store may be: other hosts write, too, where they can.
constexpr int64_t kRecountShared_s = 60;
constexpr int64_t kRecountLocal_s = 3600;
constexpr int64_t kRecountDuty = 20;  // and at least so many times as long as it took
constexpr int64_t kSlice_ns = 2'000'000;
constexpr int64_t kRestPerWork = 3;

int64_t monotonic_ns() { return static_cast<int64_t>(now_ns()); }

}  // namespace

Evictor::Evictor(int root_fd, std::string root, EvictionLog* log, const PinTable* own,
                 uint64_t capacity_bytes)
    : root_fd_(root_fd),
      root_(std::move(root)),
      log_(log),
      own_(own),
      capacity_bytes_(capacity_bytes),
      high_bytes_(capacity_bytes - capacity_bytes / 20),
      low_bytes_(capacity_bytes - capacity_bytes / 10),
      local_(on_local_file_system(root_fd)) {
  thread_ = std::thread([this] { work(); });
}

Evictor::~Evictor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Evictor::published() noexcept {
  if (collecting_.load(std::memory_order_relaxed)) return;
  if (log_->bytes() <= static_cast<int64_t>(high_bytes_)) return;
  {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  wake_.notify_one();
}

void Evictor::no_space() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (monotonic_ns() < next_no_space_ns_) return;
    next_no_space_ns_ = monotonic_ns() + kNoSpacePause_s * kSecond_ns;
    no_space_ = true;
  }
  wake_.notify_one();
}

// Whether the store should be counted again.
bool Evictor::due() const noexcept {
  const int64_t age_s = static_cast<int64_t>(time(nullptr)) - log_->scanned_s();
  const int64_t allowed_s =
      std::max(local_ ? kRecountLocal_s : kRecountShared_s, kRecountDuty * scan_ns_ / kSecond_ns);
  return age_s < 0 || age_s > allowed_s;
}

void Evictor::work() {
  lower_thread_priority();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const bool no_space = std::exchange(no_space_, false);
    const bool full = std::exchange(wanted_, false) && monotonic_ns() >= next_try_ns_;
    if (no_space || full || due()) collect(lock, no_space);
    if (stopping_) return;
    // Published blocks wake it; the time limit is for recounting, and for what no longer is pinned.
    const bool high = log_->bytes() > static_cast<int64_t>(high_bytes_);
    wake_.wait_for(lock, std::chrono::seconds(high ? kRetryPause_s : kRecountShared_s),
                   [this] { return stopping_ || no_space_ || (wanted_ && monotonic_ns() >= next_try_ns_); });
    wanted_ = wanted_ || log_->bytes() > static_cast<int64_t>(high_bytes_);
  }
}

void Evictor::collect(std::unique_lock<std::mutex>& lock, bool no_space) {
  CollectOptions options;
  options.target_bytes = low_bytes_;
  options.trigger_bytes = high_bytes_;
  if (no_space) {
    const auto stored_bytes = static_cast<uint64_t>(std::max<int64_t>(log_->bytes(), 0));
    options.target_bytes = std::min(low_bytes_, stored_bytes - stored_bytes / 20);
    options.trigger_bytes = 0;
  }
  options.go_on = [this] { return pace(); };
  collecting_ = true;
  lock.unlock();
  const int64_t begin_ns = monotonic_ns();
  working_since_ns_ = begin_ns;
  CollectResult result;
  Status status;
  try {
    status = Collector(root_fd_, root_, log_, own_).collect(options, &result);
  } catch (const std::bad_alloc&) {
    status = Status::error("MEMORY_LIMIT", "no memory for a collection", ENOMEM);
  }
  const int64_t end_ns = monotonic_ns();
  if (!result.busy) collections_.fetch_add(1, std::memory_order_relaxed);
  evicted_blocks_.fetch_add(result.evicted_blocks, std::memory_order_relaxed);
  evicted_bytes_.fetch_add(result.evicted_bytes, std::memory_order_relaxed);
  pinned_blocks_.fetch_add(result.pinned_blocks, std::memory_order_relaxed);
  failures_.fetch_add(result.failed_blocks + (status.ok() ? 0 : 1), std::memory_order_relaxed);
  const int error = status.ok() ? result.last_errno : status.sys_errno;
  if (error != 0) last_errno_.store(static_cast<uint64_t>(error), std::memory_order_relaxed);
  lock.lock();
  collecting_ = false;
  scan_ns_ = end_ns - begin_ns;
  // What is pinned or cannot be removed now will not be a moment later.
  const bool still_high = log_->bytes() > static_cast<int64_t>(high_bytes_);
  next_try_ns_ = still_high && result.evicted_blocks == 0 ? end_ns + kRetryPause_s * kSecond_ns : 0;
}

// A quarter of the time at most, unless the capacity is exceeded.
bool Evictor::pace() {
  const int64_t worked_ns = monotonic_ns() - working_since_ns_;
  std::unique_lock lock(mutex_);
  if (worked_ns >= kSlice_ns && log_->bytes() <= static_cast<int64_t>(capacity_bytes_)) {
    wake_.wait_for(lock, std::chrono::nanoseconds(std::min(worked_ns * kRestPerWork, kSecond_ns)),
                   [this] { return stopping_; });
    working_since_ns_ = monotonic_ns();
  }
  return !stopping_;
}

Evictor::Statistics Evictor::statistics() const noexcept {
  const auto get = [](const std::atomic<uint64_t>& value) { return value.load(std::memory_order_relaxed); };
  return {get(collections_),   get(evicted_blocks_), get(evicted_bytes_),
          get(pinned_blocks_), get(failures_),       get(last_errno_)};
}

}  // namespace dualpath::store
