// A GPU by its ordinal or PCI address, with its primary context retained: the one that an engine's own CUDA
// runtime uses, so that pointers are good in both. Any thread may call; each call makes the context current
// for its own time only.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "cuda/driver.h"
#include "memory/device_memory.h"

namespace dualpath::cuda {

struct DeviceFacts {
  int ordinal = 0;
  std::string name;
  std::string pci_address;
  int driver_version = 0;  // 12040: CUDA 12.4
  bool rdma = false;       // GPUDirect RDMA
  bool dma_buf = false;    // device and driver
  RemoteFlush flush = RemoteFlush::kNotNeeded;
};

class Device final : public DeviceMemory, public std::enable_shared_from_this<Device> {
 public:
  // INVALID_ARGUMENT for an ordinal or PCI address there is not, CUDA_FAILED.
  static Status open(std::shared_ptr<Driver> driver, int ordinal, std::shared_ptr<Device>* out);
  static Status open(std::shared_ptr<Driver> driver, const std::string& pci_address,
                     std::shared_ptr<Device>* out);
  ~Device() override;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const DeviceFacts& facts() const { return facts_; }
  const Driver& driver() const { return *driver_; }
  uint64_t flushes() const { return flushes_.load(std::memory_order_relaxed); }

  std::shared_ptr<DeviceMemory> shared() override { return shared_from_this(); }
  const std::string& name() const override { return facts_.name; }
  const std::string& pci_address() const override { return facts_.pci_address; }
  Status allocate(const std::string& name, size_t bytes, uint64_t* address) override;
  void free(uint64_t address) override;
  Status adopt(const std::string& name, uint64_t address, uint64_t bytes) override;
  Status register_host(const std::string& name, void* base, size_t bytes) override;
  void unregister_host(void* base) override;
  Status open_stream(std::function<void()> reached, std::unique_ptr<DeviceStream>* out) override;
  Status export_dmabuf(const std::string& name, uint64_t address, uint64_t bytes, DmaBuf* out) override;
  RemoteFlush remote_flush() const override { return facts_.flush; }
  Status flush_remote_writes() override;

 private:
  friend class CopyStream;
  explicit Device(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
  static Status retain(std::shared_ptr<Driver> driver, Ordinal handle, std::shared_ptr<Device>* out);
  const Functions& api() const { return driver_->api(); }
  Status failed(const std::string& what, Result result) const;
  void read_facts(Ordinal handle);
  Status sync_memops(const std::string& name, uint64_t address);

  const std::shared_ptr<Driver> driver_;
  Ordinal handle_ = 0;
  Context context_ = nullptr;
  DeviceFacts facts_;
  std::atomic<uint64_t> flushes_{0};
  std::mutex mutex_;
  std::map<void*, uint32_t> host_;  // registered by us: how often
};

}  // namespace dualpath::cuda
