#include "store/key_chain.h"

#include <sodium.h>

#include <bit>

#include "store/sodium_start.h"

namespace dualpath::store {
namespace {

static_assert(std::endian::native == std::endian::little, "tokens are hashed as they lie in memory");
static_assert(kMaxSaltBytes == crypto_generichash_KEYBYTES_MAX);

constexpr std::string_view kDomain{"dualpath block chain v1", 24};  // with its terminating zero
constexpr char kDigits[] = "0123456789abcdef";

int digit_value(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

void BlockKey::write_hex(char* out) const noexcept {
  for (const uint8_t byte : bytes) {
    *out++ = kDigits[byte >> 4];
    *out++ = kDigits[byte & 15];
  }
}

std::string BlockKey::to_hex() const {
  std::string hex(kHexChars, '0');
  write_hex(hex.data());
  return hex;
}

std::optional<BlockKey> BlockKey::from_hex(std::string_view hex) noexcept {
  if (hex.size() != kHexChars) return std::nullopt;
  BlockKey key;
  for (size_t i = 0; i < kBytes; ++i) {
    const int high = digit_value(hex[2 * i]);
    const int low = digit_value(hex[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return key;
}

Status chain_root(std::string_view identity, std::span<const uint8_t> salt, BlockKey* out) {
  if (salt.size() > kMaxSaltBytes) {
    return Status::error("INVALID_ARGUMENT", "namespace salt: " + std::to_string(salt.size()) +
                                                 " bytes given, 0 to " + std::to_string(kMaxSaltBytes) +
                                                 " allowed; hash a longer secret first");
  }
  start_sodium();
  crypto_generichash_state state;
  crypto_generichash_init(&state, salt.data(), salt.size(), BlockKey::kBytes);
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(kDomain.data()), kDomain.size());
  crypto_generichash_update(&state, reinterpret_cast<const unsigned char*>(identity.data()), identity.size());
  crypto_generichash_final(&state, out->bytes.data(), BlockKey::kBytes);
  return {};
}

void extend_chain(const BlockKey& parent, const uint32_t* tokens, size_t block_tokens, size_t blocks,
                  BlockKey* out) noexcept {
  start_sodium();
  const size_t token_bytes = block_tokens * sizeof(uint32_t);
  std::array<uint8_t, 2 * BlockKey::kBytes> link;
  std::memcpy(link.data(), parent.bytes.data(), BlockKey::kBytes);
  for (size_t i = 0; i < blocks; ++i) {
    crypto_generichash(link.data() + BlockKey::kBytes, BlockKey::kBytes,
                       reinterpret_cast<const unsigned char*>(tokens + i * block_tokens), token_bytes,
                       nullptr, 0);
    crypto_generichash(out[i].bytes.data(), BlockKey::kBytes, link.data(), link.size(), nullptr, 0);
    std::memcpy(link.data(), out[i].bytes.data(), BlockKey::kBytes);
  }
}

}  // namespace dualpath::store
