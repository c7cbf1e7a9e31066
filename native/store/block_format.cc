#include "store/block_format.h"

#include <sodium.h>

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "store/sodium_start.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace dualpath::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the header is little-endian as it lies in memory");

constexpr char kMagic[8] = {'D', 'P', 'K', 'V', 'B', 'L', 'K', '\n'};

struct BlockHeader {
  char magic[8];
  uint32_t version;
  uint32_t header_bytes;
  uint8_t key[32];
  uint8_t identity_digest[32];  // BLAKE2b-256 of the identity string
  uint64_t payload_bytes;
  uint32_t layers;
  uint32_t reserved[7];                               // zero
  uint64_t layer_checksums[BlockFormat::kMaxLayers];  // XXH3-64 each, zero beyond `layers`
  uint64_t header_checksum;                           // XXH3-64 of everything before it
};
static_assert(offsetof(BlockHeader, magic) == 0);
static_assert(offsetof(BlockHeader, version) == 8);
static_assert(offsetof(BlockHeader, header_bytes) == 12);
static_assert(offsetof(BlockHeader, key) == 16);
static_assert(offsetof(BlockHeader, identity_digest) == 48);
static_assert(offsetof(BlockHeader, payload_bytes) == 80);
static_assert(offsetof(BlockHeader, layers) == 88);
static_assert(offsetof(BlockHeader, reserved) == 92);
static_assert(offsetof(BlockHeader, layer_checksums) == 120);
static_assert(offsetof(BlockHeader, header_checksum) == 4088);
static_assert(sizeof(BlockHeader) == BlockFormat::kHeaderBytes);
static_assert(std::is_trivially_copyable_v<BlockHeader>);

uint64_t header_checksum(const BlockHeader& header) noexcept {
  return XXH3_64bits(&header, offsetof(BlockHeader, header_checksum));
}

bool has_control_character(const std::string& text) noexcept {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) return true;
  }
  return false;
}

Status invalid(const std::string& message) {
  return Status::error("INVALID_ARGUMENT", "block format: " + message);
}

}  // namespace

const char* fault_name(BlockFault fault) noexcept {
  switch (fault) {
    case BlockFault::kOk:
      return "ok";
    case BlockFault::kTruncated:
      return "truncated";
    case BlockFault::kNotABlock:
      return "not a block";
    case BlockFault::kUnknownVersion:
      return "unknown version";
    case BlockFault::kHeaderCorrupt:
      return "header corrupt";
    case BlockFault::kForeign:
      return "of another layout";
    case BlockFault::kWrongKey:
      return "wrong key";
    case BlockFault::kWrongSize:
      return "wrong size";
    case BlockFault::kLayerCorrupt:
      return "layer corrupt";
  }
  return "unknown fault";
}

Status BlockFormat::create(std::string identity, std::vector<uint64_t> layer_block_bytes, BlockFormat* out) {
  if (identity.empty() || identity.size() > kMaxIdentityBytes) {
    return invalid("layout identity of " + std::to_string(identity.size()) + " bytes, 1 to " +
                   std::to_string(kMaxIdentityBytes) + " allowed; shorten it or pass its hash");
  }
  if (has_control_character(identity)) {
    return invalid(
        "layout identity holds a control character (line end, tab, zero); encode it as one line of text");
  }
  if (layer_block_bytes.empty() || layer_block_bytes.size() > kMaxLayers) {
    return invalid(std::to_string(layer_block_bytes.size()) + " layers, 1 to " + std::to_string(kMaxLayers) +
                   " allowed; split the model into shards of fewer layers");
  }
  uint64_t payload_bytes = 0;
  for (size_t layer = 0; layer < layer_block_bytes.size(); ++layer) {
    const uint64_t room = kMaxFileBytes - kHeaderBytes - payload_bytes;
    if (layer_block_bytes[layer] > room) {
      return invalid("Layer Block " + std::to_string(layer) + " of " +
                     std::to_string(layer_block_bytes[layer]) + " bytes takes the block over " +
                     std::to_string(kMaxFileBytes) + " bytes; use fewer tokens a block");
    }
    payload_bytes += layer_block_bytes[layer];
  }
  if (payload_bytes == 0) return invalid("all Layer Blocks have 0 bytes; give at least one layer some");

  start_sodium();
  BlockFormat format;
  crypto_generichash(format.identity_digest_.data(), format.identity_digest_.size(),
                     reinterpret_cast<const unsigned char*>(identity.data()), identity.size(), nullptr, 0);
  format.identity_ = std::move(identity);
  format.layer_bytes_ = std::move(layer_block_bytes);
  format.payload_bytes_ = payload_bytes;
  format.file_bytes_ = (kHeaderBytes + payload_bytes + kAlignment - 1) / kAlignment * kAlignment;
  *out = std::move(format);
  return {};
}

void BlockFormat::seal(std::byte* block, const BlockKey& key) const noexcept {
  BlockHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.version = kVersion;
  header.header_bytes = kHeaderBytes;
  std::memcpy(header.key, key.bytes.data(), sizeof header.key);
  std::memcpy(header.identity_digest, identity_digest_.data(), sizeof header.identity_digest);
  header.payload_bytes = payload_bytes_;
  header.layers = static_cast<uint32_t>(layer_bytes_.size());
  const std::byte* payload = block + kHeaderBytes;
  for (size_t layer = 0; layer < layer_bytes_.size(); ++layer) {
    header.layer_checksums[layer] = XXH3_64bits(payload, layer_bytes_[layer]);
    payload += layer_bytes_[layer];
  }
  header.header_checksum = header_checksum(header);
  std::memcpy(block, &header, sizeof header);
  const size_t used_bytes = kHeaderBytes + payload_bytes_;
  std::memset(block + used_bytes, 0, file_bytes_ - used_bytes);
}

BlockVerdict BlockFormat::verify(const std::byte* block, size_t bytes_read,
                                 const BlockKey& key) const noexcept {
  if (bytes_read < kHeaderBytes) return {BlockFault::kTruncated};
  BlockHeader header;
  std::memcpy(&header, block, sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return {BlockFault::kNotABlock};
  if (header.version != kVersion) return {BlockFault::kUnknownVersion};
  if (header.header_checksum != header_checksum(header)) return {BlockFault::kHeaderCorrupt};
  if (std::memcmp(header.identity_digest, identity_digest_.data(), sizeof header.identity_digest) != 0) {
    return {BlockFault::kForeign};
  }
  if (std::memcmp(header.key, key.bytes.data(), sizeof header.key) != 0) return {BlockFault::kWrongKey};
  if (header.header_bytes != kHeaderBytes || header.payload_bytes != payload_bytes_ ||
      header.layers != layer_bytes_.size()) {
    return {BlockFault::kWrongSize};
  }
  if (bytes_read < file_bytes_) return {BlockFault::kTruncated};
  const std::byte* payload = block + kHeaderBytes;
  for (size_t layer = 0; layer < layer_bytes_.size(); ++layer) {
    if (XXH3_64bits(payload, layer_bytes_[layer]) != header.layer_checksums[layer]) {
      return {BlockFault::kLayerCorrupt, static_cast<uint32_t>(layer)};
    }
    payload += layer_bytes_[layer];
  }
  return {};
}

}  // namespace dualpath::store
