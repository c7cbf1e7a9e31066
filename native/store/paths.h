// Names within a store directory: how they are made, read and walked. Every path is relative to the
// store's directory, and nothing below it is reached through a symbolic link.
#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/status.h"
#include "store/key_chain.h"
#include "store/posix.h"

namespace dualpath::store {

inline constexpr char kBlocks[] = "blocks";          // the default namespace
inline constexpr char kNamespaces[] = "namespaces";  // the named ones, a directory each
inline constexpr char kTemp[] = "tmp";
inline constexpr char kBad[] = "bad";
inline constexpr char kHosts[] = "hosts";
inline constexpr char kTrash[] = "trash";
inline constexpr char kCollectorLock[] = "gc.lock";

inline constexpr unsigned kFanOut = 256;
inline constexpr size_t kMaxNamespaceBytes = 40;
inline constexpr size_t kMaxNamespaces = 4096;
// Of block_path and temp_path, terminating zero included.
inline constexpr size_t kBlockPathBytes = 128;
inline constexpr uint64_t kStaleTempAge_s = 3600;

// 1..kMaxNamespaceBytes of a-z, 0-9, '.', '_', '-', the first a letter or a digit: one spelling on every
// file system, and never a path. INVALID_ARGUMENT otherwise.
Status check_namespace_name(std::string_view name);

// The directory that holds a namespace's 256 directories of blocks; of the default one for "".
std::string namespace_directory(std::string_view name);
// <namespace directory>/<2 hex>
std::string fan_out_directory(std::string_view namespace_name, unsigned number);
// <namespace directory>/<2 hex>/<64 hex>.kvb into out[kBlockPathBytes].
void write_block_path(std::string_view namespace_directory, const BlockKey& key, char* out) noexcept;
void write_bad_path(const BlockKey& key, char* out) noexcept;

// The key of <64 hex>.kvb.
std::optional<BlockKey> parse_block_name(std::string_view name) noexcept;

// <pid>-<nonce, 16 hex>-<sequence, 16 hex>.tmp
struct TempName {
  uint32_t pid;
  uint64_t nonce;
};
std::optional<TempName> parse_temp_name(std::string_view name) noexcept;
std::optional<uint64_t> parse_hex64(std::string_view text) noexcept;  // 16 lower-case digits

struct CloseDirectory {
  void operator()(DIR* directory) const noexcept { closedir(directory); }
};
using ScopedDirectory = std::unique_ptr<DIR, CloseDirectory>;
Status open_directory(int root_fd, const std::string& root, const std::string& relative,
                      ScopedDirectory* out);

// Calls visit(directory fd, entry name) -> bool for every entry but . and .., until it returns false.
template <typename Visit>
Status for_each_entry(int root_fd, const std::string& root, const std::string& relative, Visit visit) {
  ScopedDirectory directory;
  if (Status status = open_directory(root_fd, root, relative, &directory); !status.ok()) return status;
  while (true) {
    errno = 0;
    const dirent* entry = readdir(directory.get());
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == "..") continue;
    if (!visit(dirfd(directory.get()), entry->d_name)) return {};
  }
  return errno == 0 ? Status{} : io_error("readdir", root + "/" + relative, errno);
}

// The same, where the directory may be missing: then there are no entries.
template <typename Visit>
Status for_each_entry_if_there(int root_fd, const std::string& root, const std::string& relative,
                               Visit visit) {
  Status status = for_each_entry(root_fd, root, relative, visit);
  return status.sys_errno == ENOENT ? Status{} : status;
}

// Names of the named namespaces, sorted. CAPACITY_EXHAUSTED beyond kMaxNamespaces.
Status list_namespaces(int root_fd, const std::string& root, std::vector<std::string>* names);

}  // namespace dualpath::store
