#include "store/collector.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>

#include "store/paths.h"

namespace dualpath::store {
namespace {

constexpr size_t kEntriesAtOnce = 512;  // of a directory, between calls of go_on
constexpr int kMaxPasses = 1000;
constexpr long kLockPoll_ns = 20'000'000;

int64_t time_ns(const timespec& time) noexcept {
  return static_cast<int64_t>(time.tv_sec) * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

Collector::Collector(int root_fd, std::string root, EvictionLog* log, const PinTable* own)
    : root_fd_(root_fd), root_(root), log_(log), pins_(root_fd, std::move(root), own) {}

// An invalid descriptor without busy: there are no locks here.
ScopedFd Collector::lock(const CollectOptions& options, bool* busy) {
  ScopedFd fd(openat(root_fd_, kCollectorLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  *busy = false;
  while (fd.valid() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ScopedFd();
    *busy = !options.wait || !options.go_on();
    if (*busy) return ScopedFd();
    const timespec pause{0, kLockPoll_ns};
    nanosleep(&pause, nullptr);
  }
  return fd;
}

Status Collector::collect(const CollectOptions& options, CollectResult* out) {
  *out = CollectResult{};
  const ScopedFd held = lock(options, &out->busy);
  if (out->busy) return {};
  log_->settle();  // whatever a collector that died has left
  oldest_.reserve(options.candidates);
  Status status;
  for (int pass = 0; pass < kMaxPasses && !out->stopped; ++pass) {
    const int64_t known_bytes = log_->bytes();
    CollectResult scanned;
    uint64_t bytes = 0;
    status = scan(options, &scanned, &bytes);
    out->stopped = scanned.stopped;
    if (!status.ok() || scanned.stopped) break;
    log_->set_scanned(static_cast<int64_t>(time(nullptr)), static_cast<int64_t>(bytes) - known_bytes);
    if (pass == 0) {
      out->blocks = scanned.blocks;
      out->bytes = bytes;
    }
    if (bytes <= options.target_bytes || (pass == 0 && bytes <= options.trigger_bytes)) break;
    const bool all = oldest_.size() < options.candidates;
    const uint64_t evicted = out->evicted_blocks;
    const uint64_t changed = out->changed_blocks;
    status = evict_oldest(options, &bytes, out);
    if (!status.ok() || bytes <= options.target_bytes || options.dry_run) break;
    // Another scan only when there is more to look at and this one has led somewhere, or it was out of date.
    if ((all || out->evicted_blocks == evicted) && out->changed_blocks == changed) break;
  }
  oldest_ = {};
  return status;
}

// Fills oldest_ with the oldest blocks there are; bytes is that of all.
Status Collector::scan(const CollectOptions& options, CollectResult* result, uint64_t* bytes) {
  oldest_.clear();
  std::vector<std::string> named;
  if (Status status = list_namespaces(root_fd_, root_, &named); !status.ok()) return status;
  namespaces_.assign(1, "");
  namespaces_.insert(namespaces_.end(), named.begin(), named.end());
  for (uint32_t n = 0; n < namespaces_.size(); ++n) {
    for (unsigned i = 0; i < kFanOut && !result->stopped; ++i) {
      size_t entries = 0;
      Status status = for_each_entry_if_there(
          root_fd_, root_, fan_out_directory(namespaces_[n], i), [&](int directory, const char* name) {
            const auto key = parse_block_name(name);
            struct stat info;
            if (key && fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode)) {
              const auto size = static_cast<uint64_t>(info.st_size);
              *bytes += size;
              ++result->blocks;
              consider({time_ns(info.st_mtim), size, *key, n}, options.candidates);
            }
            if (++entries % kEntriesAtOnce == 0) result->stopped = !options.go_on();
            return !result->stopped;
          });
      if (!status.ok()) return status;
      if (!options.go_on()) result->stopped = true;
    }
  }
  return {};
}

void Collector::consider(const Candidate& candidate, size_t most) {
  if (oldest_.size() < most) {
    oldest_.push_back(candidate);
    std::push_heap(oldest_.begin(), oldest_.end());
  } else if (candidate < oldest_.front()) {
    std::pop_heap(oldest_.begin(), oldest_.end());
    oldest_.back() = candidate;
    std::push_heap(oldest_.begin(), oldest_.end());
  }
}

Status Collector::evict_oldest(const CollectOptions& options, uint64_t* bytes, CollectResult* result) {
  std::sort_heap(oldest_.begin(), oldest_.end());
  std::vector<Candidate> batch;
  batch.reserve(EvictionLog::kMaxBatch);
  for (size_t next = 0; next < oldest_.size() && *bytes > options.target_bytes;) {
    if (!options.go_on()) {
      result->stopped = true;
      return {};
    }
    uint64_t excess_bytes = *bytes - options.target_bytes;
    batch.clear();
    while (next < oldest_.size() && batch.size() < EvictionLog::kMaxBatch && excess_bytes > 0) {
      batch.push_back(oldest_[next++]);
      excess_bytes -= std::min(excess_bytes, batch.back().bytes);
    }
    if (Status status = evict_batch(batch, options, bytes, result); !status.ok()) return status;
  }
  return {};
}

Status Collector::evict_batch(const std::vector<Candidate>& batch, const CollectOptions& options,
                              uint64_t* bytes, CollectResult* result) {
  BlockKey keys[EvictionLog::kMaxBatch];
  for (size_t i = 0; i < batch.size(); ++i) keys[i] = batch[i].key;
  if (!options.dry_run) log_->announce({keys, batch.size()});
  Status status = pins_.refresh();
  for (size_t i = 0; status.ok() && i < batch.size(); ++i) {
    if (pins_.pinned(batch[i].key)) {
      ++result->pinned_blocks;
    } else {
      evict(batch[i], options, bytes, result);
    }
  }
  if (!options.dry_run) log_->settle();
  return status;
}

void Collector::evict(const Candidate& candidate, const CollectOptions& options, uint64_t* bytes,
                      CollectResult* result) {
  char path[kBlockPathBytes];
  write_block_path(namespace_directory(namespaces_[candidate.namespace_index]), candidate.key, path);
  struct stat info;
  const bool there = fstatat(root_fd_, path, &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (!there || time_ns(info.st_mtim) != candidate.age_ns) {
    ++result->changed_blocks;
    if (!there) *bytes -= candidate.bytes;
    return;
  }
  if (!options.dry_run && unlinkat(root_fd_, path, 0) != 0) {
    if (errno == ENOENT) {
      ++result->changed_blocks;
      *bytes -= candidate.bytes;
    } else {
      ++result->failed_blocks;
      result->last_errno = errno;
    }
    return;
  }
  *bytes -= candidate.bytes;
  ++result->evicted_blocks;
  result->evicted_bytes += candidate.bytes;
  if (!options.dry_run) log_->add_bytes(-static_cast<int64_t>(candidate.bytes));
}

}  // namespace dualpath::store
