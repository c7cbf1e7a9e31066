#include "store/block_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <string_view>

#include "store/manifest.h"
#include "store/sodium_start.h"

namespace dualpath::store {
namespace {

constexpr char kBlocks[] = "blocks";
constexpr char kTemp[] = "tmp";
constexpr char kBad[] = "bad";
constexpr std::string_view kBlockSuffix = ".kvb";
constexpr std::string_view kTempSuffix = ".tmp";
constexpr unsigned kFanOut = 256;
constexpr size_t kNonceHexChars = 16;

using DirectoryName = char[sizeof "blocks/00"];

void block_directory(unsigned number, DirectoryName& out) noexcept {
  std::snprintf(out, sizeof out, "blocks/%02x", number & 0xff);
}

void bad_path(const BlockKey& key, char* out) noexcept {
  std::memcpy(out, "bad/", 4);
  key.write_hex(out + 4);
  std::memcpy(out + 4 + BlockKey::kHexChars, ".kvb", sizeof ".kvb");
}

std::optional<BlockKey> parse_block_name(std::string_view name) noexcept {
  if (!name.ends_with(kBlockSuffix)) return std::nullopt;
  return BlockKey::from_hex(name.substr(0, name.size() - kBlockSuffix.size()));
}

// <pid>-<nonce>-<seq>.tmp as temp_path makes them; nothing else in tmp/ is touched.
bool is_temp_name(std::string_view name) noexcept {
  if (!name.ends_with(kTempSuffix)) return false;
  name.remove_suffix(kTempSuffix.size());
  const size_t dash = name.find('-');
  if (dash == 0 || dash > 10) return false;
  if (name.find_first_not_of("0123456789") != dash) return false;
  name.remove_prefix(dash + 1);
  if (name.size() != 2 * kNonceHexChars + 1 || name[kNonceHexChars] != '-') return false;
  return name.find_first_not_of("0123456789abcdef-") == std::string_view::npos;
}

// Calls visit(directory fd, entry name) for every entry but . and .. of a directory below root_fd.
template <typename Visit>
Status for_each_entry(int root_fd, const char* relative, const std::string& path, Visit visit) {
  const int fd = openat(root_fd, relative, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error("openat", path, errno);
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(fdopendir(fd), closedir);
  if (directory == nullptr) {
    const int error = errno;
    close(fd);
    return io_error("fdopendir", path, error);
  }
  while (true) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") visit(fd, entry->d_name);
  }
  if (errno != 0) return io_error("readdir", path, errno);
  return {};
}

}  // namespace

BlockStore::BlockStore(std::string path, const BlockFormat& format, const StoreOptions& options)
    : path_(std::move(path)),
      format_(format),
      quarantine_capacity_(options.quarantine_capacity),
      nonce_([] {
        start_sodium();
        uint64_t nonce;
        randombytes_buf(&nonce, sizeof nonce);
        return nonce;
      }()),
      index_(options.index_capacity) {}

Status BlockStore::open(const std::string& path, const BlockFormat& format, std::span<const uint8_t> salt,
                        const StoreOptions& options, std::unique_ptr<BlockStore>* out) try {
  if (options.index_capacity == 0 || options.index_capacity > KeyIndex::kMaxCapacity) {
    return Status::error("INVALID_ARGUMENT", "block store " + path + ": index_capacity of " +
                                                 std::to_string(options.index_capacity) + " keys, 1 to " +
                                                 std::to_string(KeyIndex::kMaxCapacity) + " allowed");
  }
  if (format.layers() == 0) {
    return Status::error("INVALID_ARGUMENT",
                         "block store " + path + ": the block format is empty; create it first");
  }
  std::unique_ptr<BlockStore> store(new BlockStore(path, format, options));
  Status status = chain_root(format.identity(), salt, &store->root_key_);
  if (status.ok()) status = store->open_root(options.create);
  if (status.ok()) status = store->settle_manifest(options.create);
  if (status.ok()) status = store->check_writable(kTemp);
  if (status.ok()) status = store->check_writable(kBad);
  if (status.ok()) status = store->remove_stale_temps();
  if (status.ok()) status = store->count_quarantined();
  if (status.ok()) status = store->fill_index();
  if (status.ok()) *out = std::move(store);
  return status;
} catch (const std::bad_alloc&) {
  return Status::error("MEMORY_LIMIT", "block store " + path + ": no memory for an index of " +
                                           std::to_string(options.index_capacity) +
                                           " keys (up to 48 bytes each); lower index_capacity");
}

Status BlockStore::open_root(bool create) {
  if (create && mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST) {
    const int error = errno;
    Status status = io_error("mkdir", path_, error);
    if (error == ENOENT) status.message += "; make its parent directory first";
    return status;
  }
  root_.reset(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (root_.valid()) return {};
  const int error = errno;
  Status status = io_error("open", path_, error);
  if (error == ENOENT) status.message += "; there is no store yet: open it with create";
  return status;
}

Status BlockStore::settle_manifest(bool create) {
  ManifestState state;
  Status status = check_manifest(root_fd(), path_, format_.identity(), &state);
  if (!status.ok()) return status;
  if (!create) {
    if (state == ManifestState::kMatches) return {};
    return Status::error("STORAGE_IO",
                         "block store " + path_ + ": no " + kManifestName +
                             " in this directory; open it with create, or check the path",
                         ENOENT);
  }
  // Before the manifest, so that whoever sees a manifest finds the directories; and also when there is
  // one, as somebody may have emptied the store by hand.
  if (status = make_directories(); !status.ok()) return status;
  if (state == ManifestState::kMatches) return {};
  char temp_name[kBlockPathBytes];
  temp_path(temp_name);
  if (status = write_manifest(root_fd(), path_, temp_name, format_.identity()); !status.ok()) return status;
  return check_manifest(root_fd(), path_, format_.identity(), &state);
}

Status BlockStore::make_directories() {
  const auto make = [this](const char* name) -> Status {
    if (mkdirat(root_fd(), name, 0777) == 0 || errno == EEXIST) return {};
    return io_error("mkdirat", absolute(name), errno);
  };
  for (const char* name : {kTemp, kBad, kBlocks}) {
    if (Status status = make(name); !status.ok()) return status;
  }
  for (unsigned i = 0; i < kFanOut; ++i) {
    DirectoryName name;
    block_directory(i, name);
    if (Status status = make(name); !status.ok()) return status;
  }
  return {};
}

Status BlockStore::check_writable(const char* directory) const {
  if (faccessat(root_fd(), directory, R_OK | W_OK | X_OK, AT_EACCESS) == 0) return {};
  return io_error("faccessat", absolute(directory), errno);
}

Status BlockStore::remove_stale_temps() {
  const int64_t now_s = static_cast<int64_t>(time(nullptr));
  return for_each_entry(root_fd(), kTemp, absolute(kTemp), [&](int directory, const char* name) {
    struct stat info;
    if (!is_temp_name(name)) return;
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return;
    if (now_s - static_cast<int64_t>(info.st_mtime) <= static_cast<int64_t>(kStaleTempAge_s)) return;
    if (unlinkat(directory, name, 0) == 0) {
      ++counters_.stale_temps_removed;
    } else if (errno != ENOENT) {
      ++counters_.stale_temps_left;
    }
  });
}

Status BlockStore::count_quarantined() {
  return for_each_entry(root_fd(), kBad, absolute(kBad), [this](int, const char*) { ++bad_files_; });
}

Status BlockStore::fill_index() {
  for (unsigned i = 0; i < kFanOut; ++i) {
    DirectoryName directory;
    block_directory(i, directory);
    if (Status status = check_writable(directory); !status.ok()) return status;
    Status status = for_each_entry(root_fd(), directory, absolute(directory), [&](int, const char* name) {
      const std::optional<BlockKey> key = parse_block_name(name);
      if (key && key->bytes[0] == i) {
        add_to_index(*key);
      } else {
        ++counters_.foreign_names;
      }
    });
    if (!status.ok()) return status;
  }
  return {};
}

void BlockStore::block_path(const BlockKey& key, char* out) const noexcept {
  static_assert(sizeof "blocks/00/" - 1 + BlockKey::kHexChars + kBlockSuffix.size() + 1 <= kBlockPathBytes);
  char* hex = out + sizeof "blocks/00/" - 1;
  key.write_hex(hex);
  std::memcpy(out, "blocks/", 7);
  std::memcpy(out + 7, hex, 2);
  out[9] = '/';
  std::memcpy(hex + BlockKey::kHexChars, ".kvb", sizeof ".kvb");
}

void BlockStore::temp_path(char* out) noexcept {
  // The process id is asked for every time: a forked child has the parent's nonce and sequence.
  const uint64_t sequence = temp_sequence_.fetch_add(1, std::memory_order_relaxed);
  std::snprintf(out, kBlockPathBytes, "tmp/%u-%016" PRIx64 "-%016" PRIx64 ".tmp",
                static_cast<unsigned>(getpid()), nonce_, sequence);
}

size_t BlockStore::longest_prefix(const BlockKey* keys, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    if (!index_.contains(keys[i]) && !probe(keys[i])) return i;
  }
  return count;
}

bool BlockStore::probe(const BlockKey& key) noexcept {
  char path[kBlockPathBytes];
  block_path(key, path);
  counters_.probes.fetch_add(1, std::memory_order_relaxed);
  if (faccessat(root_fd(), path, F_OK, 0) == 0) {
    counters_.probe_hits.fetch_add(1, std::memory_order_relaxed);
    add_to_index(key);
    return true;
  }
  if (errno != ENOENT) {
    counters_.last_probe_errno.store(static_cast<uint64_t>(errno), std::memory_order_relaxed);
    counters_.probe_errors.fetch_add(1, std::memory_order_relaxed);
  }
  return false;
}

void BlockStore::add_to_index(const BlockKey& key) noexcept {
  if (index_.insert(key) == KeyIndex::Insert::kFull) {
    counters_.index_overflows.fetch_add(1, std::memory_order_relaxed);
  }
}

void BlockStore::publish(const BlockKey& key) noexcept {
  counters_.published.fetch_add(1, std::memory_order_relaxed);
  add_to_index(key);
}

void BlockStore::forget(const BlockKey& key) noexcept {
  counters_.forgotten.fetch_add(1, std::memory_order_relaxed);
  index_.erase(key);
}

Status BlockStore::quarantine(const BlockKey& key) {
  char from[kBlockPathBytes];
  char to[kBlockPathBytes];
  block_path(key, from);
  bad_path(key, to);
  index_.erase(key);
  const bool kept = bad_files_.fetch_add(1, std::memory_order_relaxed) < quarantine_capacity_ &&
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
  // A look-up may have found the file again between the two steps above.
  index_.erase(key);
  return {};
}

StoreStatistics BlockStore::stat() const noexcept {
  const auto get = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  const uint64_t blocks = index_.size();
  return StoreStatistics{
      .blocks = blocks,
      .bytes = blocks * format_.file_bytes(),
      .index_capacity = index_.capacity(),
      .index_overflows = get(counters_.index_overflows),
      .probes = get(counters_.probes),
      .probe_hits = get(counters_.probe_hits),
      .probe_errors = get(counters_.probe_errors),
      .last_probe_errno = get(counters_.last_probe_errno),
      .published = get(counters_.published),
      .forgotten = get(counters_.forgotten),
      .quarantined = get(counters_.quarantined),
      .quarantine_unlinked = get(counters_.quarantine_unlinked),
      .stale_temps_removed = get(counters_.stale_temps_removed),
      .stale_temps_left = get(counters_.stale_temps_left),
      .foreign_names = get(counters_.foreign_names),
  };
}

}  // namespace dualpath::store
