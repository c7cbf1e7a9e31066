#include "store/block_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace dualpath::store {
namespace {

using Block = std::vector<std::byte>;

const std::vector<uint64_t> kLayers{1000, 0, 4096, 1, 7003};  // a layer may store nothing
constexpr size_t kPayload = 1000 + 0 + 4096 + 1 + 7003;
constexpr size_t kFile = 4096 * 4;

BlockFormat make(const std::string& identity = "layout a", const std::vector<uint64_t>& layers = kLayers) {
  BlockFormat format;
  const Status status = BlockFormat::create(identity, layers, &format);
  EXPECT_TRUE(status.ok()) << status.message;
  return format;
}

BlockKey key_of(uint8_t fill) {
  BlockKey key;
  key.bytes.fill(fill);
  return key;
}

Block sealed(const BlockFormat& format, const BlockKey& key, uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  Block block(format.file_bytes());
  for (std::byte& byte : block) byte = static_cast<std::byte>(random());
  format.seal(block.data(), key);
  return block;
}

template <typename T>
T field(const Block& block, size_t offset) {
  T value;
  std::memcpy(&value, block.data() + offset, sizeof value);
  return value;
}

uint32_t layer_of(size_t payload_offset) {
  size_t end = 0;
  for (uint32_t layer = 0; layer < kLayers.size(); ++layer) {
    end += kLayers[layer];
    if (payload_offset < end) return layer;
  }
  return UINT32_MAX;
}

TEST(BlockFormat, HasTheSizesOfItsLayers) {
  const BlockFormat format = make();
  EXPECT_EQ(format.payload_bytes(), kPayload);
  EXPECT_EQ(format.file_bytes(), kFile);
  EXPECT_EQ(format.layers(), 5u);
  EXPECT_EQ(make("x", {4096}).file_bytes(), 8192u);
  EXPECT_EQ(make("x", {4097}).file_bytes(), 12288u);
  EXPECT_EQ(make("x", std::vector<uint64_t>(BlockFormat::kMaxLayers, 1)).file_bytes(), 8192u);
}

TEST(BlockFormat, LaysTheHeaderOutAsVersionOne) {
  const Block block = sealed(make("model=ds;layers=4;dtype=bf16"), key_of(0x42));
  EXPECT_EQ(std::memcmp(block.data(), "DPKVBLK\n", 8), 0);
  EXPECT_EQ(field<uint32_t>(block, 8), 1u);
  EXPECT_EQ(field<uint32_t>(block, 12), 4096u);
  EXPECT_EQ(field<BlockKey>(block, 16), key_of(0x42));
  // hashlib.blake2b(identity, digest_size=32)
  EXPECT_EQ(field<BlockKey>(block, 48).to_hex(),
            "1bbab9feb582c96c3aae77aa4c0348de816779e18374c0104e012640d253f851");
  EXPECT_EQ(field<uint64_t>(block, 80), kPayload);
  EXPECT_EQ(field<uint32_t>(block, 88), 5u);
  EXPECT_EQ(field<uint64_t>(block, 120 + 8), 0x2D06800538D394C2u);  // XXH3-64 of nothing: layer 1
  for (size_t offset = 120 + 5 * 8; offset < 4088; ++offset) ASSERT_EQ(block[offset], std::byte{0}) << offset;
  for (size_t offset = 4096 + kPayload; offset < kFile; ++offset)
    ASSERT_EQ(block[offset], std::byte{0}) << offset;
}

TEST(BlockFormat, VerifiesWhatItSealed) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<uint64_t> layers(1 + random() % 60);
    for (uint64_t& bytes : layers) bytes = random() % 3000;
    layers[random() % layers.size()] = 17;
    const BlockFormat format = make("layout r", layers);
    const Block block = sealed(format, key_of(9), random());
    ASSERT_TRUE(format.verify(block.data(), block.size(), key_of(9)).ok());
  }
}

TEST(BlockFormat, KeepsThePayload) {
  const BlockFormat format = make();
  Block block(format.file_bytes(), std::byte{0x33});
  format.seal(block.data(), key_of(1));
  for (size_t offset = 4096; offset < 4096 + kPayload; ++offset) ASSERT_EQ(block[offset], std::byte{0x33});
}

TEST(BlockFormat, FindsEveryFlippedBitOfTheHeader) {
  const BlockFormat format = make();
  Block block = sealed(format, key_of(5));
  for (size_t bit = 0; bit < 4096 * 8; ++bit) {
    const std::byte mask{static_cast<uint8_t>(1u << bit % 8)};
    block[bit / 8] ^= mask;
    const BlockFault fault = format.verify(block.data(), block.size(), key_of(5)).fault;
    block[bit / 8] ^= mask;
    const BlockFault expected = bit / 8 < 8    ? BlockFault::kNotABlock
                                : bit / 8 < 12 ? BlockFault::kUnknownVersion
                                               : BlockFault::kHeaderCorrupt;
    ASSERT_EQ(fault, expected) << "bit " << bit << ": " << fault_name(fault);
  }
  EXPECT_TRUE(format.verify(block.data(), block.size(), key_of(5)).ok());
}

TEST(BlockFormat, FindsFlippedBitsOfThePayloadAndNamesTheLayer) {
  const BlockFormat format = make();
  Block block = sealed(format, key_of(5));
  std::mt19937_64 random(11);
  std::vector<size_t> offsets{0, 999, 1000, 5095, 5096, 5097, kPayload - 1};  // ends of layers
  for (int i = 0; i < 2000; ++i) offsets.push_back(random() % kPayload);
  for (const size_t offset : offsets) {
    const std::byte mask{static_cast<uint8_t>(1u << random() % 8)};
    block[4096 + offset] ^= mask;
    const BlockVerdict verdict = format.verify(block.data(), block.size(), key_of(5));
    block[4096 + offset] ^= mask;
    ASSERT_EQ(verdict.fault, BlockFault::kLayerCorrupt) << offset;
    ASSERT_EQ(verdict.layer, layer_of(offset)) << offset;
  }
}

