#include "store/pin_table.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <optional>

#include "store/paths.h"

namespace dualpath::store {
namespace {

constexpr char kMagic[8] = {'D', 'P', 'P', 'I', 'N', 'S', '1', '\n'};
constexpr size_t kHeaderBytes = 4096;
constexpr std::string_view kSuffix = ".pins";
constexpr std::string_view kUnfinished = ".new";
constexpr size_t kMaxHosts = 256;

struct Header {
  char magic[8];
  uint32_t pid;
  uint32_t reserved;
  uint64_t capacity_bytes;
};

std::atomic<uint32_t>& slot_of(const Mapping& mapping, const BlockKey& key) noexcept {
  uint64_t word;
  std::memcpy(&word, key.bytes.data() + 16, sizeof word);
  auto* slots =
      reinterpret_cast<std::atomic<uint32_t>*>(static_cast<std::byte*>(mapping.data()) + kHeaderBytes);
  return slots[word % PinTable::kSlots];
}

// <pid>-<nonce>.pins, or with .new behind it while it is being made.
struct TableName {
  uint32_t pid = 0;
  uint64_t nonce = 0;
  bool finished = false;
};

std::optional<TableName> parse_table_name(std::string_view name) noexcept {
  TableName table;
  table.finished = !name.ends_with(kUnfinished);
  if (!table.finished) name.remove_suffix(kUnfinished.size());
  if (!name.ends_with(kSuffix)) return std::nullopt;
  name.remove_suffix(kSuffix.size());
  const size_t dash = name.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const auto nonce = parse_hex64(name.substr(dash + 1));
  const auto pid = std::from_chars(name.data(), name.data() + dash, table.pid);
  if (!nonce || pid.ec != std::errc{} || pid.ptr != name.data() + dash) return std::nullopt;
  table.nonce = *nonce;
  return table;
}

// Nobody else holds the file's lock: its owner is gone. Errors count as held.
bool abandoned(int fd) noexcept {
  if (flock(fd, LOCK_SH | LOCK_NB) != 0) return false;
  flock(fd, LOCK_UN);
  return true;
}

bool whole(int fd) noexcept {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == PinTable::kFileBytes;
}

}  // namespace

PinTable::~PinTable() {
  if (!path_.empty()) unlinkat(root_fd_, path_.c_str(), 0);
}

void PinTable::open(int root_fd, uint64_t nonce, uint64_t capacity_bytes) {
  root_fd_ = root_fd;
  // Once more when a gc took the file for a dead process's in the moment before it was locked.
  for (int attempt = 0; attempt < 3; ++attempt) {
    if (share(root_fd, nonce, capacity_bytes)) return;
  }
  lock_.reset();
  mapping_.allocate(kFileBytes);
}

// Locked before it has its name, so that nobody finds it unlocked while its owner lives.
bool PinTable::share(int root_fd, uint64_t nonce, uint64_t capacity_bytes) {
  char name[64];
  std::snprintf(name, sizeof name, "/%u-%016" PRIx64 ".pins", static_cast<unsigned>(getpid()), nonce);
  const std::string path = host_directory() + name;
  const std::string unfinished = path + std::string(kUnfinished);
  lock_.reset(openat(root_fd, unfinished.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!lock_.valid()) return false;
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.pid = static_cast<uint32_t>(getpid());
  header.capacity_bytes = capacity_bytes;
  const bool good = flock(lock_.get(), LOCK_EX) == 0 && take_space(lock_.get(), kFileBytes) &&
                    pwrite(lock_.get(), &header, sizeof header, 0) == sizeof header &&
                    mapping_.map(lock_.get(), kFileBytes, true) &&
                    renameat(root_fd, unfinished.c_str(), root_fd, path.c_str()) == 0;
  if (!good) {
    unlinkat(root_fd, unfinished.c_str(), 0);
    return false;
  }
  path_ = path;
  // Otherwise the first look-ups would pay for it, a page at a time. Old kernels cannot.
  madvise(mapping_.data(), mapping_.bytes(), MADV_POPULATE_WRITE);
  return true;
}

std::atomic<uint32_t>& PinTable::slot(const BlockKey& key) const noexcept { return slot_of(mapping_, key); }

void PinTable::pin(const BlockKey& key) noexcept { slot(key).fetch_add(1); }

void PinTable::unpin(const BlockKey& key) noexcept {
  std::atomic<uint32_t>& count = slot(key);
  uint32_t now = count.load(std::memory_order_relaxed);
  while (now != 0 && !count.compare_exchange_weak(now, now - 1)) {
  }
}

bool PinTable::pinned(const BlockKey& key) const noexcept { return slot(key).load() != 0; }

PinTables::PinTables(int root_fd, std::string root, const PinTable* own)
    : root_fd_(root_fd), root_(std::move(root)), own_(own) {}

bool PinTables::known(const char* name) const noexcept {
  return std::any_of(tables_.begin(), tables_.end(), [&](const Table& table) { return table.name == name; });
}

void PinTables::add(const char* name) {
  const std::string path = host_directory() + "/" + name;
  Table table;
  table.fd.reset(openat(root_fd_, path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!table.fd.valid() || !whole(table.fd.get()) || abandoned(table.fd.get())) return;
  if (!table.mapping.map(table.fd.get(), PinTable::kFileBytes, false)) return;
  table.name = name;
  tables_.push_back(std::move(table));
}

Status PinTables::refresh() {
  std::erase_if(tables_, [](const Table& table) { return abandoned(table.fd.get()); });
  bool full = false;
  Status status = for_each_entry_if_there(root_fd_, root_, host_directory(), [&](int, const char* name) {
    const auto parsed = parse_table_name(name);
    if (!parsed || !parsed->finished || known(name)) return true;
    full = tables_.size() >= kMaxTables;
    if (!full) add(name);
    return !full;
  });
  if (!full) return status;
  return Status::error("CAPACITY_EXHAUSTED", "block store " + root_ + ": more than " +
                                                 std::to_string(kMaxTables) +
                                                 " processes of this host have it open; nothing is evicted "
                                                 "as not all their pins can be seen");
}

bool PinTables::pinned(const BlockKey& key) const noexcept {
  if (own_ != nullptr && own_->pinned(key)) return true;
  return std::any_of(tables_.begin(), tables_.end(),
                     [&](const Table& table) { return slot_of(table.mapping, key).load() != 0; });
}

Status list_pin_tables(int root_fd, const std::string& root, std::vector<PinTableFile>* out) {
  std::vector<std::string> hosts;
  Status status = for_each_entry_if_there(root_fd, root, kHosts, [&](int, const char* name) {
    hosts.push_back(std::string(kHosts) + "/" + name);
    return hosts.size() < kMaxHosts;
  });
  const bool local = on_local_file_system(root_fd);
  const int64_t now_s = static_cast<int64_t>(time(nullptr));
  for (const std::string& host : hosts) {
    if (!status.ok()) break;
    const bool this_host = host == host_directory();
    size_t tables = 0;
    status = for_each_entry_if_there(root_fd, root, host, [&](int directory, const char* name) {
      const auto parsed = parse_table_name(name);
      if (!parsed) return true;
      const ScopedFd fd(openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
      struct stat info;
      if (!fd.valid() || fstat(fd.get(), &info) != 0) return true;
      Header header{};
      if (pread(fd.get(), &header, sizeof header, 0) != sizeof header) header.capacity_bytes = 0;
      const bool old = now_s - static_cast<int64_t>(info.st_mtime) > kForeignTableAge_s;
      out->push_back({.path = host + "/" + name,
                      .pid = parsed->pid,
                      .nonce = parsed->nonce,
                      .this_host = this_host,
                      .dead = abandoned(fd.get()) && (this_host || local || old),
                      .capacity_bytes = header.capacity_bytes});
      return ++tables < PinTables::kMaxTables;
    });
    if (status.sys_errno == ENOTDIR || status.sys_errno == ELOOP) status = {};
  }
  return status;
}

}  // namespace dualpath::store
