#include "store/verifier.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <new>
#include <system_error>
#include <thread>

#include "store/paths.h"

namespace dualpath::store {
namespace {

constexpr size_t kPageBlocks = 4096;

struct Place {
  std::string_view namespace_name;
  BlockKey key;
};

bool before(const BlockKey& a, const BlockKey& b) noexcept { return a.bytes < b.bytes; }

class Verifier {
 public:
  Verifier(const StoreRoot& root, const VerifyOptions& options, ToolProgress& progress, VerifyResult* result)
      : root_(root), options_(options), progress_(progress), result_(result) {}

  Status run();

 private:
  Status start();
  Status count();
  Status next_page(std::vector<Place>* page);
  Status take_directory(unsigned number, size_t room, std::vector<BlockKey>* keys);
  Status check(const std::vector<Place>& page);
  void check_some(const std::vector<Place>& page, std::atomic<size_t>& next);
  void check_one(const Place& place, std::byte* buffer);
  ssize_t read_block(const Place& place, std::byte* buffer, int* error) const;
  void bad(const Place& place, const BlockVerdict& verdict, int error);
  bool remove(const Place& place) const;

  const StoreRoot& root_;
  const VerifyOptions& options_;
  ToolProgress& progress_;
  VerifyResult* result_;
  BlockFormat format_;
  std::vector<std::string> names_;
  size_t name_ = 0;     // the namespace being listed
  bool after_ = false;  // only keys after last_
  BlockKey last_;
  unsigned directory_ = 0;  // of it, the next to list
  std::mutex mutex_;        // of the result, while threads check
};

Status Verifier::run() {
  if (Status status = start(); !status.ok()) return status;
  std::vector<Place> page;
  while (progress_.go_on() && result_->blocks + result_->vanished_blocks < options_.limit) {
    if (Status status = next_page(&page); !status.ok()) return status;
    if (page.empty()) {
      result_->resume.clear();
      return {};
    }
    if (Status status = check(page); !status.ok()) return status;
    // A page that was broken off is not behind us.
    if (progress_.go_on()) {
      result_->resume = std::string(page.back().namespace_name) + "/" + page.back().key.to_hex();
    }
  }
  return {};
}

Status Verifier::start() {
  if (Status status = root_.format(&format_); !status.ok()) return status;
  if (Status status = list_namespaces(root_.fd(), root_.path, &names_); !status.ok()) return status;
  names_.insert(names_.begin(), "");
  result_->resume = options_.resume;
  if (!options_.resume.empty()) {
    const size_t slash = options_.resume.find('/');
    const auto key = slash == std::string::npos
                         ? std::nullopt
                         : BlockKey::from_hex(std::string_view(options_.resume).substr(slash + 1));
    if (!key) {
      return Status::error("INVALID_ARGUMENT", "resume: '" + options_.resume +
                                                   "' is not the 'resume' of an earlier run: "
                                                   "<namespace>/<64 hexadecimal digits>");
    }
    // A namespace that is gone: go on with the one after it.
    const std::string name = options_.resume.substr(0, slash);
    name_ = static_cast<size_t>(std::lower_bound(names_.begin(), names_.end(), name) - names_.begin());
    after_ = name_ < names_.size() && names_[name_] == name;
    last_ = *key;
    directory_ = after_ ? key->bytes[0] : 0;
  }
  return count();
}

// For the progress alone.
Status Verifier::count() {
  uint64_t blocks = 0;
  for (size_t n = name_; n < names_.size(); ++n) {
    for (unsigned i = n == name_ ? directory_ : 0; i < kFanOut && blocks < options_.limit; ++i) {
      Status status = for_each_entry_if_there(root_.fd(), root_.path, fan_out_directory(names_[n], i),
                                              [&](int, const char* name) {
                                                if (parse_block_name(name)) ++blocks;
                                                return progress_.go_on();
                                              });
      if (!status.ok()) return status;
    }
  }
  progress_.total = std::min(blocks, options_.limit);
  return {};
}

Status Verifier::next_page(std::vector<Place>* page) {
  page->clear();
  const uint64_t done = result_->blocks + result_->vanished_blocks;
  const size_t most = static_cast<size_t>(std::min<uint64_t>(kPageBlocks, options_.limit - done));
  std::vector<BlockKey> keys;
  while (page->size() < most && name_ < names_.size()) {
    const size_t room = most - page->size();
    if (Status status = take_directory(directory_, room, &keys); !status.ok()) return status;
    for (const BlockKey& key : keys) page->push_back({names_[name_], key});
    if (!keys.empty()) {
      last_ = keys.back();
      after_ = true;
    }
    if (keys.size() == room) break;  // the directory may have more
    if (++directory_ == kFanOut) {
      directory_ = 0;
      after_ = false;
      ++name_;
    }
  }
  return {};
}

// The first `room` keys in order, after last_ where that counts.
Status Verifier::take_directory(unsigned number, size_t room, std::vector<BlockKey>* keys) {
  keys->clear();
  Status status = for_each_entry_if_there(
      root_.fd(), root_.path, fan_out_directory(names_[name_], number), [&](int, const char* name) {
        const auto key = parse_block_name(name);
        if (!key || key->bytes[0] != number || (after_ && !before(last_, *key))) return true;
        if (keys->size() == room && before(*key, keys->front())) {
          std::pop_heap(keys->begin(), keys->end(), before);
          keys->pop_back();
        }
        if (keys->size() < room) {
          keys->push_back(*key);
          std::push_heap(keys->begin(), keys->end(), before);
        }
        return progress_.go_on();
      });
  std::sort_heap(keys->begin(), keys->end(), before);
  return status;
}

Status Verifier::check(const std::vector<Place>& page) try {
  std::atomic<size_t> next{0};
  std::atomic<bool> starved{false};
  const size_t count = std::min<size_t>(options_.threads, page.size());
  std::vector<std::thread> threads;
  threads.reserve(count);
  const auto body = [&] {
    try {
      check_some(page, next);
    } catch (const std::bad_alloc&) {
      starved = true;
    }
  };
  try {
    for (size_t i = 1; i < count; ++i) threads.emplace_back(body);
  } catch (const std::system_error&) {
    // Fewer threads do it, too.
  }
  body();
  for (std::thread& thread : threads) thread.join();
  if (!starved) return {};
  throw std::bad_alloc();
} catch (const std::bad_alloc&) {
  return Status::error(
      "MEMORY_LIMIT", "block store " + root_.path + ": no memory for " + std::to_string(options_.threads) +
                          " blocks of " + std::to_string(format_.file_bytes()) + " bytes; use fewer threads");
}

void Verifier::check_some(const std::vector<Place>& page, std::atomic<size_t>& next) {
  struct Free {
    void operator()(void* memory) const noexcept { free(memory); }
  };
  const std::unique_ptr<void, Free> buffer(aligned_alloc(BlockFormat::kAlignment, format_.file_bytes()));
  if (buffer == nullptr) throw std::bad_alloc();
  while (progress_.go_on()) {
    const size_t i = next.fetch_add(1);
    if (i >= page.size()) return;
    check_one(page[i], static_cast<std::byte*>(buffer.get()));
    progress_.done.fetch_add(1, std::memory_order_relaxed);
  }
}

void Verifier::check_one(const Place& place, std::byte* buffer) {
  int error = 0;
  const ssize_t bytes = read_block(place, buffer, &error);
  const BlockVerdict verdict =
      bytes < 0 ? BlockVerdict{} : format_.verify(buffer, static_cast<size_t>(bytes), place.key);
  const std::lock_guard lock(mutex_);
  if (error == ENOENT) {
    ++result_->vanished_blocks;
    return;
  }
  ++result_->blocks;
  if (error == 0) result_->bytes += static_cast<uint64_t>(bytes);
  if (error == 0 && verdict.ok()) {
    ++result_->good_blocks;
  } else {
    bad(place, verdict, error);
  }
}

// Past the page cache where that can be, which is what a scrub is for.
ssize_t Verifier::read_block(const Place& place, std::byte* buffer, int* error) const {
  char path[kBlockPathBytes];
  write_block_path(namespace_directory(place.namespace_name), place.key, path);
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  ScopedFd fd(openat(root_.fd(), path, kFlags | O_DIRECT));
  if (!fd.valid() && errno == EINVAL) fd.reset(openat(root_.fd(), path, kFlags));
  *error = fd.valid() ? 0 : errno;
  if (!fd.valid()) return -1;
  size_t filled = 0;
  while (filled < format_.file_bytes()) {
    const ssize_t n =
        pread(fd.get(), buffer + filled, format_.file_bytes() - filled, static_cast<off_t>(filled));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      *error = errno;
      return -1;
    }
    if (n == 0) break;
    filled += static_cast<size_t>(n);
    if (filled % BlockFormat::kAlignment != 0) break;  // the end of a file that is too short
  }
  return static_cast<ssize_t>(filled);
}

void Verifier::bad(const Place& place, const BlockVerdict& verdict, int error) {
  ++result_->bad_blocks;
  if (error != 0) {
    ++result_->unreadable_blocks;
  } else {
    ++result_->faults[static_cast<size_t>(verdict.fault)];
  }
  if (result_->listed.size() < VerifyResult::kMaxListed) {
    result_->listed.push_back(
        {std::string(place.namespace_name), place.key, verdict.fault, verdict.layer, error});
  }
  if (options_.action == BadBlockAction::kReport) return;
  if (remove(place)) {
    ++result_->removed_blocks;
  } else {
    ++result_->failed_removals;
  }
}

bool Verifier::remove(const Place& place) const {
  char path[kBlockPathBytes];
  char to[kBlockPathBytes];
  write_block_path(namespace_directory(place.namespace_name), place.key, path);
  write_bad_path(place.key, to);
  const bool deleted = options_.action == BadBlockAction::kDelete;
  const int rc = deleted ? unlinkat(root_.fd(), path, 0) : renameat(root_.fd(), path, root_.fd(), to);
  return rc == 0 || errno == ENOENT;
}

}  // namespace

Status verify_store(const StoreRoot& root, const VerifyOptions& options, ToolProgress& progress,
                    VerifyResult* out) {
  if (options.threads == 0 || options.threads > VerifyOptions::kMaxThreads) {
    return Status::error("INVALID_ARGUMENT", "threads: " + std::to_string(options.threads) + " given, 1 to " +
                                                 std::to_string(VerifyOptions::kMaxThreads) + " allowed");
  }
  return Verifier(root, options, progress, out).run();
}

}  // namespace dualpath::store
