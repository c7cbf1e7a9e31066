#include "store/store_root.h"

#include "store/manifest.h"
#include "store/store_directory.h"

namespace dualpath::store {

Status StoreRoot::open(const std::string& path, StoreRoot* out) {
  out->path = path;
  Status status = open_store_root(path, false, &out->root);
  if (status.ok()) status = read_manifest(out->fd(), path, &out->identity);
  if (status.ok()) status = read_layers(out->fd(), path, &out->layer_bytes);
  return status;
}

Status StoreRoot::format(BlockFormat* out) const {
  if (!layer_bytes.empty()) return BlockFormat::create(identity, layer_bytes, out);
  return Status::error("STORE_MISMATCH",
                       "block store " + path + ": no " + kLayersName +
                           ", as an older version made this store; open it once with its model, which "
                           "writes the file");
}

}  // namespace dualpath::store
