// An engine with a store, and blocks in it.
#pragma once
#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "test/transfer/harness.h"
#include "test/transfer/kv.h"
#include "test/transfer/store_dir.h"

namespace dualpath::test {

// Over io_uring and over the pool of threads.
class StorageTest : public ::testing::TestWithParam<StorageIo> {
 protected:
  static constexpr uint32_t kTokens = 16;
  static constexpr uint32_t kBlocks = 12;

  void SetUp() override { open({}); }

  void open(EngineOptions options) {
    engine_.reset();
    options.store = dir_.store();
    engine_ = std::make_unique<Engine>(*reactor_, "engine", options);
    buffer_id_ = engine_->add_geometry(buffer_);
  }

  static std::vector<uint32_t> slots(uint32_t count, uint32_t first = 0) {
    std::vector<uint32_t> list(count);
    std::iota(list.begin(), list.end(), first);
    return list;
  }

  dp_descriptor read(const std::vector<store::BlockKey>& keys, const std::vector<uint32_t>& slots) {
    dp_descriptor d = describe(DP_OP_READ);
    d.dst_geometry = buffer_id_;
    d.src_list = engine_->keys(keys);
    d.dst_list = engine_->list(slots);
    d.list_count = static_cast<uint32_t>(keys.size());
    d.signal[0] = add(0);
    return d;
  }
  dp_descriptor write(const std::vector<store::BlockKey>& keys, const std::vector<uint32_t>& slots) {
    dp_descriptor d = describe(DP_OP_WRITE);
    d.src_geometry = buffer_id_;
    d.src_list = engine_->list(slots);
    d.dst_list = engine_->keys(keys);
    d.list_count = static_cast<uint32_t>(keys.size());
    d.signal[0] = add(1);
    return d;
  }
  // kBlocks blocks of KV, written through the engine; the buffer forgets them.
  std::vector<store::BlockKey> stored_blocks() {
    const auto keys = dir_.keys(kBlocks);
    write_kv(*buffer_, slots(kBlocks), {0, kBlocks * kTokens}, seeds_);
    EXPECT_EQ(engine_->run({write(keys, slots(kBlocks))}).status, DP_ERROR_NONE);
    wipe();
    return keys;
  }
  void wipe() { std::ranges::fill(memory_of(*buffer_), std::byte{0xee}); }

  const Shape shape_ = uniform_shape(4, kTokens, {{82, 0}, {36, 0}});
  const std::vector<uint64_t> seeds_ = seeds_of(2 * kBlocks * kTokens);
  const std::shared_ptr<const Geometry> buffer_ = full_blocks(shape_, 2 * kBlocks);
  StoreDir dir_{shape_};
  std::unique_ptr<Reactor> reactor_ = make_reactor(GetParam());
  std::unique_ptr<Engine> engine_;
  uint32_t buffer_id_ = DP_NONE;
};

inline constexpr auto kBothWays = [] { return ::testing::Values(StorageIo::kUring, StorageIo::kThreadPool); };
inline std::string name_of_way(const ::testing::TestParamInfo<StorageIo>& info) {
  return storage_io_name(info.param);
}

}  // namespace dualpath::test
