// The measured loop of storage benchmarks: keeps `depth` operations under way on a BlockIo, the class that
// the data path uses, for a set time. One thread, one ring; buffers and the file are registered before the
// clock starts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "uring/block_io.h"

namespace dualpath {

enum class LoadKind : uint8_t {
  kReadRanges,   // of one file, at random places
  kWriteRanges,  // of one file, one place after another
  kReadFiles,    // whole files of a directory (open, read, close), in random order
  kWriteFiles    // new files of a directory (create, write, rename, close), one after another
};

struct LoadOptions {
  LoadKind kind = LoadKind::kReadRanges;
  std::string path;     // of the file, or of the directory
  uint64_t bytes = 0;   // an operation moves, a multiple of 4096
  uint64_t places = 0;  // ranges of that size in the file, or files. Writes end when each has been written
  unsigned depth = 1;   // 1 to BlockIo::kMaxOps
  uint64_t duration_ns = 0;
  uint64_t seed = 0;
  bool durable = false;    // kWriteFiles
  bool once = false;       // reads: every place once, scattered, and then the end
  bool offload = false;    // as on a file system that may make whoever calls it wait (block_op.h)
  bool huge_pages = true;  // as an engine's arenas have them
  std::span<const uint64_t> checksums;  // XXH3-64 of every place: reads are verified; empty: they are not
  StorageIo storage_io = StorageIo::kAuto;
};

struct LoadResult {
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t registered_bytes = 0;
  uint64_t elapsed_ns = 0;  // to the end of the last operation
  uint64_t cpu_ns = 0;      // user and system time of the whole process, the kernel's workers for it included
  uint64_t latency_mean_ns = 0;
  uint64_t latency_p50_ns = 0;
  uint64_t latency_p99_ns = 0;
  uint64_t verify_p50_ns = 0;  // of one operation's checksum; a median is not misled by preemption
  uint64_t mismatches = 0;     // operations whose bytes are not what the checksum says
  StorageIo storage_io = StorageIo::kUring;
};

// INVALID_ARGUMENT, STORAGE_IO, NO_SPACE or MEMORY_LIMIT.
Status run_load(const LoadOptions& options, LoadResult* result);

// Writes `bytes` bytes of noise into a new file at `path`, as direct I/O does, and gives for each of `sizes`
// the XXH3-64 of every range of that size. `bytes` is a multiple of 4096, so are `sizes`.
Status lay_out_file(const std::string& path, uint64_t bytes, std::span<const uint64_t> sizes,
                    std::vector<std::vector<uint64_t>>* checksums);

}  // namespace dualpath
