// A directory of its own for each test, and the few moves of a store's caller: writing a block file and
// reading it back.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "store/block_store.h"

namespace dualpath::store {

inline constexpr std::string_view kIdentity = "model=tiny;dtype=bf16;block_tokens=4";

// With a small index: filling the default one with zeroes takes longer than a test.
inline constexpr StoreOptions kCreate{.create = true, .index_capacity = 5000};
inline constexpr StoreOptions kOpen{.create = false, .index_capacity = 5000};

class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    // Memory where there is some: making 256 directories on a busy disk takes a while.
    const bool memory = access("/dev/shm", W_OK | X_OK) == 0;
    std::string pattern = (memory ? "/dev/shm" : std::filesystem::temp_directory_path()).string();
    pattern += "/dualpath-store-XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) std::abort();
    base_ = pattern;
    root_ = base_ + "/store";
  }
  ~StoreTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  static BlockFormat make_format(std::string_view identity = kIdentity) {
    BlockFormat format;
    const Status status = BlockFormat::create(std::string(identity), {1000, 3000, 200}, &format);
    if (!status.ok()) std::abort();
    return format;
  }

  // The n-th key of a chain, and other keys for other tests' purposes.
  static std::vector<BlockKey> make_keys(size_t count, uint32_t first_token = 0) {
    BlockKey root;
    if (!chain_root(kIdentity, {}, &root).ok()) std::abort();
    std::vector<uint32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = first_token + static_cast<uint32_t>(i);
    std::vector<BlockKey> keys(count);
    extend_chain(root, tokens.data(), 1, count, keys.data());
    return keys;
  }

  Status open_store(std::unique_ptr<BlockStore>* out, const StoreOptions& options = kCreate,
                    std::string_view identity = kIdentity) const {
    return BlockStore::open(root_, make_format(identity), {}, options, out);
  }

  std::unique_ptr<BlockStore> must_open(const StoreOptions& options = kCreate) const {
    std::unique_ptr<BlockStore> store;
    const Status status = open_store(&store, options);
    if (!status.ok()) throw std::runtime_error(status.message);
    return store;
  }

  // As a caller does it: sealed into tmp/, then renamed. Does not publish it; store_block does.
  static void write_block(BlockStore& store, const BlockKey& key) {
    std::vector<std::byte> block(store.format().file_bytes(), std::byte{0x5a});
    store.format().seal(block.data(), key);
    char temp[kBlockPathBytes];
    char place[kBlockPathBytes];
    store.temp_path(temp);
    store.block_path(key, place);
    const int fd = openat(store.root_fd(), temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, block.data(), block.size()) != static_cast<ssize_t>(block.size())) std::abort();
    close(fd);
    if (renameat(store.root_fd(), temp, store.root_fd(), place) != 0) std::abort();
  }

  static void store_block(BlockStore& store, const BlockKey& key, uint32_t depth = 0) {
    const uint64_t settled = store.settled_position();
    write_block(store, key);
    store.publish(key, settled, depth);
  }

  static BlockVerdict read_block(const BlockStore& store, const BlockKey& key) {
    std::vector<std::byte> block(store.format().file_bytes());
    char place[kBlockPathBytes];
    store.block_path(key, place);
    const int fd = openat(store.root_fd(), place, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {BlockFault::kTruncated};
    const ssize_t bytes = read(fd, block.data(), block.size());
    close(fd);
    return store.format().verify(block.data(), bytes < 0 ? 0 : static_cast<size_t>(bytes), key);
  }

  std::string block_file(const BlockStore& store, const BlockKey& key) const {
    char place[kBlockPathBytes];
    store.block_path(key, place);
    return root_ + "/" + place;
  }

  static void write_text(const std::string& path, std::string_view text) {
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file << text;
  }

  static std::string read_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static size_t entries(const std::string& directory) {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
    return count;
  }

  std::string base_;
  std::string root_;
};

}  // namespace dualpath::store
