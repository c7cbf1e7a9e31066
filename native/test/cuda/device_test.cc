#include "cuda/device.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "memory/region.h"
#include "test/cuda/standin.h"
#include "test/memory/shapes.h"

namespace dualpath::test {
namespace {

class CudaDeviceTest : public ::testing::Test {
 protected:
  Standin cuda_;
};

DeviceStream::Progress wait(DeviceStream& stream, uint32_t mark, Status* why) {
  DeviceStream::Progress progress;
  const uint64_t deadline = now_ns() + 10'000'000'000;
  while ((progress = stream.poll(mark, why)) == DeviceStream::Progress::kPending && now_ns() < deadline)
    usleep(50);
  return progress;
}

TEST(CudaDriverTest, NotThereIsSaidWithWhatToInstall) {
  std::shared_ptr<cuda::Driver> driver;
  const Status status = cuda::Driver::open("libno-such-cuda.so.1", &driver);
  EXPECT_STREQ(status.code, "CUDA_UNAVAILABLE");
  EXPECT_NE(status.message.find("libno-such-cuda.so.1 not found; install NVIDIA's driver"),
            std::string::npos);
}

TEST(CudaDriverTest, AnotherLibraryIsNone) {
  std::shared_ptr<cuda::Driver> driver;
  const Status status = cuda::Driver::open("libpthread.so.0", &driver);
  EXPECT_NE(status.message.find("has no cuInit"), std::string::npos) << status.message;
}

TEST_F(CudaDeviceTest, WithoutADeviceThereIsNoCuda) {
  cuda_.set_devices(0);
  std::shared_ptr<cuda::Driver> driver;
  EXPECT_STREQ(cuda::Driver::open(DUALPATH_STANDIN_CUDA, &driver).code, "CUDA_UNAVAILABLE");
  cuda_.set_devices(1);
  cuda_.fail("cuInit", 1, 100);
  const Status status = cuda::Driver::open(DUALPATH_STANDIN_CUDA, &driver);
  EXPECT_NE(status.message.find("finds no device: unknown error (100)"), std::string::npos) << status.message;
}

TEST_F(CudaDeviceTest, IsFoundByOrdinalAndByPciAddress) {
  EXPECT_EQ(cuda_.device(1)->facts().pci_address, "0000:3c:00.0");
  std::shared_ptr<cuda::Device> device;
  ASSERT_TRUE(cuda::Device::open(cuda_.driver, std::string("0000:3c:00.0"), &device).ok());
  EXPECT_EQ(device->facts().ordinal, 1);
  EXPECT_EQ(device->name(), "stand-in CUDA device 1 (no GPU)");
  Status status = cuda::Device::open(cuda_.driver, 2, &device);
  EXPECT_STREQ(status.code, "INVALID_ARGUMENT");
  EXPECT_NE(status.message.find("no CUDA device 2; 0 to 1"), std::string::npos);
  status = cuda::Device::open(cuda_.driver, std::string("0000:ff:00.0"), &device);
  EXPECT_NE(status.message.find("there are 0000:3b:00.0, 0000:3c:00.0"), std::string::npos) << status.message;
}

TEST_F(CudaDeviceTest, ItsContextIsGivenBack) {
  cuda_.device();
  EXPECT_EQ(cuda_.calls("cuDevicePrimaryCtxRetain"), 1u);
  EXPECT_EQ(cuda_.calls("cuDevicePrimaryCtxRelease_v2"), 1u);
  EXPECT_EQ(cuda_.calls("cuCtxPushCurrent_v2"), cuda_.calls("cuCtxPopCurrent_v2"));
}

TEST_F(CudaDeviceTest, TheFlushIsWhatItsAttributesDemand) {
  EXPECT_EQ(cuda_.device()->remote_flush(), RemoteFlush::kByHost);
  cuda_.set_attribute(0, cuda::kGpuDirectRdmaWritesOrdering, cuda::kOrderingOwner);
  EXPECT_EQ(cuda_.device()->remote_flush(), RemoteFlush::kNotNeeded);
  cuda_.set_attribute(0, cuda::kGpuDirectRdmaWritesOrdering, 0);
  cuda_.set_attribute(0, cuda::kGpuDirectRdmaFlushWritesOptions, cuda::kFlushOptionMemops);
  EXPECT_EQ(cuda_.device()->remote_flush(), RemoteFlush::kByStreamOnly);
}

TEST_F(CudaDeviceTest, FlushesAreCountedAndTheirFailureTold) {
  const auto device = cuda_.device();
  EXPECT_TRUE(device->flush_remote_writes().ok());
  EXPECT_EQ(cuda_.calls("cuFlushGPUDirectRDMAWrites"), 1u);
  cuda_.fail("cuFlushGPUDirectRDMAWrites", 1, 999);
  const Status status = device->flush_remote_writes();
  EXPECT_STREQ(status.code, "CUDA_FAILED");
  EXPECT_NE(status.message.find("stand-in CUDA device 0 (no GPU) (0000:3b:00.0)"), std::string::npos);
  EXPECT_EQ(device->flushes(), 1u);
}

TEST_F(CudaDeviceTest, ArenasAreAllocatedThereAndFreed) {
  std::shared_ptr<Arena> arena;
  ASSERT_TRUE(Arena::of_device("hbm", cuda_.device(), 100'000, &arena).ok());
  EXPECT_EQ(arena->kind(), ArenaKind::kCuda);
  EXPECT_STREQ(arena_kind_name(arena->kind()), "cuda");
  EXPECT_EQ(cuda_.calls("cuPointerSetAttribute"), 1u);  // SYNC_MEMOPS
  EXPECT_EQ(cuda_.live_allocations(), 1);
  arena.reset();
  EXPECT_EQ(cuda_.live_allocations(), 0);
  cuda_.fail("cuMemAlloc_v2", 1, cuda::kOutOfMemory);
  Status status = Arena::of_device("hbm", cuda_.device(), 100'000, &arena);
  EXPECT_STREQ(status.code, "MEMORY_LIMIT");
  EXPECT_NE(status.message.find("allocating 100000 bytes"), std::string::npos) << status.message;
  EXPECT_STREQ(Arena::of_device("hbm", cuda_.device(), 0, &arena).code, "INVALID_ARGUMENT");
}

TEST_F(CudaDeviceTest, AdoptsWhatIsItsOwnAndNothingElse) {
  const auto device = cuda_.device();
  const auto other = cuda_.device(1);
  std::shared_ptr<Arena> arena;
  ASSERT_TRUE(Arena::of_device("engine's", device, 64 << 10, &arena).ok());
  const uint64_t address = reinterpret_cast<uint64_t>(arena->base());
  std::shared_ptr<Region> region;
  ASSERT_TRUE(Region::of_device("kv", device, address + 123, 1000, &region).ok());
  EXPECT_EQ(region->device(), device);
  EXPECT_EQ(region->kind(), ArenaKind::kCuda);
  EXPECT_EQ(region->slices().at(0)->device(), device);
  const auto message = [&](const std::shared_ptr<cuda::Device>& of, uint64_t at, uint64_t bytes) {
    return Region::of_device("kv", of, at, bytes, &region).message;
  };
  EXPECT_NE(message(device, 0, 1).find("neither may be 0"), std::string::npos);
  EXPECT_NE(message(device, address, 0).find("neither may be 0"), std::string::npos);
  EXPECT_NE(message(other, address, 1).find("of CUDA device 0, not of 1; adopt it with that device"),
            std::string::npos);
  EXPECT_NE(message(device, address + 1, 64 << 10).find("its allocation has 65536 bytes from"),
            std::string::npos);
  char on_the_host = 0;
  EXPECT_NE(
      message(device, reinterpret_cast<uint64_t>(&on_the_host), 1).find("is no memory of a CUDA device"),
      std::string::npos);
}

// One allocation, so that host and device are told apart by which of them the CPU may touch.
TEST_F(CudaDeviceTest, CopiesRowsBothWaysInOrder) {
  const auto device = cuda_.device();
  std::shared_ptr<Arena> arena;
  ASSERT_TRUE(Arena::of_device("hbm", device, 4096, &arena).ok());
  const uint64_t there = reinterpret_cast<uint64_t>(arena->base());
  std::vector<std::byte> here(4096);
  for (size_t i = 0; i < here.size(); i++) here[i] = static_cast<std::byte>(i * 7);
  std::vector<std::byte> back(4096);
  ASSERT_TRUE(device->register_host("here", here.data(), here.size()).ok());
  std::unique_ptr<DeviceStream> stream;
  ASSERT_TRUE(device->open_stream(nullptr, &stream).ok());
  cuda_.set_delay_us(2000);
  const auto at = [](std::vector<std::byte>& of) { return reinterpret_cast<uint64_t>(of.data()); };
  ASSERT_TRUE(stream->copy({there, at(here), 100, 100, 100, 8}).ok());       // together: one copy
  ASSERT_TRUE(stream->copy({there + 1000, at(here), 64, 48, 32, 10}).ok());  // rows
  ASSERT_TRUE(stream->copy({at(back), there, 2000, 2000, 2000, 1}).ok());
  uint32_t mark;
  ASSERT_TRUE(stream->mark(&mark).ok());
  Status why;
  EXPECT_EQ(stream->poll(mark, &why), DeviceStream::Progress::kPending);
  EXPECT_EQ(wait(*stream, mark, &why), DeviceStream::Progress::kArrived);
  EXPECT_EQ(memcmp(back.data(), here.data(), 800), 0);
  for (size_t r = 0; r < 10; r++) EXPECT_EQ(memcmp(&back[1000 + r * 64], &here[r * 48], 32), 0);
  EXPECT_EQ(cuda_.calls("cuMemcpyAsync"), 2u);
  EXPECT_EQ(cuda_.calls("cuMemcpy2DAsync_v2"), 1u);
  EXPECT_EQ(cuda_.pageable_copies(), 1u);  // into `back`
  device->unregister_host(here.data());
}

TEST_F(CudaDeviceTest, AFailureComesFromTheCallOrFromItsMark) {
  const auto device = cuda_.device();
  std::unique_ptr<DeviceStream> stream;
  ASSERT_TRUE(device->open_stream(nullptr, &stream).ok());
  std::byte a[8], b[8];
  cuda_.fail("cuMemcpyAsync", 1, 700);
  const CopyRows rows{reinterpret_cast<uint64_t>(a), reinterpret_cast<uint64_t>(b), 8, 8, 8, 1};
  const Status refused = stream->copy(rows);
  EXPECT_NE(refused.message.find("a copy of 1 rows of 8 bytes on stand-in"), std::string::npos);
  ASSERT_TRUE(stream->copy(rows).ok());
  uint32_t mark;
  ASSERT_TRUE(stream->mark(&mark).ok());
  cuda_.fail("cuEventQuery", 1, 700);
  Status why;
  EXPECT_EQ(wait(*stream, mark, &why), DeviceStream::Progress::kFailed);
  EXPECT_STREQ(why.code, "CUDA_FAILED");
  uint32_t marks[DeviceStream::kMaxMarks + 1];
  for (uint32_t i = 0; i < DeviceStream::kMaxMarks; i++) ASSERT_TRUE(stream->mark(&marks[i]).ok());
  EXPECT_STREQ(stream->mark(&marks[DeviceStream::kMaxMarks]).code, "CAPACITY_EXHAUSTED");
}

TEST_F(CudaDeviceTest, HostMemoryIsRegisteredOnceAndGivenBackWithItsLastUser) {
  const auto device = cuda_.device();
  std::vector<std::byte> here(100);
  ASSERT_TRUE(device->register_host("here", here.data(), here.size()).ok());
  ASSERT_TRUE(device->register_host("here", here.data(), here.size()).ok());
  EXPECT_EQ(cuda_.calls("cuMemHostRegister_v2"), 1u);
  ASSERT_TRUE(cuda_.device(1)->register_host("here", here.data(), here.size()).ok()) << "by somebody else";
  device->unregister_host(here.data());
  EXPECT_EQ(cuda_.calls("cuMemHostUnregister"), 0u);
  device->unregister_host(here.data());
  device->unregister_host(here.data());
  EXPECT_EQ(cuda_.calls("cuMemHostUnregister"), 1u);
  cuda_.fail("cuMemHostRegister_v2", 1, cuda::kOutOfMemory);
  const Status status = device->register_host("here", here.data(), here.size());
  EXPECT_STREQ(status.code, "MEMORY_LIMIT");
  EXPECT_NE(status.message.find("RLIMIT_MEMLOCK is"), std::string::npos);
}

TEST_F(CudaDeviceTest, ExportsWholePagesAroundWhatIsAsked) {
  const auto device = cuda_.device();
  std::shared_ptr<Arena> arena;
  ASSERT_TRUE(Arena::of_device("hbm", device, 5 * 4096, &arena).ok());
  const uint64_t address = reinterpret_cast<uint64_t>(arena->base());
  DmaBuf exported;
  ASSERT_TRUE(device->export_dmabuf("kv", address + 4096 + 100, 5000, &exported).ok());
  EXPECT_EQ(exported.offset, 100u);
  struct stat facts {};
  fstat(exported.fd, &facts);
  EXPECT_EQ(facts.st_size, 2 * 4096);
  close(exported.fd);
  cuda_.fail("cuMemGetHandleForAddressRange", 1, cuda::kNotSupported);
  Status status = device->export_dmabuf("kv", address, 4096, &exported);
  EXPECT_STREQ(status.code, "CUDA_UNAVAILABLE");
  EXPECT_NE(status.message.find("CUDA_ERROR_NOT_SUPPORTED (801)"), std::string::npos);
  cuda_.set_attribute(0, cuda::kDmaBufSupported, 0);
  status = cuda_.device()->export_dmabuf("kv", address, 4096, &exported);
  EXPECT_NE(status.message.find("the device does not support it"), std::string::npos);
}

TEST_F(CudaDeviceTest, AGeometryIsOfOneDevice) {
  std::shared_ptr<Arena> first, second;
  ASSERT_TRUE(Arena::of_device("first", cuda_.device(), 4096, &first).ok());
  ASSERT_TRUE(Arena::of_device("second", cuda_.device(1), 4096, &second).ok());
  GeometryOptions options;
  options.arena = first;
  options.more_arenas = {second};
  options.slots = 2;
  options.slots_per_arena = 1;
  options.block_tokens = 1;
  options.slot_stride_bytes = 64;
  options.layers = {{0, {{0, 64, 64, 0}}}};
  std::shared_ptr<const Geometry> geometry;
  EXPECT_NE(Geometry::create(options, &geometry).message.find("are not of one device"), std::string::npos);
  options.more_arenas = {first};
  ASSERT_TRUE(Geometry::create(options, &geometry).ok());
  EXPECT_EQ(geometry->device(), first->device());
  PagedOptions pages;
  pages.block_tokens = 1;
  pages.tables = {{"kv", 4, 1}};
  pages.layers = {{{0, 0, {{Region::of(first), 0, 64, 64, 32}, {Region::of(second), 0, 64, 64, 32}}}}};
  EXPECT_NE(Geometry::create_paged(pages, &geometry).message.find("are not of one device"),
            std::string::npos);
  pages.layers[0][0].parts.pop_back();
  ASSERT_TRUE(Geometry::create_paged(pages, &geometry).ok());
  EXPECT_EQ(geometry->device(), first->device());
}

}  // namespace
}  // namespace dualpath::test
