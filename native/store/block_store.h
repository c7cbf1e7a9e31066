// One directory of block files, all of one layout identity, shared by any number of processes:
//
//   store.manifest              format version and identity (manifest.h)
//   blocks/<2 hex>/<64 hex>.kvb blocks by key; only ever complete, renamed here from tmp/
//   tmp/<pid>-<nonce>-<seq>.tmp blocks being written
//   bad/<64 hex>.kvb            blocks that failed verification, kept for inspection
//
// The store names files, knows which exist and judges what was read; the bytes are moved by its caller,
// with openat, renameat and so on relative to root_fd(). To write a block: temp_path, write, rename to
// block_path, publish. To read one: open block_path, read, format().verify; when it is gone forget,
// when it is bad quarantine.
//
// A renamed file survives the death of its writer at any moment. After a loss of power a file may be
// there without its bytes; verification finds that.
//
// File modes are left to the umask. Everything below open is safe from any thread; nothing but open
// throws or, unless it returns an error, allocates.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/live.h"
#include "core/status.h"
#include "store/block_format.h"
#include "store/key_chain.h"
#include "store/key_index.h"
#include "store/posix.h"

namespace dualpath::store {

inline constexpr size_t kBlockPathBytes = 80;  // of block_path and temp_path, terminating zero included
inline constexpr uint64_t kStaleTempAge_s = 3600;

struct StoreOptions {
  bool create = false;                      // make the directory (not its parents) and what is missing in it
  size_t index_capacity = size_t{1} << 20;  // keys, 1..KeyIndex::kMaxCapacity
  size_t quarantine_capacity = 64;          // files kept in bad/; bad blocks beyond are unlinked
};

struct StoreStatistics {
  uint64_t blocks;            // in the index; others may be stored too once index_overflows > 0
  uint64_t bytes;             // of those blocks' files
  uint64_t index_capacity;    // keys
  uint64_t index_overflows;   // times a stored key found no room: its look-ups cost a probe each
  uint64_t probes;            // look-ups in the file system for keys that are not in the index
  uint64_t probe_hits;        // probes that found a block
  uint64_t probe_errors;      // probes that failed otherwise than by absence; taken for a miss
  uint64_t last_probe_errno;  // of the last such failure, 0 if none
  uint64_t published;
  uint64_t forgotten;
  uint64_t quarantined;          // bad blocks taken out of service, moved or unlinked
  uint64_t quarantine_unlinked;  // those unlinked as bad/ was full
  uint64_t stale_temps_removed;  // at open
  uint64_t stale_temps_left;     // at open: could not be removed
  uint64_t foreign_names;        // at open: files under blocks/ that are not named like a block
};

class BlockStore {
 public:
  // Opens the directory, checks its manifest, removes what dead writers left in tmp/ and fills the index.
  // INVALID_ARGUMENT, STORE_MISMATCH, STORAGE_IO, NO_SPACE or MEMORY_LIMIT otherwise.
  static Status open(const std::string& path, const BlockFormat& format, std::span<const uint8_t> salt,
                     const StoreOptions& options, std::unique_ptr<BlockStore>* out);
  BlockStore(const BlockStore&) = delete;
  BlockStore& operator=(const BlockStore&) = delete;

  const std::string& path() const noexcept { return path_; }
  const BlockFormat& format() const noexcept { return format_; }
  const BlockKey& root_key() const noexcept { return root_key_; }  // chain_root of the identity and the salt
  int root_fd() const noexcept { return root_.get(); }             // valid as long as the store

  // Both write a path relative to root_fd() into out[kBlockPathBytes]. Every temp_path is a new one, also
  // across threads, forked processes and hosts.
  void block_path(const BlockKey& key, char* out) const noexcept;
  void temp_path(char* out) noexcept;

  // Number of leading keys of keys[count] that are stored. Reads no data: asks the index, and where that
  // knows nothing the file system (faccessat), as another process may have published the block. A chain
  // that is not stored to its end costs one probe and one for every block not yet known.
  size_t longest_prefix(const BlockKey* keys, size_t count) noexcept;

  // Whether the index knows the block; no system call, so another process's may be stored all the same.
  bool indexed(const BlockKey& key) const noexcept { return index_.contains(key); }

  // The caller has renamed the block to its place.
  void publish(const BlockKey& key) noexcept;
  // The block's file is gone.
  void forget(const BlockKey& key) noexcept;
  // The block failed verification: its file leaves blocks/, so that it is not served again and a good one
  // can take its place. Should a good one have come in between, that one is lost instead. Fine when the
  // file is gone already.
  Status quarantine(const BlockKey& key);

  StoreStatistics stat() const noexcept;

 private:
  struct Counters {
    std::atomic<uint64_t> index_overflows{0};
    std::atomic<uint64_t> probes{0};
    std::atomic<uint64_t> probe_hits{0};
    std::atomic<uint64_t> probe_errors{0};
    std::atomic<uint64_t> last_probe_errno{0};
    std::atomic<uint64_t> published{0};
    std::atomic<uint64_t> forgotten{0};
    std::atomic<uint64_t> quarantined{0};
    std::atomic<uint64_t> quarantine_unlinked{0};
    std::atomic<uint64_t> stale_temps_removed{0};
    std::atomic<uint64_t> stale_temps_left{0};
    std::atomic<uint64_t> foreign_names{0};
  };

  BlockStore(std::string path, const BlockFormat& format, const StoreOptions& options);

  Status open_root(bool create);
  Status settle_manifest(bool create);
  Status make_directories();
  Status check_writable(const char* directory) const;
  Status remove_stale_temps();
  Status count_quarantined();
  Status fill_index();
  void add_to_index(const BlockKey& key) noexcept;
  bool probe(const BlockKey& key) noexcept;
  std::string absolute(const char* relative) const { return path_ + "/" + relative; }

  const std::string path_;
  const BlockFormat format_;
  const size_t quarantine_capacity_;
  const uint64_t nonce_;  // tells this store's temp names from another host's or an earlier process's
  BlockKey root_key_;
  ScopedFd root_;
  KeyIndex index_;
  std::atomic<uint64_t> temp_sequence_{0};
  std::atomic<uint64_t> bad_files_{0};
  Counters counters_;
  Live<LiveKind::kStore> live_;
};

}  // namespace dualpath::store
