// The manifest of a store directory says which format version and which layout identity it is for:
//
//   dualpath block store
//   version=1
//   identity=<one line>
//
// It appears complete or not at all (written elsewhere, then linked to its name), and once there it never
// changes, so processes that create one store at the same moment agree on it.
#pragma once
#include <string>

#include "core/status.h"

namespace dualpath::store {

inline constexpr unsigned kStoreVersion = 1;
inline constexpr char kManifestName[] = "store.manifest";

enum class ManifestState { kAbsent, kMatches };

// Looks at the manifest of the directory held as root_fd (root: its path, for messages). STORE_MISMATCH
// when it is of another identity or version or damaged, STORAGE_IO when it cannot be read.
Status check_manifest(int root_fd, const std::string& root, const std::string& identity,
                      ManifestState* state);

// Writes it by way of temp_name (relative to root_fd). Fine too when another process was first: check
// again afterwards.
Status write_manifest(int root_fd, const std::string& root, const char* temp_name,
                      const std::string& identity);

}  // namespace dualpath::store
