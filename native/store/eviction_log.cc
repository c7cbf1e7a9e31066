#include "store/eviction_log.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>

#include "store/paths.h"

namespace dualpath::store {

struct EvictionLog::Header {
  static constexpr uint64_t kMagic = 0x31474c5645504421;  // changes with the layout of this file
  std::atomic<uint64_t> magic;                            // last when the file is made
  alignas(64) std::atomic<uint64_t> announced;
  std::atomic<uint64_t> settled;
  alignas(64) std::atomic<int64_t> bytes;
  std::atomic<int64_t> scanned_s;
};

namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kFileBytes = kHeaderBytes + EvictionLog::kEntries * 16;

void words_of(const BlockKey& key, uint64_t* words) noexcept { std::memcpy(words, key.bytes.data(), 16); }

}  // namespace

void EvictionLog::open(int root_fd) {
  if (share(root_fd)) return;
  mapping_.allocate(kFileBytes);
  header().magic.store(Header::kMagic);
}

bool EvictionLog::share(int root_fd) {
  const std::string& host = host_directory();
  const std::string path = host + "/evictions";
  if (mkdirat(root_fd, kHosts, 0777) != 0 && errno != EEXIST) return false;
  if (mkdirat(root_fd, host.c_str(), 0777) != 0 && errno != EEXIST) return false;
  ScopedFd fd(openat(root_fd, path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid() && errno == ENOENT) {
    fd.reset(openat(root_fd, path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  }
  if (!fd.valid()) return false;
  struct stat info;
  if (fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) return false;
  // Zeroes are a valid beginning, so whoever comes first makes the file as long as it has to be.
  if (info.st_size != 0 && info.st_size != static_cast<off_t>(kFileBytes)) return false;
  if (!take_space(fd.get(), kFileBytes)) return false;
  if (!mapping_.map(fd.get(), kFileBytes, true)) return false;
  uint64_t none = 0;
  if (header().magic.compare_exchange_strong(none, Header::kMagic) || none == Header::kMagic) return true;
  mapping_.reset();  // of another build
  return false;
}

EvictionLog::Entry& EvictionLog::entry(uint64_t position) const noexcept {
  auto* entries = reinterpret_cast<Entry*>(static_cast<std::byte*>(mapping_.data()) + kHeaderBytes);
  return entries[position % kEntries];
}

uint64_t EvictionLog::announced() const noexcept { return header().announced.load(); }
uint64_t EvictionLog::settled() const noexcept { return header().settled.load(); }

bool EvictionLog::read(uint64_t position, BlockKey* prefix) const noexcept {
  const Entry& at = entry(position);
  const uint64_t words[2] = {at.word[0].load(std::memory_order_acquire),
                             at.word[1].load(std::memory_order_acquire)};
  *prefix = BlockKey{};
  std::memcpy(prefix->bytes.data(), words, sizeof words);
  // A collector writes up to a batch ahead of what it has announced.
  return announced() - position <= kEntries - kMaxBatch;
}

bool EvictionLog::matches(uint64_t position, const BlockKey& key) const noexcept {
  uint64_t words[2];
  words_of(key, words);
  const Entry& at = entry(position);
  return at.word[0].load(std::memory_order_relaxed) == words[0] &&
         at.word[1].load(std::memory_order_relaxed) == words[1];
}

bool EvictionLog::condemned(const BlockKey& key) const noexcept {
  const uint64_t end = announced();
  uint64_t begin = settled();
  if (begin >= end) return false;
  if (end - begin > kMaxBatch) begin = end - kMaxBatch;
  for (uint64_t position = begin; position < end; ++position) {
    if (matches(position, key)) return true;
  }
  return false;
}

void EvictionLog::announce(std::span<const BlockKey> keys) noexcept {
  const uint64_t end = header().announced.load();
  for (size_t i = 0; i < keys.size(); ++i) {
    uint64_t words[2];
    words_of(keys[i], words);
    Entry& at = entry(end + i);
    at.word[0].store(words[0], std::memory_order_release);
    at.word[1].store(words[1], std::memory_order_release);
  }
  header().announced.store(end + keys.size());
}

void EvictionLog::settle() noexcept { header().settled.store(header().announced.load()); }

void EvictionLog::add_bytes(int64_t bytes) noexcept {
  header().bytes.fetch_add(bytes, std::memory_order_relaxed);
}

int64_t EvictionLog::bytes() const noexcept { return header().bytes.load(std::memory_order_relaxed); }

int64_t EvictionLog::scanned_s() const noexcept { return header().scanned_s.load(std::memory_order_relaxed); }

void EvictionLog::set_scanned(int64_t scan_s, int64_t correction_bytes) noexcept {
  header().bytes.fetch_add(correction_bytes, std::memory_order_relaxed);
  header().scanned_s.store(scan_s, std::memory_order_relaxed);
}

}  // namespace dualpath::store
