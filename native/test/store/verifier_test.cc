#include "store/verifier.h"

#include "eviction_fixture.h"

namespace dualpath::store {
namespace {

class VerifierTest : public EvictionTest {
 protected:
  Status run(const VerifyOptions& options, VerifyResult* result) const {
    StoreRoot root;
    if (const Status status = StoreRoot::open(root_, &root); !status.ok()) return status;
    ToolProgress progress;
    *result = {};
    return verify_store(root, options, progress, result);
  }
  VerifyResult verify(const VerifyOptions& options = {}) const {
    VerifyResult result;
    const Status status = run(options, &result);
    if (!status.ok()) throw std::runtime_error(status.message);
    return result;
  }
  uint64_t faults(const VerifyResult& result, BlockFault fault) const {
    return result.faults[static_cast<size_t>(fault)];
  }
};

TEST_F(VerifierTest, FindsEveryKindOfBadBlock) {
  const auto store = must_open();
  const auto tenant = must_open({.create = true, .namespace_name = "t", .index_capacity = 10});
  const std::vector<BlockKey> keys = make_keys(12);
  for (const BlockKey& key : keys) write_block(*store, key);
  write_block(*tenant, keys[0]);
  const auto spoil = [&](size_t i, size_t at) {
    std::string text = read_text(block_file(*store, keys[i]));
    text[at] ^= 1;
    write_text(block_file(*store, keys[i]), text);
  };
  spoil(0, 0);                   // the magic
  spoil(1, 8);                   // the version
  spoil(2, 100);                 // the header
  spoil(3, 4096);                // the first layer
  spoil(4, 4096 + 1000 + 3000);  // the last one
  write_text(block_file(*store, keys[5]), "");
  write_text(block_file(*store, keys[6]), read_text(block_file(*store, keys[6])).substr(0, 8192 - 100));
  write_text(block_file(*store, keys[7]), read_text(block_file(*store, keys[8])));
  std::filesystem::remove(block_file(*store, keys[9]));
  std::filesystem::create_directory(block_file(*store, keys[9]));
  std::filesystem::remove(block_file(*store, keys[10]));
  std::filesystem::create_symlink(block_file(*store, keys[11]), block_file(*store, keys[10]));
  const VerifyResult result = verify();
  EXPECT_EQ(result.blocks, 13u);
  EXPECT_EQ(result.good_blocks, 3u);
  EXPECT_EQ(result.bad_blocks, 10u);
  EXPECT_EQ(faults(result, BlockFault::kNotABlock), 1u);
  EXPECT_EQ(faults(result, BlockFault::kUnknownVersion), 1u);
  EXPECT_EQ(faults(result, BlockFault::kHeaderCorrupt), 1u);
  EXPECT_EQ(faults(result, BlockFault::kLayerCorrupt), 2u);
  EXPECT_EQ(faults(result, BlockFault::kTruncated), 2u);
  EXPECT_EQ(faults(result, BlockFault::kWrongKey), 1u);
  EXPECT_EQ(result.unreadable_blocks, 2u);
  EXPECT_EQ(result.listed.size(), 10u);
  for (const BadBlock& bad : result.listed) {
    if (bad.key == keys[4]) {
      EXPECT_EQ(bad.layer, 2u);
    }
  }
  EXPECT_EQ(result.removed_blocks, 0u);
  EXPECT_EQ(verify().bad_blocks, 10u);
}

TEST_F(VerifierTest, TakesBadBlocksOutWhenAsked) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(3);
  for (const BlockKey& key : keys) write_block(*store, key);
  for (size_t i = 0; i < 2; ++i) write_text(block_file(*store, keys[i]), "spoiled");
  VerifyOptions options;
  options.action = BadBlockAction::kQuarantine;
  EXPECT_EQ(verify(options).removed_blocks, 2u);
  EXPECT_EQ(entries(root_ + "/bad"), 2u);
  EXPECT_EQ(verify().bad_blocks, 0u);
  write_text(block_file(*store, keys[2]), "spoiled");
  options.action = BadBlockAction::kDelete;
  EXPECT_EQ(verify(options).removed_blocks, 1u);
  EXPECT_EQ(entries(root_ + "/bad"), 2u);
  EXPECT_EQ(verify().blocks, 0u);
}

TEST_F(VerifierTest, GoesOnWhereAnEarlierRunStopped) {
  const auto store = must_open();
  const auto tenant = must_open({.create = true, .namespace_name = "t", .index_capacity = 10});
  for (const BlockKey& key : make_keys(30)) write_block(*store, key);
  for (const BlockKey& key : make_keys(17)) write_block(*tenant, key);
  VerifyOptions options;
  options.limit = 7;
  uint64_t blocks = 0;
  int runs = 0;
  do {
    const VerifyResult result = verify(options);
    EXPECT_LE(result.blocks, 7u);
    blocks += result.blocks;
    options.resume = result.resume;
  } while (!options.resume.empty() && ++runs < 20);
  EXPECT_EQ(blocks, 47u);
  EXPECT_EQ(runs, 6);                               // and the seventh got to the end
  options.resume = "gone/" + std::string(64, 'f');  // a namespace that was deleted meanwhile
  options.limit = UINT64_MAX;
  EXPECT_EQ(verify(options).blocks, 17u);
}

TEST_F(VerifierTest, RefusesWrongOptions) {
  must_open();
  VerifyResult result;
  for (const unsigned threads : {0u, 65u}) {
    VerifyOptions options;
    options.threads = threads;
    EXPECT_STREQ(run(options, &result).code, "INVALID_ARGUMENT");
  }
  for (const char* resume : {"x", "/", "/abc", "t/"}) {
    VerifyOptions options;
    options.resume = resume;
    EXPECT_STREQ(run(options, &result).code, "INVALID_ARGUMENT") << resume;
  }
  std::filesystem::remove(root_ + "/store.layers");
  const Status status = run({}, &result);
  EXPECT_STREQ(status.code, "STORE_MISMATCH");
  EXPECT_NE(status.message.find("store.layers"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace dualpath::store
