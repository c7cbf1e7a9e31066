// Memory of a GPU registered with an RDMA device: as a dma-buf, by nvidia-peermem, or not at all.
#include <string.h>

#include "test/cuda/standin.h"
#include "test/verbs/pair.h"

namespace dualpath::test {
namespace {

Standin* current = nullptr;
void* peer_memory(void* address, size_t bytes) { return current->alias(address, bytes); }

class CudaRegisterTest : public ::testing::Test {
 protected:
  CudaRegisterTest() { current = &cuda_; }
  ~CudaRegisterTest() override { current = nullptr; }
  static stub::StubOptions with_peermem() {
    stub::StubOptions options;
    options.peer_memory = peer_memory;
    return options;
  }
  std::shared_ptr<Arena> hbm(size_t bytes) {
    std::shared_ptr<Arena> arena;
    const Status status = Arena::of_device("hbm", cuda_.device(), bytes, &arena);
    EXPECT_TRUE(status.ok()) << status.message;
    return arena;
  }
  // Writes it from the other end, and looks.
  void expect_written(Pair& pair, const std::shared_ptr<Arena>& arena, const MemoryRegion& region) {
    Registered source(pair.a.device, 1000);
    for (size_t i = 0; i < 1000; i++) source.base()[i] = static_cast<std::byte>(i * 3);
    Chain chain(pair.a.queue_pair->chain_options());
    ASSERT_TRUE(chain.write({source.address(), reinterpret_cast<uint64_t>(arena->base()) + 17,
                             source.region->local_key(), region.remote_key(), 1000}));
    Tracked write;
    write.begin();
    ASSERT_EQ(pair.a.queue_pair->post(chain, &write.operation), PostResult::kPosted);
    write.operation.seal();
    ASSERT_TRUE(pair.settle());
    EXPECT_TRUE(write.operation.error().ok());
    EXPECT_EQ(memcmp(cuda_.see(arena->base() + 17, 1000), source.base(), 1000), 0);
  }
  Standin cuda_;
};

TEST_F(CudaRegisterTest, AsADmaBufWhereTheDeviceExportsOne) {
  Pair pair;
  const auto arena = hbm(10'000);
  std::unique_ptr<MemoryRegion> region;
  const Status status =
      MemoryRegion::register_arena(pair.b.device, arena, RegionAccess::kPeersWrite, &region);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(region->way(), RegionWay::kDmaBuf);
  EXPECT_STREQ(region_way_name(region->way()), "dma-buf");
  expect_written(pair, arena, *region);
}

TEST_F(CudaRegisterTest, AdoptedMemoryNeedsNoAlignment) {
  Pair pair;
  const auto allocation = hbm(3 * 4096);
  const auto arena =
      Arena::adopt("kv", allocation->base() + 4096 + 40, 4096, ArenaKind::kCuda, allocation->device());
  std::unique_ptr<MemoryRegion> region;
  ASSERT_TRUE(MemoryRegion::register_arena(pair.b.device, arena, RegionAccess::kPeersWrite, &region).ok());
  expect_written(pair, arena, *region);
}

TEST_F(CudaRegisterTest, ByPeermemWhereItDoesNotAndThatIsSaid) {
  Pair pair({}, with_peermem());
  cuda_.set_attribute(0, cuda::kDmaBufSupported, 0);
  const auto arena = hbm(10'000);
  std::unique_ptr<MemoryRegion> region;
  ASSERT_TRUE(MemoryRegion::register_arena(pair.b.device, arena, RegionAccess::kPeersWrite, &region).ok());
  EXPECT_EQ(region->way(), RegionWay::kPeerMemory);
  EXPECT_STREQ(region_way_name(region->way()), "nvidia-peermem");
  EXPECT_NE(region->dmabuf_refused().find("the device does not support it"), std::string::npos);
  expect_written(pair, arena, *region);
}

TEST_F(CudaRegisterTest, NeitherIsRefusedWithBothReasons) {
  stub::StubOptions options;
  options.memlock_bytes = 8192;  // less than the pair needs, so nothing is registered by its address
  auto fabric = std::make_shared<stub::StubFabric>(options);
  std::shared_ptr<Device> device;
  ASSERT_TRUE(Device::open(fabric, "stub0", &device).ok());
  cuda_.fail("cuMemGetHandleForAddressRange", 1, cuda::kNotSupported);
  std::unique_ptr<MemoryRegion> region;
  const Status status = MemoryRegion::register_arena(device, hbm(10'000), RegionAccess::kPeersWrite, &region);
  EXPECT_STREQ(status.code, "RDMA_UNAVAILABLE");
  for (const char* part : {"CUDA_ERROR_NOT_SUPPORTED", "By nvidia-peermem: Cannot allocate memory",
                           "modprobe nvidia-peermem", "let copies go by the driver"}) {
    EXPECT_NE(status.message.find(part), std::string::npos) << part << " in " << status.message;
  }
}

TEST_F(CudaRegisterTest, PeersMayNotWriteWhatOnlyAStreamCanFlush) {
  cuda_.set_attribute(0, cuda::kGpuDirectRdmaFlushWritesOptions, cuda::kFlushOptionMemops);
  Pair pair;
  std::unique_ptr<MemoryRegion> region;
  const auto arena = hbm(4096);
  const Status status =
      MemoryRegion::register_arena(pair.b.device, arena, RegionAccess::kPeersWrite, &region);
  EXPECT_STREQ(status.code, "RDMA_UNAVAILABLE");
  EXPECT_TRUE(MemoryRegion::register_arena(pair.b.device, arena, RegionAccess::kLocal, &region).ok());
}

}  // namespace
}  // namespace dualpath::test
