// One directory of block files, all of one layout identity, shared by any number of processes:
//
//   store.manifest, store.layers          identity and layer sizes (manifest.h)
//   blocks/<2 hex>/<64 hex>.kvb           blocks by key; only ever complete, renamed here from tmp/
//   namespaces/<name>/<2 hex>/...         the same, of a named namespace
//   tmp/<pid>-<nonce>-<seq>.tmp           blocks being written
//   bad/<64 hex>.kvb                      blocks that failed verification, kept for inspection
//   hosts/<boot id>/                      memory that the processes of a host share (pin_table.h,
//                                         eviction_log.h)
//   trash/                                deleted namespaces on their way out
//   gc.lock                               held by the collector at work
//
// The store names files, knows which exist and judges what was read; the bytes are moved by its caller,
// with openat, renameat and so on relative to root_fd(). To write a block: temp_path, write, rename to
// block_path, publish. To read one: pin, open block_path, read, format().verify, unpin; when it is gone
// forget, when it is bad quarantine.
//
// A renamed file survives the death of its writer at any moment. After a loss of power a file may be
// there without its bytes; verification finds that.
//
// File modes are left to the umask. Everything below open is safe from any thread; nothing but open
// throws or, unless it returns an error, allocates.
#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "core/live.h"
#include "core/status.h"
#include "store/ages.h"
#include "store/block_format.h"
#include "store/eviction_log.h"
#include "store/evictor.h"
#include "store/key_chain.h"
#include "store/key_index.h"
#include "store/paths.h"
#include "store/pin_table.h"
#include "store/posix.h"

namespace dualpath::store {

struct StoreOptions {
  bool create = false;                      // make the directory (not its parents) and what is missing in it
  std::string namespace_name = {};          // "": the default one
  size_t index_capacity = size_t{1} << 20;  // keys, 1..KeyIndex::kMaxCapacity
  size_t quarantine_capacity = 64;          // files kept in bad/; bad blocks beyond are unlinked
  uint64_t capacity_bytes = 0;              // of the whole store's block files; 0: this process never evicts
  uint32_t age_interval_s = kAgeInterval_s;
};

struct StoreStatistics {
  uint64_t blocks;           // in the index; others may be stored too once index_overflows > 0
  uint64_t bytes;            // of those blocks' files
  uint64_t index_capacity;   // keys
  uint64_t index_overflows;  // times a stored key found no room: its look-ups cost a probe each
  uint64_t index_resets;     // times too much had happened to the store to tell what of the index still holds
  uint64_t probes;           // look-ups in the file system for keys that are not in the index
  uint64_t probe_hits;       // probes that found a block
  uint64_t probe_errors;     // probes that failed otherwise than by absence; taken for a miss
  uint64_t last_probe_errno;  // of the last such failure, 0 if none
  uint64_t published;
  uint64_t forgotten;            // found, then gone when they were to be read: misses by cause 'vanished'
  uint64_t quarantined;          // bad blocks taken out of service, moved or unlinked
  uint64_t quarantine_unlinked;  // those unlinked as bad/ was full
  std::array<uint64_t, kBlockFaults> faults;  // bad blocks found by reads, by BlockFault; [0] stays 0
  uint64_t evictions_seen;                    // blocks that a collector of this host announced
  uint64_t stale_temps_removed;               // at open
  uint64_t stale_temps_left;                  // at open: could not be removed
  uint64_t foreign_names;                     // at open: files among the blocks that are not named like one
  uint64_t capacity_bytes;                    // 0: none
  int64_t store_bytes;  // of the whole store as this host knows; only where a process of it has a capacity
  bool shared;          // whether pins and evictions are shared with the host's other processes
  AgeWriter::Statistics ages;
  Evictor::Statistics evictions;
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
  // chain_root of the identity, the namespace's name and the salt.
  const BlockKey& root_key() const noexcept { return root_key_; }
  int root_fd() const noexcept { return root_.get(); }  // valid as long as the store
  // False: a file system over a network, or one that this does not know.
  bool local() const noexcept { return local_; }

  // Both write a path relative to root_fd() into out[kBlockPathBytes]. Every temp_path is a new one, also
  // across threads, forked processes and hosts.
  void block_path(const BlockKey& key, char* out) const noexcept;
  void temp_path(char* out) noexcept;

  // Number of leading keys of keys[count] that are stored. Reads no data: asks the index, and where that
  // knows nothing the file system, as another process may have published the block. A chain that is not
  // stored to its end costs one probe and one for every block not yet known.
  size_t longest_prefix(const BlockKey* keys, size_t count) noexcept;

  // Whether the index knows the block; no system call, so another process's may be stored all the same.
  bool indexed(const BlockKey& key) noexcept {
    catch_up();
    return index_.contains(key);
  }

