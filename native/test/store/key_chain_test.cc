#include "store/key_chain.h"

#include <gtest/gtest.h>
#include <sodium.h>

#include <random>
#include <string>
#include <unordered_set>
#include <vector>

namespace dualpath::store {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes hash(const Bytes& message, const Bytes& key = {}) {
  Bytes digest(32);
  crypto_generichash(digest.data(), digest.size(), message.data(), message.size(), key.data(), key.size());
  return digest;
}

// The formulas of key_chain.h, byte by byte.
std::vector<Bytes> plain_chain(const std::string& identity, const Bytes& salt,
                               const std::vector<uint32_t>& tokens, size_t block_tokens) {
  Bytes message;
  for (const char c : std::string("dualpath block chain v1")) message.push_back(static_cast<uint8_t>(c));
  message.push_back(0);
  for (const char c : identity) message.push_back(static_cast<uint8_t>(c));
  std::vector<Bytes> keys{hash(message, salt)};
  for (size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    Bytes block;
    for (size_t i = begin; i < begin + block_tokens; ++i) {
      for (int shift = 0; shift < 32; shift += 8) block.push_back(static_cast<uint8_t>(tokens[i] >> shift));
    }
    Bytes link = keys.back();
    const Bytes digest = hash(block);
    link.insert(link.end(), digest.begin(), digest.end());
    keys.push_back(hash(link));
  }
  return keys;
}

BlockKey root_of(const std::string& identity, const Bytes& salt) {
  BlockKey root;
  EXPECT_TRUE(chain_root(identity, salt, &root).ok());
  return root;
}

std::vector<BlockKey> chain(const BlockKey& parent, const std::vector<uint32_t>& tokens,
                            size_t block_tokens) {
  std::vector<BlockKey> keys(tokens.size() / block_tokens);
  extend_chain(parent, tokens.data(), block_tokens, keys.size(), keys.data());
  return keys;
}

std::vector<uint32_t> random_tokens(std::mt19937_64& random, size_t count) {
  std::vector<uint32_t> tokens(count);
  for (uint32_t& token : tokens) token = static_cast<uint32_t>(random());
  return tokens;
}

// Computed with another implementation (Python's hashlib.blake2b): keys on disk must not change.
TEST(KeyChain, GivesTheKeysOfFormatVersionOne) {
  const std::string identity = "model=ds;layers=4;dtype=bf16";
  const std::vector<uint32_t> tokens{1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008, 1009, 1010, 1011};
  const BlockKey open = root_of(identity, {});
  EXPECT_EQ(open.to_hex(), "70c15d5e2dc9ee152b37cf1ece423611146710c64fc7a003ade2caae33c0a19c");
  EXPECT_EQ(chain(open, tokens, 4)[2].to_hex(),
            "8aea972b7ffe5a8280f680cbd34c6136ec583598561435974d92bb0dc4b5b495");
  const BlockKey salted = root_of(identity, {'t', 'e', 'n', 'a', 'n', 't', '-', '7'});
  EXPECT_EQ(salted.to_hex(), "3946fba51aaee66217be8d2baa291a3c47628f69838a4a0838d2937c6177eade");
  EXPECT_EQ(chain(salted, tokens, 4)[2].to_hex(),
            "994bc08a05dad59428a6b0eb4d7da64ef10a9eedcf03405859f738d6f01e7b63");
}

TEST(KeyChain, MatchesAPlainTranscription) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 100; ++round) {
    const size_t block_tokens = 1 + random() % 65;
    const std::vector<uint32_t> tokens = random_tokens(random, random() % 600);
    Bytes salt(random() % (kMaxSaltBytes + 1));
    for (uint8_t& byte : salt) byte = static_cast<uint8_t>(random());
    const std::string identity(random() % 300, static_cast<char>('a' + random() % 26));
    const std::vector<Bytes> expected = plain_chain(identity, salt, tokens, block_tokens);
    const BlockKey root = root_of(identity, salt);
    const std::vector<BlockKey> keys = chain(root, tokens, block_tokens);
    ASSERT_EQ(keys.size() + 1, expected.size());
    ASSERT_TRUE(std::equal(root.bytes.begin(), root.bytes.end(), expected[0].begin()));
    for (size_t i = 0; i < keys.size(); ++i) {
      ASSERT_TRUE(std::equal(keys[i].bytes.begin(), keys[i].bytes.end(), expected[i + 1].begin()));
    }
  }
}

