// Opening: manifests, refusals, several processes at once.
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <functional>
#include <thread>

#include "store/manifest.h"
#include "store_fixture.h"

namespace dualpath::store {
namespace {

void expect_refusal(const Status& status, const char* code, int sys_errno,
                    const std::vector<std::string>& texts) {
  ASSERT_FALSE(status.ok());
  EXPECT_STREQ(status.code, code) << status.message;
  EXPECT_EQ(status.sys_errno, sys_errno) << status.message;
  for (const std::string& text : texts)
    EXPECT_NE(status.message.find(text), std::string::npos) << status.message;
}

// Runs `body` in a child process and returns its pid; the child exits with what body returns.
pid_t in_child(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  return pid;
}

int exit_status(pid_t pid) {
  int status = 0;
  if (waitpid(pid, &status, 0) != pid) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(StoreTest, CreateMakesTheWholeLayoutOnce) {
  must_open();
  EXPECT_EQ(entries(root_ + "/blocks"), 256u);
  EXPECT_EQ(entries(root_ + "/tmp"), 0u);
  EXPECT_EQ(read_text(root_ + "/store.manifest"),
            "dualpath block store\nversion=1\nidentity=" + std::string(kIdentity) + "\n");
  must_open();
  must_open(kOpen);
  EXPECT_EQ(entries(root_), 6u);  // those, bad, hosts and the layers
  EXPECT_EQ(read_text(root_ + "/store.layers"),
            "dualpath block layers\nversion=1\nlayer_bytes=1x1000,1x3000,1x200\n");
}

TEST_F(StoreTest, CreateMakesWhatWasEmptiedByHand) {
  must_open();
  std::filesystem::remove_all(root_ + "/blocks");
  std::unique_ptr<BlockStore> store;
  expect_refusal(open_store(&store, kOpen), "STORAGE_IO", ENOENT, {root_ + "/blocks/00"});
  EXPECT_EQ(must_open()->stat().blocks, 0u);
}

TEST_F(StoreTest, RefusesAnotherIdentityNamingBothAndTheRemedy) {
  must_open();
  std::unique_ptr<BlockStore> store;
  for (const bool create : {false, true}) {
    expect_refusal(open_store(&store, create ? kCreate : kOpen, "model=other"), "STORE_MISMATCH", 0,
                   {root_, "'" + std::string(kIdentity) + "'", "'model=other'", "a directory of its own"});
    EXPECT_EQ(store, nullptr);
  }
}

TEST_F(StoreTest, RefusesAnotherVersionBeforeLookingAtTheRest) {
  must_open();
  write_text(root_ + "/store.manifest", "dualpath block store\nversion=2\nwhatever that version says");
  std::unique_ptr<BlockStore> store;
  expect_refusal(open_store(&store), "STORE_MISMATCH", 0, {root_, "format version '2'", "version 1"});
}

TEST_F(StoreTest, RefusesADamagedManifest) {
  must_open();
  const std::string good = read_text(root_ + "/store.manifest");
  std::vector<std::string> damaged{"",         "hello", good + "x", good + good, std::string(40000, 'x'),
                                   "\n" + good};
  for (size_t bytes = 0; bytes < good.size(); ++bytes) damaged.push_back(good.substr(0, bytes));
  for (const std::string& text : damaged) {
    write_text(root_ + "/store.manifest", text);
    std::unique_ptr<BlockStore> store;
    expect_refusal(open_store(&store), "STORE_MISMATCH", 0, {root_, "store.manifest is damaged"});
  }
}

TEST_F(StoreTest, SaysWhatIsMissing) {
  std::unique_ptr<BlockStore> store;
  expect_refusal(open_store(&store, kOpen), "STORAGE_IO", ENOENT, {root_, "open it with create"});
  std::filesystem::create_directory(root_);
  expect_refusal(open_store(&store, kOpen), "STORAGE_IO", ENOENT,
                 {root_, "no store.manifest", "open it with create"});
  root_ += "/a/b";
  expect_refusal(open_store(&store), "STORAGE_IO", ENOENT, {root_, "parent directory"});
}

TEST_F(StoreTest, RefusesAFileInPlaceOfADirectory) {
  write_text(root_, "a file");
  std::unique_ptr<BlockStore> store;
  for (const bool create : {false, true}) {
    expect_refusal(open_store(&store, create ? kCreate : kOpen), "STORAGE_IO", ENOTDIR,
                   {root_, "name a directory"});
  }
  root_ += "/below";
  expect_refusal(open_store(&store), "STORAGE_IO", ENOTDIR, {root_, "name a directory"});
}

TEST_F(StoreTest, RefusesWrongOptions) {
  std::unique_ptr<BlockStore> store;
  for (const size_t capacity : {size_t{0}, KeyIndex::kMaxCapacity + 1}) {
    expect_refusal(open_store(&store, {.create = true, .index_capacity = capacity}), "INVALID_ARGUMENT", 0,
                   {root_, std::to_string(capacity) + " keys"});
  }
  expect_refusal(BlockStore::open(root_, BlockFormat(), {}, kCreate, &store), "INVALID_ARGUMENT", 0, {root_});
  const std::vector<uint8_t> salt(65);
  expect_refusal(BlockStore::open(root_, make_format(), salt, kCreate, &store), "INVALID_ARGUMENT", 0,
                 {"65 bytes"});
  EXPECT_FALSE(std::filesystem::exists(root_));
}

// In a child without privileges, as root may write anywhere.
TEST_F(StoreTest, RefusesDirectoriesItMayNotUse) {
  must_open();
  ASSERT_EQ(chmod(base_.c_str(), 0755), 0);
  const auto refused = [&](const std::string& directory, mode_t mode, const StoreOptions& options,
                           const std::string& named) {
    struct stat before;
    ASSERT_EQ(stat(directory.c_str(), &before), 0);
    ASSERT_EQ(chmod(directory.c_str(), mode), 0);
    const int result = exit_status(in_child([&] {
      if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 100;
      std::unique_ptr<BlockStore> store;
      const Status status = open_store(&store, options);
      if (status.ok() || std::string_view(status.code) != "STORAGE_IO") return 1;
      if (status.sys_errno != EACCES) return 2;
      if (status.message.find(" " + named + ": ") == std::string::npos) return 3;
      return status.message.find("read, write and search permission") == std::string::npos ? 4 : 0;
    }));
    ASSERT_EQ(chmod(directory.c_str(), before.st_mode & 07777), 0);
    EXPECT_EQ(result, 0) << directory;
  };
  for (const std::string name : {"tmp", "bad", "blocks"})
    ASSERT_EQ(chmod((root_ + "/" + name).c_str(), 0777), 0);
  refused(root_, 0000, kOpen, root_);
  refused(root_ + "/tmp", 0555, kOpen, root_ + "/tmp");
  refused(root_ + "/bad", 0555, kCreate, root_ + "/bad");
  refused(root_ + "/blocks/00", 0555, kCreate, root_ + "/blocks/00");
  std::filesystem::remove_all(root_);
  refused(base_, 0555, kCreate, root_);
}

TEST_F(StoreTest, ThreadsThatCreateOneStoreAtOnceAgree) {
  for (int round = 0; round < 10; ++round) {
    std::filesystem::remove_all(root_);
    constexpr size_t kThreads = 4;
    const std::array<std::string_view, 2> identities{"layout even", "layout odd"};
    std::array<Status, kThreads> results;
    std::vector<std::thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::unique_ptr<BlockStore> store;
        results[t] = open_store(&store, kCreate, identities[t % 2]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    const size_t winner = results[0].ok() ? 0 : 1;
    for (size_t t = 0; t < kThreads; ++t) {
      if (t % 2 == winner) {
        EXPECT_TRUE(results[t].ok()) << results[t].message;
      } else {
        expect_refusal(results[t], "STORE_MISMATCH", 0, {std::string(identities[winner])});
      }
    }
    EXPECT_EQ(entries(root_ + "/tmp"), 0u);
  }
}

TEST_F(StoreTest, ProcessesThatCreateOneStoreAtOnceAgree) {
  for (int round = 0; round < 10; ++round) {
    std::filesystem::remove_all(root_);
    int gate[2];
    ASSERT_EQ(pipe2(gate, O_CLOEXEC), 0);
    const auto contend = [&](std::string_view identity) {
      return in_child([&, identity] {
        close(gate[1]);
        char byte;
        if (read(gate[0], &byte, 1) != 0) return 100;  // until the parent opens the gate
        std::unique_ptr<BlockStore> store;
        const Status status = open_store(&store, kCreate, identity);
        if (status.ok()) return 0;
        return std::string_view(status.code) == "STORE_MISMATCH" ? 1 : 2;
      });
    };
    const std::array<pid_t, 4> children{contend("a"), contend("b"), contend("a"), contend("b")};
    close(gate[0]);
    close(gate[1]);
    std::array<int, 4> results;
    for (size_t i = 0; i < 4; ++i) results[i] = exit_status(children[i]);
    EXPECT_EQ(results[0], results[2]);
    EXPECT_EQ(results[1], results[3]);
    EXPECT_EQ(results[0] + results[1], 1) << results[0] << " and " << results[1];
  }
}

TEST_F(StoreTest, SeesWhatAnotherProcessPublishes) {
  const auto store = must_open();
  const std::vector<BlockKey> keys = make_keys(3);
  EXPECT_EQ(store->longest_prefix(keys.data(), 3), 0u);
  // The child uses the inherited store too: its temp names must differ from the parent's.
  char parent_temp[kBlockPathBytes];
  ASSERT_EQ(exit_status(in_child([&] {
              std::unique_ptr<BlockStore> own;
              if (!open_store(&own).ok()) return 1;
              write_block(*own, keys[0]);
              write_block(*store, keys[1]);
              char child_temp[kBlockPathBytes];
              store->temp_path(child_temp);
              return openat(store->root_fd(), child_temp, O_WRONLY | O_CREAT | O_EXCL, 0666) >= 0 ? 0 : 2;
            })),
            0);
  EXPECT_EQ(store->longest_prefix(keys.data(), 3), 2u);
  for (int i = 0; i < 3; ++i) {
    store->temp_path(parent_temp);
    EXPECT_NE(faccessat(store->root_fd(), parent_temp, F_OK, 0), 0) << parent_temp;
  }
}

TEST_F(StoreTest, RecoversFromAWriterThatWasKilled) {
  const std::vector<BlockKey> keys = make_keys(10);
  const pid_t child = in_child([&] {
    std::unique_ptr<BlockStore> store;
    if (!open_store(&store).ok()) return 1;
    for (size_t i = 0; i < 7; ++i) {
      store_block(*store, keys[i]);
    }
    char temp[kBlockPathBytes];
    store->temp_path(temp);
    write_text(root_ + "/" + temp, "half a block");
    kill(getpid(), SIGKILL);
    return 2;
  });
  ASSERT_EQ(exit_status(child), 128 + SIGKILL);
  const auto store = must_open(kOpen);
  EXPECT_EQ(store->stat().blocks, 7u);
  EXPECT_EQ(store->longest_prefix(keys.data(), keys.size()), 7u);
  for (size_t i = 0; i < 7; ++i) EXPECT_TRUE(read_block(*store, keys[i]).ok());
  ASSERT_EQ(entries(root_ + "/tmp"), 1u);  // too young to be called dead
  const std::string left = std::filesystem::directory_iterator(root_ + "/tmp")->path();
  const timespec old[2] = {{1, 0}, {1, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, left.c_str(), old, 0), 0);
  EXPECT_EQ(must_open()->stat().stale_temps_removed, 1u);
  EXPECT_EQ(entries(root_ + "/tmp"), 0u);
}

TEST_F(StoreTest, ManifestWriterLeavesAnExistingManifestAlone) {
  const auto store = must_open();
  char temp[kBlockPathBytes];
  store->temp_path(temp);
  EXPECT_TRUE(write_manifest(store->root_fd(), root_, temp, "the later one").ok());
  EXPECT_NE(read_text(root_ + "/store.manifest").find(kIdentity), std::string::npos);
  EXPECT_EQ(entries(root_ + "/tmp"), 0u);
}

}  // namespace
}  // namespace dualpath::store
