// A block file: one header page, then the payload (the Full Block: its Layer Blocks one after another),
// zero padded to whole pages so that it can be read and written with O_DIRECT. Checksums are XXH3-64: they
// find accidents of disks and crashes, not the work of someone who may write into the store.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/status.h"
#include "store/key_chain.h"

namespace dualpath::store {

enum class BlockFault : uint8_t {
  kOk,
  kTruncated,       // fewer bytes were read than a block has
  kNotABlock,       // no magic: an empty, sparse or strange file
  kUnknownVersion,  // written by another format version; nothing else of it was looked at
  kHeaderCorrupt,   // the header's own checksum is wrong
  kForeign,         // of another layout identity
  kWrongKey,        // a good block under another's name
  kWrongSize,       // same identity, yet other layers or payload bytes
  kLayerCorrupt,    // the checksum of `layer` is wrong
};
inline constexpr size_t kBlockFaults = 9;

const char* fault_name(BlockFault fault) noexcept;

struct BlockVerdict {
  BlockFault fault = BlockFault::kOk;
  uint32_t layer = 0;  // first bad layer with kLayerCorrupt, else 0

  bool ok() const noexcept { return fault == BlockFault::kOk; }
};

class BlockFormat {
 public:
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr size_t kAlignment = 4096;
  static constexpr size_t kMaxLayers = 496;                     // what the header page has room for
  static constexpr uint64_t kMaxFileBytes = uint64_t{1} << 30;  // io_uring registers at most 1 GiB a buffer
  static constexpr size_t kMaxIdentityBytes = 16384;            // the store's manifest holds it

  // identity: 1..kMaxIdentityBytes bytes without control characters, naming all that decides what a block's
  // bytes mean. layer_block_bytes: bytes of each of 1..kMaxLayers Layer Blocks (a layer may have none, all
  // together may not). INVALID_ARGUMENT otherwise.
  static Status create(std::string identity, std::vector<uint64_t> layer_block_bytes, BlockFormat* out);

  const std::string& identity() const noexcept { return identity_; }
  size_t layers() const noexcept { return layer_bytes_.size(); }
  const std::vector<uint64_t>& layer_bytes() const noexcept { return layer_bytes_; }
  size_t payload_bytes() const noexcept { return payload_bytes_; }
  size_t file_bytes() const noexcept { return file_bytes_; }  // header + payload, a multiple of kAlignment

  // block[file_bytes()], the payload in place at kHeaderBytes: fills in the header and zeroes the padding.
  void seal(std::byte* block, const BlockKey& key) const noexcept;

  // block[bytes_read] as read from the file named after `key`. The first fault in the order of BlockFault
  // from kNotABlock on; kTruncated before it when not even a header was read, else just before the layers.
  // The padding is not looked at.
  BlockVerdict verify(const std::byte* block, size_t bytes_read, const BlockKey& key) const noexcept;

 private:
  std::string identity_;
  std::array<uint8_t, 32> identity_digest_{};
  std::vector<uint64_t> layer_bytes_;
  size_t payload_bytes_ = 0;
  size_t file_bytes_ = 0;
};

}  // namespace dualpath::store