TEST(KeyChain, ContinuesFromAnyBlockAlsoInPlace) {
  std::mt19937_64 random(8);
  const BlockKey root = root_of("x", {});
  const std::vector<uint32_t> tokens = random_tokens(random, 64 * 4);
  const std::vector<BlockKey> whole = chain(root, tokens, 4);
  for (size_t cut = 1; cut < whole.size(); ++cut) {
    const std::vector<uint32_t> rest(tokens.begin() + static_cast<ptrdiff_t>(cut) * 4, tokens.end());
    const std::vector<BlockKey> tail = chain(whole[cut - 1], rest, 4);
    ASSERT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + static_cast<ptrdiff_t>(cut)));
  }
  std::vector<BlockKey> in_place{root, root};
  extend_chain(in_place[0], tokens.data(), 4, 2, in_place.data());
  EXPECT_EQ(in_place[0], whole[0]);
  EXPECT_EQ(in_place[1], whole[1]);
}

TEST(KeyChain, AChangedTokenChangesItsKeyAndAllLaterOnesOnly) {
  std::mt19937_64 random(9);
  const BlockKey root = root_of("x", {});
  const std::vector<uint32_t> tokens = random_tokens(random, 32 * 8);
  const std::vector<BlockKey> keys = chain(root, tokens, 8);
  for (int round = 0; round < 100; ++round) {
    std::vector<uint32_t> changed = tokens;
    const size_t at = random() % changed.size();
    changed[at] ^= 1u << random() % 32;
    const std::vector<BlockKey> other = chain(root, changed, 8);
    for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(keys[i] == other[i], i < at / 8) << i;
  }
}

TEST(KeyChain, SeparatesIdentitiesSaltsAndBlockSizes) {
  std::unordered_set<BlockKey> seen;
  const std::vector<uint32_t> tokens(16, 0);
  for (const std::string identity : {"", "a", "b", "ab"}) {
    for (const Bytes& salt : {Bytes{}, Bytes{0}, Bytes{0, 0}, Bytes{'a'}}) {
      const BlockKey root = root_of(identity, salt);
      EXPECT_TRUE(seen.insert(root).second);
      EXPECT_TRUE(seen.insert(chain(root, tokens, 4)[0]).second);
      EXPECT_TRUE(seen.insert(chain(root, tokens, 8)[0]).second);
    }
  }
  EXPECT_EQ(seen.size(), 4u * 4u * 3u);
}

TEST(KeyChain, TakesSaltsOfUpTo64Bytes) {
  BlockKey root;
  EXPECT_TRUE(chain_root("x", Bytes(64, 1), &root).ok());
  const Status status = chain_root("x", Bytes(65, 1), &root);
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("65 bytes given, 0 to 64"), std::string::npos) << status.message;
}

TEST(BlockKey, HexGoesThereAndBackAndHasOneSpelling) {
  std::mt19937_64 random(10);
  for (int round = 0; round < 100; ++round) {
    BlockKey key;
    for (uint8_t& byte : key.bytes) byte = static_cast<uint8_t>(random());
    const std::string hex = key.to_hex();
    ASSERT_EQ(hex.size(), 64u);
    ASSERT_EQ(BlockKey::from_hex(hex), key);
  }
  const std::string hex(64, 'a');
  EXPECT_TRUE(BlockKey::from_hex(hex));
  EXPECT_FALSE(BlockKey::from_hex(hex.substr(1)));
  EXPECT_FALSE(BlockKey::from_hex(hex + "a"));
  EXPECT_FALSE(BlockKey::from_hex(std::string(64, 'A')));
  for (const char bad : {'g', '/', ':', '`', ' ', '\0'}) {
    std::string spoiled = hex;
    spoiled[33] = bad;
    EXPECT_FALSE(BlockKey::from_hex(spoiled)) << bad;
  }
}

}  // namespace
}  // namespace dualpath::store