TEST(BlockFormat, FindsOverwrittenRangesAndSwappedPages) {
  const BlockFormat format = make();
  const Block good = sealed(format, key_of(5));
  std::mt19937_64 random(12);
  for (int round = 0; round < 500; ++round) {
    Block block = good;
    const size_t begin = random() % (4096 + kPayload);
    const size_t end = std::min(begin + 1 + random() % 5000, 4096 + kPayload);
    const auto fill = static_cast<std::byte>(random() % 3 == 0 ? 0 : random());
    std::fill(block.begin() + static_cast<ptrdiff_t>(begin), block.begin() + static_cast<ptrdiff_t>(end),
              fill);
    ASSERT_EQ(format.verify(block.data(), block.size(), key_of(5)).ok(), block == good)
        << begin << ".." << end;
  }
  Block swapped = good;
  std::swap_ranges(swapped.begin() + 4096, swapped.begin() + 8192, swapped.begin() + 8192);
  EXPECT_EQ(format.verify(swapped.data(), swapped.size(), key_of(5)).fault, BlockFault::kLayerCorrupt);
}

TEST(BlockFormat, FindsTruncationAtEveryPage) {
  const BlockFormat format = make();
  const Block block = sealed(format, key_of(5));
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, kFile - 1}) {
    EXPECT_EQ(format.verify(block.data(), bytes, key_of(5)).fault, BlockFault::kTruncated) << bytes;
  }
  for (size_t bytes = 0; bytes < kFile; bytes += 512) {
    // Only what was read may be looked at: the sanitizer watches the end of this copy.
    const Block part(block.begin(), block.begin() + static_cast<ptrdiff_t>(bytes));
    EXPECT_EQ(format.verify(part.data(), bytes, key_of(5)).fault, BlockFault::kTruncated) << bytes;
  }
}

TEST(BlockFormat, AnotherVersionIsUnknownWhateverElseDiffers) {
  const BlockFormat format = make();
  std::mt19937_64 random(13);
  for (int round = 0; round < 200; ++round) {
    Block block = sealed(format, key_of(5));
    for (size_t offset = 8; offset < block.size(); ++offset) block[offset] = static_cast<std::byte>(random());
    const uint32_t version =
        round < 2 ? static_cast<uint32_t>(round) * 2 : static_cast<uint32_t>(random() | 2);
    std::memcpy(block.data() + 8, &version, sizeof version);
    const size_t bytes = round % 2 == 0 ? block.size() : 4096;
    ASSERT_EQ(format.verify(block.data(), bytes, key_of(5)).fault, BlockFault::kUnknownVersion) << version;
  }
}

TEST(BlockFormat, RefusesZeroesForeignBlocksOtherKeysAndOtherSizes) {
  const BlockFormat format = make();
  const Block zeroes(kFile);
  EXPECT_EQ(format.verify(zeroes.data(), kFile, key_of(0)).fault, BlockFault::kNotABlock);
  const Block foreign = sealed(make("layout b"), key_of(5));
  EXPECT_EQ(format.verify(foreign.data(), kFile, key_of(5)).fault, BlockFault::kForeign);
  const Block other_key = sealed(format, key_of(6));
  EXPECT_EQ(format.verify(other_key.data(), kFile, key_of(5)).fault, BlockFault::kWrongKey);
  const Block fewer_layers = sealed(make("layout a", {kPayload}), key_of(5));
  EXPECT_EQ(format.verify(fewer_layers.data(), kFile, key_of(5)).fault, BlockFault::kWrongSize);
  std::vector<uint64_t> longer = kLayers;
  longer[0] += 1;
  const Block longer_payload = sealed(make("layout a", longer), key_of(5));
  EXPECT_EQ(format.verify(longer_payload.data(), kFile, key_of(5)).fault, BlockFault::kWrongSize);
}

TEST(BlockFormat, DoesNotLookAtThePadding) {
  const BlockFormat format = make();
  Block block = sealed(format, key_of(5));
  block[kFile - 1] = std::byte{1};
  EXPECT_TRUE(format.verify(block.data(), kFile, key_of(5)).ok());
}

TEST(BlockFormat, NamesTheLimitThatIsBroken) {
  const auto expect = [](const std::string& identity, const std::vector<uint64_t>& layers, const char* text) {
    BlockFormat format;
    const Status status = BlockFormat::create(identity, layers, &format);
    ASSERT_FALSE(status.ok()) << text;
    EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
    EXPECT_NE(status.message.find(text), std::string::npos) << status.message;
  };
  expect("", {1}, "0 bytes, 1 to 16384");
  expect(std::string(16385, 'x'), {1}, "16385 bytes, 1 to 16384");
  expect("a\nb", {1}, "control character");
  expect(std::string("a\0b", 3), {1}, "control character");
  expect("a", {}, "0 layers, 1 to 496");
  expect("a", std::vector<uint64_t>(497, 1), "497 layers, 1 to 496");
  expect("a", {0, 0}, "0 bytes");
  expect("a", {1, UINT64_MAX}, "Layer Block 1");
  expect("a", {BlockFormat::kMaxFileBytes - 4096, 1}, "Layer Block 1");
  EXPECT_EQ(make("größe", {BlockFormat::kMaxFileBytes - 4096}).file_bytes(), BlockFormat::kMaxFileBytes);
}

}  // namespace
}  // namespace dualpath::store
