#include "verbs/device.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "pair.h"
#include "verbs/library.h"

namespace dualpath::test {
namespace {

std::shared_ptr<stub::StubFabric> fabric_of(const stub::StubOptions& options = {}) {
  return std::make_shared<stub::StubFabric>(options);
}

TEST(LibraryTest, SaysWhatToInstallWhereItIsAbsent) {
  std::shared_ptr<Verbs> verbs;
  const Status status = open_library(&verbs, "libibverbs-not-there.so.1");
  EXPECT_STREQ(status.code, "RDMA_UNAVAILABLE");
  EXPECT_EQ(
      status.message,
      "no RDMA: libibverbs-not-there.so.1 not found; install rdma-core's libibverbs (Debian: libibverbs1 and "
      "ibverbs-providers), or use another transport");
}

TEST(LibraryTest, NamesTheSymbolThatAnotherLibraryLacks) {
  std::shared_ptr<Verbs> verbs;
  const Status status = open_library(&verbs, "libc.so.6");
  EXPECT_STREQ(status.code, "RDMA_UNAVAILABLE");
  EXPECT_NE(status.message.find("has no ibv_get_device_list@IBVERBS_1.1"), std::string::npos)
      << status.message;
}

// With the library: it loads. Without: it is named. Either way the answer is clear.
TEST(LibraryTest, TheRealOneLoadsOrSaysWhy) {
  std::shared_ptr<Verbs> verbs;
  const Status status = open_library(&verbs);
  if (!status.ok()) {
    EXPECT_STREQ(status.code, "RDMA_UNAVAILABLE");
    return;
  }
  EXPECT_STREQ(verbs->provider(), "libibverbs");
  std::shared_ptr<Device> device;
  const Status opened = Device::open(verbs, "no-such-device", &device);
  EXPECT_STREQ(opened.code, device_names(*verbs).empty() ? "RDMA_UNAVAILABLE" : "INVALID_ARGUMENT");
}

TEST(DeviceTest, SaysItIsAStub) { EXPECT_NE(strstr(fabric_of()->provider(), "emulated"), nullptr); }

TEST(DeviceTest, NamesTheDevicesThereAre) {
  std::shared_ptr<Device> device;
  const Status status = Device::open(fabric_of(), "stub7", &device);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_EQ(status.message, "no RDMA device named 'stub7'; there are: stub0, stub1");
  stub::StubOptions none;
  none.devices = 0;
  EXPECT_STREQ(Device::open(fabric_of(none), "stub0", &device).code, "RDMA_UNAVAILABLE");
}

TEST(DeviceTest, PortsAndGids) {
  const auto fabric = fabric_of();
  std::shared_ptr<Device> device;
  ASSERT_TRUE(Device::open(fabric, "stub0", &device).ok());
  PortFacts facts;
  ASSERT_TRUE(device->port(1, &facts).ok());
  EXPECT_TRUE(facts.active);
  EXPECT_TRUE(facts.ethernet);
  EXPECT_EQ(facts.mtu_bytes, 4096u);
  fabric->set_link(0, false);
  ASSERT_TRUE(device->port(1, &facts).ok());
  EXPECT_FALSE(facts.active);
  EXPECT_STREQ(device->port(2, &facts).code, "INVALID_ARGUMENT");
  ibv_gid gid{};
  ASSERT_TRUE(device->gid(1, 2, &gid).ok());
  EXPECT_EQ(gid.raw[12], 10);
  const Status status = device->gid(1, 4, &gid);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("GID index 4 of port 1"), std::string::npos);
  EXPECT_NE(status.message.find("0 to 3 allowed"), std::string::npos);
}

TEST(DeviceTest, PathMtus) {
  EXPECT_EQ(mtu_of(1500), IBV_MTU_1024);
  EXPECT_EQ(mtu_of(9000), IBV_MTU_4096);
  EXPECT_EQ(mtu_of(100), IBV_MTU_256);
  EXPECT_EQ(mtu_bytes(IBV_MTU_2048), 2048u);
}

TEST(RegionTest, ARefusalNamesTheLimitItsValueAndTheRemedy) {
  const auto fabric = fabric_of();
  std::shared_ptr<Device> device;
  ASSERT_TRUE(Device::open(fabric, "stub0", &device).ok());
  const auto arena = exact_arena(8192);
  std::unique_ptr<MemoryRegion> region;
  fabric->set_memlock(4096);
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  const Status status = MemoryRegion::register_arena(device, arena, RegionAccess::kPeersWrite, &region);
  EXPECT_STREQ(status.code, "MEMORY_LIMIT");
  EXPECT_EQ(status.sys_errno, ENOMEM);
  const std::string value = limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
  for (const std::string& part : {std::string("'test' (8192 bytes)"), "RLIMIT_MEMLOCK is " + value}) {
    EXPECT_NE(status.message.find(part), std::string::npos) << status.message;
  }
  EXPECT_EQ(fabric->objects(), 1u) << "the protection domain, nothing else";
  fabric->set_memlock(8192);
  ASSERT_TRUE(MemoryRegion::register_arena(device, arena, RegionAccess::kPeersWrite, &region).ok());
  const Status invalid =
      MemoryRegion::register_memory(device, "nothing", nullptr, 1, RegionAccess::kLocal, &region);
  EXPECT_STREQ(invalid.code, "RDMA_FAILED");
}

TEST(RegionTest, DmaBufMemoryIsWrittenThroughItsFileDescriptor) {
  Pair pair;
  const int fd = memfd_create("stands in for a dma-buf", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(fd, 8192), 0);
  std::unique_ptr<MemoryRegion> region;
  const Status status = MemoryRegion::register_dmabuf(pair.b.device, "hbm", fd, 4096, 4096, 0x7000'0000,
                                                      RegionAccess::kPeersWrite, &region);
  ASSERT_TRUE(status.ok()) << status.message;
  Registered from(pair.a.device, 64);
  Chain chain(pair.a.queue_pair->chain_options());
  chain.write({from.address(), 0x7000'0010, from.region->local_key(), region->remote_key(), 16});
  ASSERT_EQ(pair.a.queue_pair->post(chain, nullptr), PostResult::kPosted);
  ASSERT_TRUE(pair.settle());
  std::byte seen[17];
  ASSERT_EQ(pread(fd, seen, 17, 4096 + 16), 17);
  EXPECT_EQ(seen[15], std::byte{0xee});
  EXPECT_EQ(seen[16], std::byte{0});
  close(fd);
}

}  // namespace
}  // namespace dualpath::test
