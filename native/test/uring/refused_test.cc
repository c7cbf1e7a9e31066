#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <thread>

#include "uring/block_io.h"

namespace dualpath::test {
namespace {

// Whether calls of this thread are refused from here on, as a container's seccomp profile does it.
bool refuse_io_uring(int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{sizeof filter / sizeof *filter, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

TEST(BlockIoRefused, FallsBackToThreadsAndSaysWhy) {
  for (const int error : {EPERM, ENOSYS}) {
    std::thread([error] {  // the filter is this thread's alone
      ASSERT_TRUE(refuse_io_uring(error));
      FaultPlan faults;
      std::unique_ptr<BlockIo> io;
      const Status wanted = BlockIo::create(StorageIo::kUring, &faults, &io);
      EXPECT_STREQ(wanted.code, "STORAGE_IO");
      EXPECT_EQ(wanted.sys_errno, error);
      EXPECT_NE(wanted.message.find(error == EPERM ? "seccomp" : "Linux 5.19"), std::string::npos)
          << wanted.message;
      ASSERT_TRUE(BlockIo::create(StorageIo::kAuto, &faults, &io).ok());
      EXPECT_EQ(io->facts().io, StorageIo::kThreadPool);
      EXPECT_EQ(io->facts().refused, wanted.message);
    })
        .join();
  }
}

}  // namespace
}  // namespace dualpath::test