  // A look-up whose hits stay: the same, and no collector of this host evicts them before release. Ages
  // them, too; keys[0] is the first block of a chain. What another host evicts, or deletes with its
  // namespace, is a miss when it is read.
  size_t acquire_prefix(const BlockKey* keys, size_t count) noexcept;
  // The second half of acquire_prefix, for who finds the prefix otherwise: pins `found` blocks, looks again
  // for what was evicted since `position` and returns how many are held. position: eviction_position()
  // from before the look-up.
  size_t hold(const BlockKey* keys, size_t found, uint64_t position) noexcept;
  uint64_t eviction_position() const noexcept { return log_.announced(); }
  // Up to here evictions are over; what came later may be going on.
  uint64_t settled_position() const noexcept { return log_.settled(); }
  // Of the first `held` blocks of a chain; the chain's first `stored` blocks are aged: those that were hit
  // and those that have been written since.
  void release(const BlockKey* keys, size_t held, size_t stored) noexcept;

  // One block that is being read.
  void pin(const BlockKey& key) noexcept { pins_.pin(key); }
  void unpin(const BlockKey& key) noexcept { pins_.unpin(key); }

  // The caller has renamed the block to its place. settled: settled_position() from before that; depth: the
  // block's position in its chain.
  void publish(const BlockKey& key, uint64_t settled, uint32_t depth = 0) noexcept;
  // The block's file is gone.
  void forget(const BlockKey& key) noexcept;
  // The block failed verification: its file leaves the store, so that it is not served again and a good
  // one can take its place. Should a good one have come in between, that one is lost instead. Fine when the
  // file is gone already.
  Status quarantine(const BlockKey& key, BlockFault fault = BlockFault::kOk);
  // A write met a full file system. With a capacity, and only then, room is made.
  void no_space() noexcept;

  StoreStatistics stat() const noexcept;
  // Returns when the ages of everything looked up and published so far are written.
  void settle_ages() { ages_->drain(); }

 private:
  struct Counters {
    std::atomic<uint64_t> index_overflows{0};
    std::atomic<uint64_t> index_resets{0};
    std::atomic<uint64_t> probes{0};
    std::atomic<uint64_t> probe_hits{0};
    std::atomic<uint64_t> probe_errors{0};
    std::atomic<uint64_t> last_probe_errno{0};
    std::atomic<uint64_t> published{0};
    std::atomic<uint64_t> forgotten{0};
    std::atomic<uint64_t> quarantined{0};
    std::atomic<uint64_t> quarantine_unlinked{0};
    std::array<std::atomic<uint64_t>, kBlockFaults> faults{};
    std::atomic<uint64_t> stale_temps_removed{0};
    std::atomic<uint64_t> stale_temps_left{0};
    std::atomic<uint64_t> foreign_names{0};
  };

  BlockStore(std::string path, const BlockFormat& format, const StoreOptions& options);

  // store_open.cc
  static Status check_options(const std::string& path, const BlockFormat& format,
                              const StoreOptions& options);
  Status set_root_key(std::span<const uint8_t> salt);
  Status settle_manifest(bool create);
  Status settle_layers();
  Status check_writable(const std::string& directory) const;
  Status remove_stale_temps();
  Status count_quarantined();
  Status fill_index();
  void start_sharing();

  void add_to_index(const BlockKey& key, uint64_t position) noexcept;
  bool probe(const BlockKey& key) noexcept;
  bool exists(const char* path) noexcept;
  void catch_up() noexcept;
  void reset_index() noexcept;
  uint64_t namespace_stamp() const noexcept;
  std::string absolute(const std::string& relative) const { return path_ + "/" + relative; }

  const std::string path_;
  const BlockFormat format_;
  const StoreOptions options_;
  const std::string block_directory_;  // relative
  const uint64_t nonce_;  // tells this store's temp names from another host's or an earlier process's
  BlockKey root_key_;
  ScopedFd root_;
  bool local_ = true;
  KeyIndex index_;
  std::atomic<uint64_t> temp_sequence_{0};
  std::atomic<uint64_t> bad_files_{0};
  Counters counters_;
  EvictionLog log_;
  PinTable pins_;
  std::mutex catch_up_mutex_;                 // held to catch up, and to add to the index
  std::atomic<uint64_t> caught_up_{0};        // position in the log up to which the index is true
  std::atomic<uint64_t> namespace_stamp_{0};  // of the directory that the index is about
  std::unique_ptr<AgeWriter> ages_;
  std::unique_ptr<Evictor> evictor_;  // with a capacity
  Live<LiveKind::kStore> live_;
};

}  // namespace dualpath::store
