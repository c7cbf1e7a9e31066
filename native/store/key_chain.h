// Names of blocks: a hash chain over the layout identity and every token up to the end of the block,
// so a key stands for its block and for everything before it, and the store is a trie of Full Blocks.
//
//   root   = BLAKE2b-256(key: salt, "dualpath block chain v1\0" | identity)
//   key(i) = BLAKE2b-256(key(i-1) | BLAKE2b-256(tokens of block i, little-endian u32))
//
// BLAKE2b is RFC 7693, from libsodium (crypto_generichash).
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/status.h"

namespace dualpath::store {

struct BlockKey {
  static constexpr size_t kBytes = 32;
  static constexpr size_t kHexChars = 2 * kBytes;

  std::array<uint8_t, kBytes> bytes{};

  bool operator==(const BlockKey&) const = default;

  // Writes kHexChars lower-case digits, no terminating zero.
  void write_hex(char* out) const noexcept;
  std::string to_hex() const;
  // Exactly kHexChars lower-case digits, so that a key has one name only.
  static std::optional<BlockKey> from_hex(std::string_view hex) noexcept;
};
static_assert(sizeof(BlockKey) == BlockKey::kBytes, "keys lie side by side in the door's key table");

inline constexpr size_t kMaxSaltBytes = 64;  // a BLAKE2b key

// The key before the first block. The salt (0..kMaxSaltBytes bytes) separates namespaces: who does not
// know it can neither name nor probe its blocks. INVALID_ARGUMENT when it is longer.
Status chain_root(std::string_view identity, std::span<const uint8_t> salt, BlockKey* out);

// out[i] for `blocks` full blocks of block_tokens tokens each, tokens[blocks * block_tokens], following
// the block named `parent` (or the root). `out` may hold `parent`.
void extend_chain(const BlockKey& parent, const uint32_t* tokens, size_t block_tokens, size_t blocks,
                  BlockKey* out) noexcept;

}  // namespace dualpath::store

// Keys are uniform already.
template <>
struct std::hash<dualpath::store::BlockKey> {
  size_t operator()(const dualpath::store::BlockKey& key) const noexcept {
    size_t value;
    std::memcpy(&value, key.bytes.data(), sizeof value);
    return value;
  }
};
