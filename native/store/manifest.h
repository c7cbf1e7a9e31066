// The manifest of a store directory says which format version and which layout identity it is for:
//
//   dualpath block store
//   version=1
//   identity=<one line>
//
// A second file, for who looks at blocks without knowing the model, holds the bytes of each Layer Block as
// runs:
//
//   dualpath block layers
//   version=1
//   layer_bytes=<layers>x<bytes>,<layers>x<bytes>...
//
// Stores made before it was are given it by whoever opens them. Either appears complete or not at all
// (written elsewhere, then linked to its name), and once there it never changes, so processes that create
// one store at the same moment agree on it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"

namespace dualpath::store {

inline constexpr unsigned kStoreVersion = 1;
inline constexpr char kManifestName[] = "store.manifest";
inline constexpr char kLayersName[] = "store.layers";

enum class ManifestState { kAbsent, kMatches };

// Looks at the manifest of the directory held as root_fd (root: its path, for messages). STORE_MISMATCH
// when it is of another identity or version or damaged, STORAGE_IO when it cannot be read.
Status check_manifest(int root_fd, const std::string& root, const std::string& identity,
                      ManifestState* state);

// The identity in the manifest, whatever it is. STORE_MISMATCH when there is none, or as above.
Status read_manifest(int root_fd, const std::string& root, std::string* identity);

// Writes it by way of temp_name (relative to root_fd). Fine too when another process was first: check
// again afterwards. The bytes are fsynced; the directory is the caller's.
Status write_manifest(int root_fd, const std::string& root, const char* temp_name,
                      const std::string& identity);

// Nothing (and fine) when the file is missing; STORE_MISMATCH when it is of another version or damaged.
Status read_layers(int root_fd, const std::string& root, std::vector<uint64_t>* layer_bytes);
// As write_manifest.
Status write_layers(int root_fd, const std::string& root, const char* temp_name,
                    const std::vector<uint64_t>& layer_bytes);

}  // namespace dualpath::store
