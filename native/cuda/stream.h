// A non-blocking stream of a device and events on it: copies that this package queues wait for nothing that
// the engine's own streams do.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "cuda/device.h"

namespace dualpath::cuda {

class CopyStream final : public DeviceStream {
 public:
  static Status open(std::shared_ptr<Device> device, std::function<void()> reached,
                     std::unique_ptr<DeviceStream>* out);
  ~CopyStream() override;
  CopyStream(const CopyStream&) = delete;
  CopyStream& operator=(const CopyStream&) = delete;

  Status copy(const CopyRows& rows) override;
  uint32_t marks_left() const override { return static_cast<uint32_t>(free_.size()); }
  Status mark(uint32_t* mark) override;
  Progress poll(uint32_t mark, Status* why) override;

 private:
  CopyStream(std::shared_ptr<Device> device, std::function<void()> reached)
      : device_(std::move(device)), reached_(std::move(reached)) {}
  const std::shared_ptr<Device> device_;
  const std::function<void()> reached_;
  Stream stream_ = nullptr;
  std::array<Event, kMaxMarks> events_{};
  std::vector<uint32_t> free_;
};

}  // namespace dualpath::cuda
