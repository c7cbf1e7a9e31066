#include "store/posix.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdio.h>

namespace dualpath::store {
namespace {

Reach reach_in(std::string table, uint64_t mount_id) {
  FILE* file = fmemopen(table.data(), table.size(), "r");
  const Reach reach = mount_reach(file, mount_id);
  fclose(file);
  return reach;
}

constexpr char kTable[] =
    "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
    "22 1 0:20 / /srv/a\\040-\\040b rw - 9p share rw,trans=virtio\n"
    "23 1 0:21 / /shared rw shared:2 master:3 - nfs4 server:/kv rw\n"
    "24 1 0:22 / /dev/shm rw - tmpfs tmpfs rw\n"
    "25 1 0:23 / /broken rw\n";

TEST(MountReach, IsByTheTypeThatTheMountHas) {
  EXPECT_EQ(reach_in(kTable, 1), Reach::kThisHost);
  EXPECT_EQ(reach_in(kTable, 24), Reach::kThisHost);
  EXPECT_EQ(reach_in(kTable, 22), Reach::kOtherHosts);
  EXPECT_EQ(reach_in(kTable, 23), Reach::kOtherHosts);
}

TEST(MountReach, IsUnknownWhereTheTableDoesNotSay) {
  EXPECT_EQ(reach_in(kTable, 2), Reach::kUnknown);
  EXPECT_EQ(reach_in(kTable, 25), Reach::kUnknown);
  EXPECT_EQ(reach_in("\n", 0), Reach::kUnknown);
}

TEST(OnLocalFileSystem, SaysSoOfTheSystemsOwnMounts) {
  for (const auto& [path, local] : {std::pair{"/proc", false}, std::pair{"/dev/shm", true}}) {
    const ScopedFd fd(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_TRUE(fd.valid()) << path;
    EXPECT_EQ(on_local_file_system(fd.get()), local) << path;
  }
}

}  // namespace
}  // namespace dualpath::store
