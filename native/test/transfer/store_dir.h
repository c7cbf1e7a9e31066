// A real block store in a directory of its own, and what tests do to its files.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "store/block_store.h"
#include "test/memory/shapes.h"

namespace dualpath::test {

class StoreDir {
 public:
  // In memory where there is some, as making the directories on a busy disk takes a while.
  explicit StoreDir(const Shape& shape, std::string parent = "") {
    if (parent.empty()) {
      parent = access("/dev/shm", W_OK | X_OK) == 0 ? "/dev/shm" : std::filesystem::temp_directory_path();
    }
    base_ = parent + "/dualpath-transfer-XXXXXX";
    if (mkdtemp(base_.data()) == nullptr) std::abort();
    store::BlockFormat format;
    Status status = store::BlockFormat::create("test", shape.all_layer_bytes(), &format);
    std::unique_ptr<store::BlockStore> opened;
    if (status.ok()) {
      status = store::BlockStore::open(base_ + "/store", format, {}, {.create = true}, &opened);
    }
    if (!status.ok()) {
      ADD_FAILURE() << status.message;
      std::abort();
    }
    store_ = std::move(opened);
  }
  ~StoreDir() {
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }
  StoreDir(const StoreDir&) = delete;
  StoreDir& operator=(const StoreDir&) = delete;

  const std::shared_ptr<store::BlockStore>& store() const { return store_; }
  size_t file_bytes() const { return store_->format().file_bytes(); }

  // Of `count` blocks of a chain; chains of other first tokens share nothing.
  std::vector<store::BlockKey> keys(size_t count, uint32_t first_token = 0) const {
    std::vector<uint32_t> tokens(count);
    for (size_t i = 0; i < count; i++) tokens[i] = first_token + static_cast<uint32_t>(i);
    std::vector<store::BlockKey> keys(count);
    store::extend_chain(store_->root_key(), tokens.data(), 1, count, keys.data());
    return keys;
  }

  std::string file(const store::BlockKey& key) const {
    char place[store::kBlockPathBytes];
    store_->block_path(key, place);
    return base_ + "/store/" + place;
  }
  void flip_byte(const store::BlockKey& key, size_t offset) const {
    std::fstream stream(file(key), std::ios::in | std::ios::out | std::ios::binary);
    stream.seekg(static_cast<std::streamoff>(offset));
    const char byte = static_cast<char>(stream.get() ^ 1);
    stream.seekp(static_cast<std::streamoff>(offset));
    stream.put(byte);
    ASSERT_TRUE(stream.good());
  }
  size_t entries(const std::string& directory) const {
    size_t count = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator(base_ + "/store/" + directory)) {
      count++;
    }
    return count;
  }
  // Closing and unlinking follow an operation, nobody waits for them.
  bool temp_empties() const {
    for (int i = 0; i < 2000 && entries("tmp") != 0; i++) usleep(1000);
    return entries("tmp") == 0;
  }

 private:
  std::string base_;
  std::shared_ptr<store::BlockStore> store_;
};

}  // namespace dualpath::test
