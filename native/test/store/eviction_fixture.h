// A store with chains of blocks of given ages, and processes that use it.
#pragma once
#include <signal.h>
#include <sys/wait.h>

#include <functional>
#include <set>

#include "store/collector.h"
#include "store_fixture.h"

namespace dualpath::store {

class EvictionTest : public StoreTest {
 protected:
  static constexpr int64_t kInterval_ns = int64_t{kAgeInterval_s} * 1'000'000'000;

  void set_age(const BlockStore& store, const BlockKey& key, int64_t interval, uint32_t depth) const {
    const int64_t ns = interval * kInterval_ns - int64_t{depth} * 1000;
    const timespec time{ns / 1'000'000'000, ns % 1'000'000'000};
    const timespec times[2] = {time, time};
    if (utimensat(AT_FDCWD, block_file(store, key).c_str(), times, 0) != 0) std::abort();
  }

  bool stored(const BlockStore& store, const BlockKey& key) const {
    return access(block_file(store, key).c_str(), F_OK) == 0;
  }

  // Evicts until so many blocks are left, as the process of `store` would, or another one.
  CollectResult collect(BlockStore& store, uint64_t blocks_left, CollectOptions options = {}) const {
    EvictionLog log;
    log.open(store.root_fd());
    options.target_bytes = blocks_left * store.format().file_bytes();
    CollectResult result;
    const Status status = Collector(store.root_fd(), root_, &log, nullptr).collect(options, &result);
    if (!status.ok()) throw std::runtime_error(status.message);
    return result;
  }

  static pid_t in_child(const std::function<int()>& body) {
    const pid_t pid = fork();
    if (pid == 0) _exit(body());
    return pid;
  }

  static int exit_status(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  std::vector<std::string> tables() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(root_ + "/" + host_directory())) {
      if (entry.path().extension() == ".pins") found.push_back(entry.path());
    }
    return found;
  }
};

}  // namespace dualpath::store
