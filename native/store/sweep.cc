#include "store/sweep.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <optional>

#include "store/paths.h"
#include "store/pin_table.h"
#include "store/store_directory.h"

namespace dualpath::store {
namespace {

constexpr int kTrashDepth = 3;   // a namespace, its directories, their files
constexpr int kTreePasses = 16;  // entries may be added and skipped while a directory is read

class Sweeper {
 public:
  Sweeper(const StoreRoot& root, const SweepOptions& options, ToolProgress& progress, SweepResult* result)
      : root_(root), options_(options), progress_(progress), result_(result) {}

  Status temps(const std::vector<PinTableFile>& tables);
  void tables(const std::vector<PinTableFile>& tables);
  Status old_hosts(const std::vector<PinTableFile>& tables);
  Status quarantined();
  Status trash();

 private:
  // Removes a file unless this is a dry run.
  void remove(int directory, const char* name, SweepCount* count);
  void remove_tree(int parent, const char* name, int depth);
  void failed(int error) noexcept {
    if (error == ENOENT) return;
    ++result_->failed;
    result_->last_errno = error;
  }

  const StoreRoot& root_;
  const SweepOptions& options_;
  ToolProgress& progress_;
  SweepResult* result_;
  const int64_t now_s_ = static_cast<int64_t>(time(nullptr));
};

void Sweeper::remove(int directory, const char* name, SweepCount* count) {
  struct stat info;
  if (fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!options_.dry_run && unlinkat(directory, name, 0) != 0) {
    failed(errno);
    return;
  }
  ++count->files;
  count->bytes += static_cast<uint64_t>(info.st_size);
  progress_.done.fetch_add(1, std::memory_order_relaxed);
}

// The nonce in its name says which open store a file is of.
Status Sweeper::temps(const std::vector<PinTableFile>& tables) {
  return for_each_entry_if_there(root_.fd(), root_.path, kTemp, [&](int directory, const char* name) {
    const auto temp = parse_temp_name(name);
    struct stat info;
    if (!temp || fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
      return true;
    const auto owner = std::find_if(tables.begin(), tables.end(),
                                    [&](const PinTableFile& table) { return table.nonce == temp->nonce; });
    const bool old = now_s_ - static_cast<int64_t>(info.st_mtime) > static_cast<int64_t>(kStaleTempAge_s);
    if (owner != tables.end() ? owner->dead : old) {
      remove(directory, name, &result_->temps);
    } else {
      ++result_->temps_left.files;
      result_->temps_left.bytes += static_cast<uint64_t>(info.st_size);
    }
    return progress_.go_on();
  });
}

void Sweeper::tables(const std::vector<PinTableFile>& tables) {
  for (const PinTableFile& table : tables) {
    if (table.dead) remove(root_.fd(), table.path.c_str(), &result_->tables);
  }
}

// Directories of kernels that have stopped: their last tables are gone, and what is left is the log.
Status Sweeper::old_hosts(const std::vector<PinTableFile>& tables) {
  if (options_.dry_run) return {};
  const bool local = on_local_file_system(root_.fd());
  return for_each_entry_if_there(root_.fd(), root_.path, kHosts, [&](int directory, const char* name) {
    const std::string host = std::string(kHosts) + "/" + name;
    const bool used = std::any_of(tables.begin(), tables.end(), [&](const PinTableFile& table) {
      return !table.dead && table.path.starts_with(host + "/");
    });
    struct stat info;
    if (used || host == host_directory() || fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      return true;
    if (!S_ISDIR(info.st_mode)) return true;
    if (!local && now_s_ - static_cast<int64_t>(info.st_mtime) <= kForeignTableAge_s) return true;
    unlinkat(root_.fd(), (host + "/evictions").c_str(), 0);
    unlinkat(root_.fd(), host.c_str(), AT_REMOVEDIR);
    return true;
  });
}

Status Sweeper::quarantined() {
  return for_each_entry_if_there(root_.fd(), root_.path, kBad, [&](int directory, const char* name) {
    struct stat info;
    if (!parse_block_name(name) || fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return true;
    // A rename leaves the block's own time, but for that of the change of its inode.
    const int64_t age_s = now_s_ - static_cast<int64_t>(info.st_ctime);
    if (options_.all_quarantined || age_s > kQuarantineAge_s) remove(directory, name, &result_->quarantined);
    return progress_.go_on();
  });
}

Status Sweeper::trash() {
  return for_each_entry_if_there(root_.fd(), root_.path, kTrash, [&](int directory, const char* name) {
    remove_tree(directory, name, kTrashDepth);
    return progress_.go_on();
  });
}

void Sweeper::remove_tree(int parent, const char* name, int depth) {
  struct stat info;
  if (fstatat(parent, name, &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (!S_ISDIR(info.st_mode)) {
    remove(parent, name, &result_->trash);
    return;
  }
  if (depth == 0) return failed(ENOTEMPTY);
  for (int pass = 0; pass < kTreePasses && progress_.go_on(); ++pass) {
    const Status status =
        for_each_entry(parent, root_.path + "/" + kTrash, name, [&](int directory, const char* entry) {
          remove_tree(directory, entry, depth - 1);
          return progress_.go_on();
        });
    if (options_.dry_run || !progress_.go_on()) return;
    if (!status.ok()) return failed(status.sys_errno);
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return;
    if (errno != ENOTEMPTY && errno != EEXIST) break;
  }
  failed(ENOTEMPTY);
}

}  // namespace

Status sweep_store(const StoreRoot& root, const SweepOptions& options, ToolProgress& progress,
                   SweepResult* out) {
  Sweeper sweeper(root, options, progress, out);
  // The tables first: a process that comes later is in none, and its files are young.
  std::vector<PinTableFile> tables;
  Status status = list_pin_tables(root.fd(), root.path, &tables);
  if (status.ok()) status = sweeper.temps(tables);
  if (!status.ok()) return status;
  sweeper.tables(tables);
  if (status = sweeper.old_hosts(tables); status.ok()) status = sweeper.quarantined();
  if (status.ok()) status = sweeper.trash();
  return status;
}

Status delete_namespace(const StoreRoot& root, const std::string& name, EvictionLog& log,
                        ToolProgress& progress, bool* found, SweepResult* out) {
  if (Status status = retire_namespace(root.fd(), root.path, name, found); !status.ok() || !*found)
    return status;
  const SweepOptions options;
  const Status status = Sweeper(root, options, progress, out).trash();
  log.add_bytes(-static_cast<int64_t>(out->trash.bytes));
  return status;
}

}  // namespace dualpath::store
