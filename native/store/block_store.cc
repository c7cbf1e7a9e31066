#include "store/block_store.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>

#include "store/sodium_start.h"

namespace dualpath::store {
namespace {

constexpr size_t kAhead = 8;  // keys whose place in the index is fetched before it is looked at

}  // namespace

BlockStore::BlockStore(std::string path, const BlockFormat& format, const StoreOptions& options)
    : path_(std::move(path)),
      format_(format),
      options_(options),
      block_directory_(namespace_directory(options.namespace_name)),
      nonce_([] {
        start_sodium();
        uint64_t nonce;
        randombytes_buf(&nonce, sizeof nonce);
        return nonce;
      }()),
      index_(options.index_capacity) {}

void BlockStore::block_path(const BlockKey& key, char* out) const noexcept {
  write_block_path(block_directory_, key, out);
}

void BlockStore::temp_path(char* out) noexcept {
  // The process id is asked for every time: a forked child has the parent's nonce and sequence.
  const uint64_t sequence = temp_sequence_.fetch_add(1, std::memory_order_relaxed);
  std::snprintf(out, kBlockPathBytes, "tmp/%u-%016" PRIx64 "-%016" PRIx64 ".tmp",
                static_cast<unsigned>(getpid()), nonce_, sequence);
}

size_t BlockStore::longest_prefix(const BlockKey* keys, size_t count) noexcept {
  catch_up();
  for (size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) index_.prefetch(keys[i + kAhead]);
    if (!index_.contains(keys[i]) && !probe(keys[i])) return i;
  }
  return count;
}

size_t BlockStore::acquire_prefix(const BlockKey* keys, size_t count) noexcept {
  const uint64_t position = eviction_position();
  return hold(keys, longest_prefix(keys, count), position);
}

size_t BlockStore::hold(const BlockKey* keys, size_t found, uint64_t position) noexcept {
  for (size_t i = 0; i < found; ++i) pins_.pin(keys[i]);
  size_t held = found;
  // From here on a collector sees the pins, or has announced before (eviction_log.h).
  if (log_.announced() != position) held = longest_prefix(keys, found);
  for (size_t i = held; i < found; ++i) pins_.unpin(keys[i]);
  ages_->hit(keys, held);
  return held;
}

void BlockStore::release(const BlockKey* keys, size_t held, size_t stored) noexcept {
  ages_->hit(keys, stored);
  for (size_t i = 0; i < held; ++i) pins_.unpin(keys[i]);
}

// What collectors of this host have announced leaves the index: it is looked for again.
void BlockStore::catch_up() noexcept {
  if (!options_.namespace_name.empty() && namespace_stamp() != namespace_stamp_.load()) {
    namespace_stamp_ = namespace_stamp();
    reset_index();  // the namespace was deleted, and perhaps made anew
  }
  if (caught_up_.load(std::memory_order_acquire) == log_.announced()) return;
  const std::lock_guard lock(catch_up_mutex_);
  const uint64_t end = log_.announced();
  for (uint64_t position = caught_up_.load(std::memory_order_relaxed); position < end; ++position) {
    BlockKey prefix;
    if (end - position > EvictionLog::kEntries || !log_.read(position, &prefix)) {
      reset_index();
      break;
    }
    index_.erase(prefix);
  }
  caught_up_.store(end, std::memory_order_release);
}

void BlockStore::reset_index() noexcept {
  index_.clear();
  counters_.index_resets.fetch_add(1, std::memory_order_relaxed);
}

