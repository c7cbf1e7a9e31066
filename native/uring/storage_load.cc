#include "uring/storage_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <numeric>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dualpath {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxBytes = 64 << 20;  // an operation
constexpr size_t kLayoutChunk = 4 << 20;

class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) close(fd_);
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Status file_error(const char* call, const std::string& path, int error) {
  std::string why = std::string(call) + " of " + path + ": " + strerror(error);
  if (error == EINVAL) why += "; its file system may have no O_DIRECT: choose another directory";
  const bool full = error == ENOSPC || error == EDQUOT;
  if (full) why += "; free some space there or ask for a smaller file";
  return Status::error(full ? "NO_SPACE" : "STORAGE_IO", why, error);
}

uint64_t next_random(uint64_t& state) {  // SplitMix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t cpu_ns() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto ns = [](const timeval& time) {
    return static_cast<uint64_t>(time.tv_sec) * 1'000'000'000u + static_cast<uint64_t>(time.tv_usec) * 1000u;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Counts by latency, 16 buckets an octave: quantiles are right within 6 %.
class Latencies {
 public:
  void add(uint64_t ns) {
    counts_[index(ns)]++;
    total_ns_ += ns;
    count_++;
  }
  uint64_t mean_ns() const { return count_ == 0 ? 0 : total_ns_ / count_; }
  uint64_t quantile_ns(double q) const {
    uint64_t left = static_cast<uint64_t>(q * static_cast<double>(count_));
    for (size_t i = 0; i < counts_.size(); i++) {
      if (counts_[i] > left) return floor_of(i);
      left -= counts_[i];
    }
    return 0;
  }

 private:
  static size_t index(uint64_t ns) {
    if (ns < 16) return ns;
    const unsigned shift = static_cast<unsigned>(std::bit_width(ns)) - 5;
    return 16 * (shift + 1) + ((ns >> shift) & 15);
  }
  static uint64_t floor_of(size_t index) {
    return index < 16 ? index : (16 + index % 16) << (index / 16 - 1);
  }

  std::array<uint64_t, 16 * 61> counts_{};
  uint64_t total_ns_ = 0;
  uint64_t count_ = 0;
};

class Load {
 public:
  explicit Load(const LoadOptions& options) : o_(options), random_(options.seed) {}

  Status set_up() {
    if (Status status = check(); !status.ok()) return status;
    for (stride_ = o_.places * 5 / 8 + 1; std::gcd(stride_, o_.places) != 1;) stride_++;
    if (Status status = BlockIo::create(o_.storage_io, nullptr, &io_); !status.ok()) return status;
    ArenaOptions memory;
    memory.name = "bench/storage";
    memory.bytes = o_.depth * o_.bytes;
    memory.huge_pages = o_.huge_pages;
    if (Status status = Arena::create(memory, &arena_); !status.ok()) return status;
    memset(arena_->base(), 0x5a, arena_->bytes());
    io_->add_arena(arena_);
    const int flags = !ranges() ? O_RDONLY | O_DIRECTORY : (write() ? O_WRONLY : O_RDONLY) | O_DIRECT;
    fd_ = std::make_unique<Fd>(open(o_.path.c_str(), flags | O_CLOEXEC));
    if (fd_->get() < 0) return file_error("open", o_.path, errno);
    if (!ranges()) return {};
    file_ = io_->add_file(fd_->get());
    return file_ < 0 ? file_error("registering", o_.path, -file_) : Status{};
  }

  Status run(LoadResult* result) {
    const uint64_t cpu_begin_ns = cpu_ns();
    const uint64_t begin_ns = now_ns();
    end_ns_ = begin_ns + o_.duration_ns;
    for (unsigned i = 0; i < o_.depth && more(begin_ns); i++) {
      BlockOp* op = io_->acquire();
      op->buffer = arena_->base() + i * o_.bytes;
      op->bytes = o_.bytes;
      start(op, now_ns());
    }
    while (under_way_ > 0) {
      io_->submit_and_wait(1'000'000'000);
      io_->reap([&](BlockOp* op) { ended(op, now_ns()); });
    }
    result_.elapsed_ns = now_ns() - begin_ns;
    result_.cpu_ns = cpu_ns() - cpu_begin_ns;
    result_.bytes = result_.operations * o_.bytes;
    result_.latency_mean_ns = latencies_.mean_ns();
    result_.latency_p50_ns = latencies_.quantile_ns(0.5);
    result_.latency_p99_ns = latencies_.quantile_ns(0.99);
    result_.verify_p50_ns = verify_.quantile_ns(0.5);
    result_.storage_io = io_->facts().io;
    *result = result_;
    return failure_;
  }

 private:
  bool write() const { return o_.kind == LoadKind::kWriteRanges || o_.kind == LoadKind::kWriteFiles; }
  bool ranges() const { return o_.kind == LoadKind::kReadRanges || o_.kind == LoadKind::kWriteRanges; }

  Status check() const {
    const auto refuse = [](const std::string& what, uint64_t value, const std::string& allowed) {
      return Status::error("INVALID_ARGUMENT",
                           "storage load: " + what + " is " + std::to_string(value) + "; " + allowed);
    };
    if (o_.bytes == 0 || o_.bytes % kPage != 0 || o_.bytes > kMaxBytes)
      return refuse("bytes", o_.bytes,
                    "a multiple of 4096 up to " + std::to_string(kMaxBytes) + " is needed");
    if (o_.depth == 0 || o_.depth > BlockIo::kMaxOps)
      return refuse("depth", o_.depth, "1 to " + std::to_string(BlockIo::kMaxOps) + " allowed");
    if (o_.places == 0) return refuse("places", 0, "at least 1 is needed");
    if (!o_.checksums.empty() && o_.checksums.size() < o_.places)
      return refuse("checksums", o_.checksums.size(), "one for each place is needed");
    return {};
  }

  bool more(uint64_t now) const {
    return failure_.ok() && now < end_ns_ && (!(write() || o_.once) || next_ < o_.places);
  }

  uint64_t next_place() {
    if (write()) return next_++;
    if (o_.once) return next_++ * stride_ % o_.places;
    return static_cast<uint64_t>(static_cast<unsigned __int128>(next_random(random_)) * o_.places >> 64);
  }

  void start(BlockOp* op, uint64_t now) {
    const uint64_t place = next_place();
    op->write = write();
    op->durable = o_.durable && op->write;
    op->direct = true;
    op->offload = o_.offload;
    op->index = static_cast<uint32_t>(place);
    op->due_ns = now;
    if (ranges()) {
      op->file = file_;
      op->offset = place * o_.bytes;
    } else {
      op->directory_fd = fd_->get();
      const unsigned name = static_cast<unsigned>(place);
      snprintf(op->path, sizeof op->path, op->write ? "t%010u" : "b%010u", name);
      snprintf(op->final_path, sizeof op->final_path, "b%010u", name);
    }
    under_way_++;
    io_->start(op);
  }

  void ended(BlockOp* op, uint64_t now) {
    under_way_--;
    if (op->error != 0 || op->done != op->bytes || op->existed) {
      if (failure_.ok())
        failure_ = file_error(op->write ? "write" : "read", o_.path, op->error == 0 ? EIO : op->error);
      io_->release(op);
      return;
    }
    latencies_.add(now - op->due_ns);
    result_.operations++;
    if (op->registered) result_.registered_bytes += op->done;
    if (!o_.checksums.empty()) {
      const uint64_t begin_ns = now_ns();
      // A device has written it: nothing of it is in a cache, and the hardware prefetcher starts late.
      __builtin_prefetch(&o_.checksums[op->index]);
      for (size_t i = 0; i < kPage; i += 64) __builtin_prefetch(op->buffer + i);
      if (XXH3_64bits(op->buffer, op->bytes) != o_.checksums[op->index]) result_.mismatches++;
      verify_.add(now_ns() - begin_ns);
    }
    if (more(now)) {
      start(op, now);
    } else {
      io_->release(op);
    }
  }

  const LoadOptions o_;
  std::shared_ptr<Arena> arena_;
  std::unique_ptr<Fd> fd_;
  std::unique_ptr<BlockIo> io_;
  int file_ = 0;
  uint64_t random_;
  uint64_t next_ = 0;
  uint64_t stride_ = 1;  // prime to places: its multiples visit each once
  uint64_t end_ns_ = 0;
  unsigned under_way_ = 0;
  Latencies latencies_;
  Latencies verify_;
  LoadResult result_;
  Status failure_;
};

// The checksums of a file's ranges of one size, as its bytes come.
class RangeChecksums {
 public:
  explicit RangeChecksums(uint64_t range_bytes) : range_bytes_(range_bytes) { XXH3_64bits_reset(&state_); }

  void update(const std::byte* data, size_t bytes) {
    while (bytes > 0) {
      const size_t part = std::min<uint64_t>(bytes, range_bytes_ - filled_);
      XXH3_64bits_update(&state_, data, part);
      filled_ += part;
      data += part;
      bytes -= part;
      if (filled_ < range_bytes_) continue;
      checksums_.push_back(XXH3_64bits_digest(&state_));
      XXH3_64bits_reset(&state_);
      filled_ = 0;
    }
  }
  std::vector<uint64_t> take() { return std::move(checksums_); }

 private:
  uint64_t range_bytes_;
  uint64_t filled_ = 0;
  std::vector<uint64_t> checksums_;
  XXH3_state_t state_;
};

}  // namespace

Status run_load(const LoadOptions& options, LoadResult* result) {
  Load load(options);
  const Status status = load.set_up();
  return status.ok() ? load.run(result) : status;
}

Status lay_out_file(const std::string& path, uint64_t bytes, std::span<const uint64_t> sizes,
                    std::vector<std::vector<uint64_t>>* checksums) {
  if (bytes == 0 || bytes % kPage != 0) {
    return Status::error("INVALID_ARGUMENT",
                         "storage file: " + std::to_string(bytes) + " bytes; a multiple of 4096 is needed");
  }
  std::vector<RangeChecksums> running;
  for (const uint64_t size : sizes) {
    if (size == 0 || size % kPage != 0) {
      return Status::error("INVALID_ARGUMENT", "storage file: ranges of " + std::to_string(size) +
                                                   " bytes; a multiple of 4096 is needed");
    }
    running.emplace_back(size);
  }
  std::shared_ptr<Arena> arena;
  ArenaOptions memory;
  memory.name = "bench/layout";
  memory.bytes = kLayoutChunk;
  if (Status status = Arena::create(memory, &arena); !status.ok()) return status;
  const Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_DIRECT, 0644));
  if (fd.get() < 0) return file_error("open", path, errno);
  uint64_t state = 1;
  for (uint64_t at = 0; at < bytes;) {
    const size_t chunk = std::min<uint64_t>(kLayoutChunk, bytes - at);
    for (size_t i = 0; i < chunk; i += sizeof(uint64_t)) {
      const uint64_t word = next_random(state);
      memcpy(arena->base() + i, &word, sizeof word);
    }
    for (RangeChecksums& one : running) one.update(arena->base(), chunk);
    for (size_t done = 0; done < chunk;) {
      const ssize_t n = pwrite(fd.get(), arena->base() + done, chunk - done, static_cast<off_t>(at + done));
      if (n <= 0) return file_error("write", path, n < 0 ? errno : EIO);
      done += static_cast<size_t>(n);
    }
    at += chunk;
  }
  if (fsync(fd.get()) != 0) return file_error("fsync", path, errno);
  checksums->clear();
  for (RangeChecksums& one : running) checksums->push_back(one.take());
  return {};
}

}  // namespace dualpath
