// Opening a store: what is checked, made, cleaned up and counted before the first look-up.
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <system_error>

#include "store/block_store.h"
#include "store/manifest.h"
#include "store/store_directory.h"

namespace dualpath::store {

Status BlockStore::open(const std::string& path, const BlockFormat& format, std::span<const uint8_t> salt,
                        const StoreOptions& options, std::unique_ptr<BlockStore>* out) try {
  if (Status status = check_options(path, format, options); !status.ok()) return status;
  std::unique_ptr<BlockStore> store(new BlockStore(path, format, options));
  Status status = store->set_root_key(salt);
  if (status.ok()) status = open_store_root(path, options.create, &store->root_);
  if (status.ok()) status = store->settle_manifest(options.create);
  if (status.ok()) status = store->check_writable(kTemp);
  if (status.ok()) status = store->check_writable(kBad);
  if (status.ok()) status = store->remove_stale_temps();
  if (status.ok()) status = store->count_quarantined();
  if (!status.ok()) return status;
  store->start_sharing();
  // After the log is open: what is evicted meanwhile is erased again.
  if (status = store->fill_index(); status.ok()) *out = std::move(store);
  return status;
} catch (const std::bad_alloc&) {
  return Status::error("MEMORY_LIMIT", "block store " + path + ": no memory for an index of " +
                                           std::to_string(options.index_capacity) +
                                           " keys (up to 48 bytes each); lower index_capacity");
} catch (const std::system_error& error) {
  return Status::error("MEMORY_LIMIT",
                       "block store " + path + ": no thread can be started (" + error.what() +
                           "); raise the limit of processes (ulimit -u)",
                       error.code().value());
}

Status BlockStore::check_options(const std::string& path, const BlockFormat& format,
                                 const StoreOptions& options) {
  const auto invalid = [&](const std::string& what) {
    return Status::error("INVALID_ARGUMENT", "block store " + path + ": " + what);
  };
  if (options.index_capacity == 0 || options.index_capacity > KeyIndex::kMaxCapacity) {
    return invalid("index_capacity of " + std::to_string(options.index_capacity) + " keys, 1 to " +
                   std::to_string(KeyIndex::kMaxCapacity) + " allowed");
  }
  if (format.layers() == 0) return invalid("the block format is empty; create it first");
  if (options.capacity_bytes != 0 && options.capacity_bytes < format.file_bytes()) {
    return invalid("capacity of " + std::to_string(options.capacity_bytes) +
                   " bytes, less than one block of " + std::to_string(format.file_bytes()) +
                   " bytes; give at least that");
  }
  if (options.age_interval_s == 0) return invalid("age interval of 0 s, at least 1 needed");
  return options.namespace_name.empty() ? Status{} : check_namespace_name(options.namespace_name);
}

// An identity has no control characters, so no two namespaces' roots can meet.
Status BlockStore::set_root_key(std::span<const uint8_t> salt) {
  std::string identity = format_.identity();
  if (!options_.namespace_name.empty()) identity += "\nnamespace=" + options_.namespace_name;
  return chain_root(identity, salt, &root_key_);
}

Status BlockStore::settle_manifest(bool create) {
  ManifestState state;
  Status status = check_manifest(root_fd(), path_, format_.identity(), &state);
  if (!status.ok()) return status;
  if (state == ManifestState::kAbsent) {
    if (status = refuse_other_programs(root_fd(), path_); !status.ok()) return status;
  }
  if (!create) {
    if (state == ManifestState::kMatches) return settle_layers();
    return Status::error("STORAGE_IO",
                         "block store " + path_ + ": no " + kManifestName +
                             " in this directory; open it with create, or check the path",
                         ENOENT);
  }
  // Before the manifest, so that whoever sees a manifest finds the directories; and also when there is
  // one, as somebody may have emptied the store by hand.
  bool made = false;
  status = make_store_directories(root_fd(), path_, options_.namespace_name, &made);
  if (status.ok() && state == ManifestState::kAbsent) {
    made = true;
    char temp_name[kBlockPathBytes];
    temp_path(temp_name);
    status = write_manifest(root_fd(), path_, temp_name, format_.identity());
    if (status.ok()) status = check_manifest(root_fd(), path_, format_.identity(), &state);
  }
  if (status.ok()) status = settle_layers();
  if (status.ok() && made) status = sync_store_directories(root_fd(), path_, options_.namespace_name);
  return status;
}

Status BlockStore::settle_layers() {
  std::vector<uint64_t> found;
  Status status = read_layers(root_fd(), path_, &found);
  if (status.ok() && found.empty() && options_.create) {
    char temp_name[kBlockPathBytes];
    temp_path(temp_name);
    status = write_layers(root_fd(), path_, temp_name, format_.layer_bytes());
    if (status.ok()) status = read_layers(root_fd(), path_, &found);
  }
  if (!status.ok() || found.empty() || found == format_.layer_bytes()) return status;
  return Status::error("STORE_MISMATCH",
                       "block store " + path_ + ": " + kLayersName +
                           " says that blocks have other Layer Blocks than asked for, under "
                           "the same identity; give this layout a directory of its own");
}

Status BlockStore::check_writable(const std::string& directory) const {
  if (faccessat(root_fd(), directory.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) == 0) return {};
  return io_error("faccessat", absolute(directory), errno);
}

Status BlockStore::remove_stale_temps() {
  const int64_t now_s = static_cast<int64_t>(time(nullptr));
  return for_each_entry(root_fd(), path_, kTemp, [&](int directory, const char* name) {
    struct stat info;
    if (!parse_temp_name(name)) return true;
    if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode)) return true;
    if (now_s - static_cast<int64_t>(info.st_mtime) <= static_cast<int64_t>(kStaleTempAge_s)) return true;
    if (unlinkat(directory, name, 0) == 0) {
      ++counters_.stale_temps_removed;
    } else if (errno != ENOENT) {
      ++counters_.stale_temps_left;
    }
    return true;
  });
}

Status BlockStore::count_quarantined() {
  return for_each_entry(root_fd(), path_, kBad, [this](int, const char*) {
    ++bad_files_;
    return true;
  });
}

void BlockStore::start_sharing() {
  local_ = on_local_file_system(root_fd());
  log_.open(root_fd());
  pins_.open(root_fd(), nonce_, options_.capacity_bytes);
  // Not what is announced: a collector may be about to unlink what the index is going to be filled with.
  caught_up_ = log_.settled();
  namespace_stamp_ = namespace_stamp();
  ages_ = std::make_unique<AgeWriter>(root_fd(), block_directory_, options_.age_interval_s);
  if (options_.capacity_bytes != 0) {
    evictor_ = std::make_unique<Evictor>(root_fd(), path_, &log_, pins_.shared() ? nullptr : &pins_,
                                         options_.capacity_bytes);
  }
}

Status BlockStore::fill_index() {
  const uint64_t position = eviction_position();
  for (unsigned i = 0; i < kFanOut; ++i) {
    const std::string directory = fan_out_directory(options_.namespace_name, i);
    if (Status status = check_writable(directory); !status.ok()) return status;
    Status status = for_each_entry(root_fd(), path_, directory, [&](int, const char* name) {
      const std::optional<BlockKey> key = parse_block_name(name);
      if (key && key->bytes[0] == i) {
        add_to_index(*key, position);
      } else {
        ++counters_.foreign_names;
      }
      return true;
    });
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace dualpath::store