// Tells the namespace's directory from another of its name.
uint64_t BlockStore::namespace_stamp() const noexcept {
  struct stat info;
  if (fstatat(root_fd(), block_directory_.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return 0;
  const auto time_ns = static_cast<uint64_t>(info.st_ctim.tv_sec) * 1'000'000'000u +
                       static_cast<uint64_t>(info.st_ctim.tv_nsec);
  return (static_cast<uint64_t>(info.st_ino) * 0x9e3779b97f4a7c15u) ^ time_ns;
}

// By open where the file system is shared by hosts: an attribute that a client remembers says nothing.
bool BlockStore::exists(const char* path) noexcept {
  if (local_) return faccessat(root_fd(), path, F_OK, 0) == 0;
  return ScopedFd(openat(root_fd(), path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)).valid();
}

bool BlockStore::probe(const BlockKey& key) noexcept {
  char path[kBlockPathBytes];
  block_path(key, path);
  counters_.probes.fetch_add(1, std::memory_order_relaxed);
  // In this order: once a condemned block is settled, its file is gone or stays.
  const uint64_t position = log_.announced();
  if (log_.condemned(key)) return false;
  if (exists(path)) {
    counters_.probe_hits.fetch_add(1, std::memory_order_relaxed);
    add_to_index(key, position);
    return true;
  }
  if (errno != ENOENT) {
    counters_.last_probe_errno.store(static_cast<uint64_t>(errno), std::memory_order_relaxed);
    counters_.probe_errors.fetch_add(1, std::memory_order_relaxed);
  }
  return false;
}

// position: of the log when the block was seen, or was not condemned. Whoever has caught up beyond it has not
// met the key, so it stays out; and what is announced after this is caught up with after this. It must never
// be in for a moment: another thread's look-up that begins in that moment would hold a block that is gone.
void BlockStore::add_to_index(const BlockKey& key, uint64_t position) noexcept {
  const std::lock_guard lock(catch_up_mutex_);
  if (caught_up_.load(std::memory_order_relaxed) > position) return;
  if (index_.insert(key) == KeyIndex::Insert::kFull) {
    counters_.index_overflows.fetch_add(1, std::memory_order_relaxed);
  }
}

void BlockStore::publish(const BlockKey& key, uint64_t settled, uint32_t depth) noexcept {
  counters_.published.fetch_add(1, std::memory_order_relaxed);
  // A collector that was at work since may have meant the file of that name that was there before, and have
  // taken this one: then a look-up has to look.
  if (log_.announced() == settled) add_to_index(key, settled);
  ages_->published(key, depth);
  log_.add_bytes(static_cast<int64_t>(format_.file_bytes()));
  if (evictor_ != nullptr) evictor_->published();
}

void BlockStore::forget(const BlockKey& key) noexcept {
  counters_.forgotten.fetch_add(1, std::memory_order_relaxed);
  index_.erase(key);
}

void BlockStore::no_space() noexcept {
  if (evictor_ != nullptr) evictor_->no_space();
}

Status BlockStore::quarantine(const BlockKey& key, BlockFault fault) {
  char from[kBlockPathBytes];
  char to[kBlockPathBytes];
  block_path(key, from);
  write_bad_path(key, to);
  if (fault != BlockFault::kOk) {
    counters_.faults[static_cast<size_t>(fault)].fetch_add(1, std::memory_order_relaxed);
  }
  index_.erase(key);
  const bool kept = bad_files_.fetch_add(1, std::memory_order_relaxed) < options_.quarantine_capacity &&
                    renameat(root_fd(), from, root_fd(), to) == 0;
  if (!kept) {
    bad_files_.fetch_sub(1, std::memory_order_relaxed);
    // bad/ is full, gone or refuses the file: what matters more is that the block is not served.
    if (unlinkat(root_fd(), from, 0) != 0) {
      if (errno == ENOENT) return {};
      return io_error("unlinkat", absolute(from), errno);
    }
    counters_.quarantine_unlinked.fetch_add(1, std::memory_order_relaxed);
  }
  counters_.quarantined.fetch_add(1, std::memory_order_relaxed);
  log_.add_bytes(-static_cast<int64_t>(format_.file_bytes()));
  // A look-up may have found the file again between the two steps above.
  index_.erase(key);
  return {};
}

StoreStatistics BlockStore::stat() const noexcept {
  const auto get = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const uint64_t blocks = index_.size();
  StoreStatistics stat{
      .blocks = blocks,
      .bytes = blocks * format_.file_bytes(),
      .index_capacity = index_.capacity(),
      .index_overflows = get(counters_.index_overflows),
      .index_resets = get(counters_.index_resets),
      .probes = get(counters_.probes),
      .probe_hits = get(counters_.probe_hits),
      .probe_errors = get(counters_.probe_errors),
      .last_probe_errno = get(counters_.last_probe_errno),
      .published = get(counters_.published),
      .forgotten = get(counters_.forgotten),
      .quarantined = get(counters_.quarantined),
      .quarantine_unlinked = get(counters_.quarantine_unlinked),
      .faults = {},
      .evictions_seen = get(caught_up_),
      .stale_temps_removed = get(counters_.stale_temps_removed),
      .stale_temps_left = get(counters_.stale_temps_left),
      .foreign_names = get(counters_.foreign_names),
      .capacity_bytes = options_.capacity_bytes,
      .store_bytes = log_.bytes(),
      .shared = log_.shared() && pins_.shared(),
      .ages = ages_->statistics(),
      .evictions = evictor_ == nullptr ? Evictor::Statistics{} : evictor_->statistics(),
  };
  for (size_t i = 0; i < kBlockFaults; ++i) stat.faults[i] = get(counters_.faults[i]);
  return stat;
}

}  // namespace dualpath::store
