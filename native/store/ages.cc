#include "store/ages.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <system_error>

#include "store/paths.h"

namespace dualpath::store {
namespace {

constexpr int64_t kSecond_ns = 1'000'000'000;
constexpr int64_t kDepth_ns = 1000;
constexpr auto kLastWork = std::chrono::milliseconds(250);  // on what is queued when the store is closed
constexpr uint64_t kTagMask = 0xffff'ffff'0000'0000;

int64_t depth_ns(uint32_t depth) noexcept {
  return static_cast<int64_t>(std::min(depth, kMaxAgeDepth)) * kDepth_ns;
}

}  // namespace

int64_t age_ns(int64_t now_s, uint32_t depth, uint32_t interval_s) noexcept {
  return now_s / interval_s * interval_s * kSecond_ns - depth_ns(depth);
}

bool is_age_ns(int64_t time_ns, uint32_t depth, uint32_t interval_s) noexcept {
  return (time_ns + depth_ns(depth)) % (static_cast<int64_t>(interval_s) * kSecond_ns) == 0;
}

void lower_thread_priority() noexcept {
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
}

AgeWriter::AgeWriter(int root_fd, std::string block_directory, uint32_t interval_s)
    : root_fd_(root_fd),
      block_directory_(std::move(block_directory)),
      interval_s_(interval_s),
      remembered_(std::make_unique<std::atomic<uint64_t>[]>(kRemembered)),
      keys_(new BlockKey[kQueuedKeys]),
      runs_(new Run[kQueuedRuns]) {}

AgeWriter::~AgeWriter() {
  {
    const std::lock_guard lock(mutex_);
    deadline_ = std::chrono::steady_clock::now() + kLastWork;
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

int64_t AgeWriter::interval_now() const noexcept { return static_cast<int64_t>(time(nullptr)) / interval_s_; }

bool AgeWriter::recent(const BlockKey& key, int64_t interval) const noexcept {
  uint64_t words[2];
  std::memcpy(words, key.bytes.data() + 16, sizeof words);
  const uint64_t expected = (words[1] & kTagMask) | static_cast<uint32_t>(interval);
  return remembered_[words[0] % kRemembered].load(std::memory_order_relaxed) == expected;
}

void AgeWriter::remember(const BlockKey& key, int64_t interval) noexcept {
  uint64_t words[2];
  std::memcpy(words, key.bytes.data() + 16, sizeof words);
  remembered_[words[0] % kRemembered].store((words[1] & kTagMask) | static_cast<uint32_t>(interval),
                                            std::memory_order_relaxed);
}

void AgeWriter::hit(const BlockKey* keys, size_t count) noexcept {
  // Ages are written root first, so where the last one is recent the others are.
  if (count == 0 || recent(keys[count - 1], interval_now())) return;
  push(keys, count, 0, false);
}

void AgeWriter::published(const BlockKey& key, uint32_t depth) noexcept { push(&key, 1, depth, true); }

void AgeWriter::push(const BlockKey* keys, size_t count, uint32_t first_depth, bool fresh) noexcept {
  {
    const std::lock_guard lock(mutex_);
    bool fits = run_count_ < kQueuedRuns && count <= kQueuedKeys - key_count_;
    if (fits && !thread_.joinable()) {
      try {
        thread_ = std::thread([this] { work(); });
      } catch (const std::system_error&) {
        fits = false;
      }
    }
    if (!fits) {
      dropped_.fetch_add(count, std::memory_order_relaxed);
      return;
    }
    for (size_t i = 0; i < count; ++i) keys_[(first_key_ + key_count_ + i) % kQueuedKeys] = keys[i];
    runs_[(first_run_ + run_count_) % kQueuedRuns] = {count, first_depth, fresh};
    key_count_ += count;
    ++run_count_;
  }
  wake_.notify_one();
}

void AgeWriter::work() {
  lower_thread_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || run_count_ > 0; });
    if (run_count_ == 0 || out_of_time()) return;
    const Run run = runs_[first_run_];
    const size_t first_key = first_key_;
    lock.unlock();
    write_run(first_key, run);  // nobody writes to keys that are queued
    lock.lock();
    first_key_ = (first_key_ + run.keys) % kQueuedKeys;
    key_count_ -= run.keys;
    first_run_ = (first_run_ + 1) % kQueuedRuns;
    --run_count_;
    if (run_count_ == 0) idle_.notify_all();
  }
}

void AgeWriter::write_run(size_t first_key, const Run& run) {
  for (size_t i = 0; i < run.keys && !out_of_time(); ++i) {
    const BlockKey& key = keys_[(first_key + i) % kQueuedKeys];
    if (!write_age(key, run.first_depth + static_cast<uint32_t>(i), run.fresh)) return;
  }
}

bool AgeWriter::out_of_time() const noexcept {
  return stopping_.load(std::memory_order_acquire) && std::chrono::steady_clock::now() > deadline_;
}

// False when the block is gone. The clock is read for each block: a long run may cross into the next
// interval.
bool AgeWriter::write_age(const BlockKey& key, uint32_t depth, bool fresh) noexcept {
  const int64_t interval = interval_now();
  if (!fresh && recent(key, interval)) return true;
  char path[kBlockPathBytes];
  write_block_path(block_directory_, key, path);
  const int64_t wanted_ns = interval * interval_s_ * kSecond_ns - depth_ns(depth);
  if (!fresh) {
    struct stat info;
    if (fstatat(root_fd_, path, &info, AT_SYMLINK_NOFOLLOW) != 0) return false;
    const int64_t found_ns = static_cast<int64_t>(info.st_mtim.tv_sec) * kSecond_ns + info.st_mtim.tv_nsec;
    // Another process was here; one whose clock is ahead is not set back.
    if (found_ns >= wanted_ns && is_age_ns(found_ns, depth, interval_s_)) {
      remember(key, interval);
      return true;
    }
  }
  const timespec time{wanted_ns / kSecond_ns, wanted_ns % kSecond_ns};
  const timespec times[2] = {{0, UTIME_OMIT}, time};
  if (utimensat(root_fd_, path, times, AT_SYMLINK_NOFOLLOW) != 0) return errno != ENOENT;
  written_.fetch_add(1, std::memory_order_relaxed);
  // Of a new block this says nothing about those before it in the chain, as a recent one must.
  if (!fresh) remember(key, interval);
  return true;
}

void AgeWriter::drain() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return run_count_ == 0; });
}

AgeWriter::Statistics AgeWriter::statistics() const noexcept {
  const std::lock_guard lock(mutex_);
  return {written_.load(std::memory_order_relaxed), dropped_.load(std::memory_order_relaxed), key_count_};
}

}  // namespace dualpath::store
