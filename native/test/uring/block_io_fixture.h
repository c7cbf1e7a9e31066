// Operations on files of a directory of their own, made in every way that there is.
#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "test/memory/shapes.h"
#include "uring/block_io.h"

namespace dualpath::test {

inline constexpr size_t kBytes = 5 * 4096;

struct Way {
  StorageIo io;
  bool offload;
};

class BlockIoTest : public ::testing::TestWithParam<Way> {
 protected:
  BlockIoTest() {
    base_ = std::filesystem::temp_directory_path().string() + "/dualpath-uring-XXXXXX";
    if (mkdtemp(base_.data()) == nullptr) std::abort();
    directory_ = open(base_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    recreate();
  }
  void recreate() {
    const Status status = BlockIo::create(GetParam().io, &faults_, &io_);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  ~BlockIoTest() override {
    io_.reset();
    close(directory_);
    std::error_code ignored;
    std::filesystem::remove_all(base_, ignored);
  }

  std::byte* buffer(size_t index) { return arena_->base() + index * kBytes; }

  BlockOp* prepare(bool write, const std::string& name, size_t index) {
    BlockOp* op = io_->acquire();
    if (op == nullptr) return nullptr;
    op->write = write;
    op->offload = GetParam().offload;
    op->directory_fd = directory_;
    op->buffer = buffer(index);
    op->bytes = kBytes;
    op->index = static_cast<uint32_t>(index);
    snprintf(op->path, sizeof op->path, "%s%s", name.c_str(), write ? ".tmp" : "");
    snprintf(op->final_path, sizeof op->final_path, "%s", name.c_str());
    return op;
  }

  struct Ended {
    int error;
    size_t done;
    BlockCall call;
  };
  // The ends of `count` operations, by index.
  std::vector<Ended> finish(size_t count) {
    std::vector<Ended> ended(count, {-1, 0, BlockCall::kOpen});
    size_t seen = 0;
    for (int i = 0; seen < count && i < 10'000; i++) {
      io_->submit_and_wait(1'000'000'000);
      io_->reap([&](BlockOp* op) {
        ended.at(op->index) = {op->error, op->done, op->call};
        io_->release(op);
        seen++;
      });
    }
    EXPECT_EQ(seen, count);
    return ended;
  }
  Ended run(bool write, const std::string& name, bool direct = false) {
    BlockOp* op = prepare(write, name, 0);
    op->direct = direct;
    io_->start(op);
    return finish(1)[0];
  }

  std::string base_;
  int directory_ = -1;
  FaultPlan faults_;
  std::shared_ptr<Arena> arena_ = exact_arena((BlockIo::kMaxOps + 1) * kBytes);
  std::unique_ptr<BlockIo> io_;
};

inline auto all_ways() {
  return ::testing::Values(Way{StorageIo::kUring, false}, Way{StorageIo::kUring, true},
                           Way{StorageIo::kThreadPool, false});
}

inline std::string way_name(const ::testing::TestParamInfo<Way>& info) {
  return std::string(storage_io_name(info.param.io)) + (info.param.offload ? "_workers" : "");
}

}  // namespace dualpath::test
