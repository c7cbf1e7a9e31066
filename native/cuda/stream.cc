#include "cuda/stream.h"

#include "cuda/scope.h"

namespace dualpath::cuda {
namespace {

constexpr uint64_t kMaxPitch = 0x7fffffff;  // CU_DEVICE_ATTRIBUTE_MAX_PITCH of every device

}  // namespace

Status CopyStream::open(std::shared_ptr<Device> device, std::function<void()> reached,
                        std::unique_ptr<DeviceStream>* out) {
  auto stream = std::unique_ptr<CopyStream>(new CopyStream(device, std::move(reached)));
  const Scope scope(device->api(), device->context_);
  Result result = scope.result();
  if (result == kSuccess) result = device->api().StreamCreate(&stream->stream_, kStreamNonBlocking);
  stream->free_.reserve(kMaxMarks);
  for (uint32_t i = kMaxMarks; i != 0 && result == kSuccess; i--) {
    result = device->api().EventCreate(&stream->events_[i - 1], kEventDisableTiming);
    stream->free_.push_back(i - 1);
  }
  if (result != kSuccess) return device->failed("a stream for copies", result);
  *out = std::move(stream);
  return {};
}

CopyStream::~CopyStream() {
  const Functions& api = device_->api();
  const Scope scope(api, device_->context_);
  if (stream_ != nullptr) {
    api.StreamSynchronize(stream_);
    api.StreamDestroy(stream_);
  }
  for (const Event event : events_) {
    if (event != nullptr) api.EventDestroy(event);
  }
}

Status CopyStream::copy(const CopyRows& rows) {
  const Functions& api = device_->api();
  const Scope scope(api, device_->context_);
  Result result = scope.result();
  const bool together = rows.rows == 1 || (rows.to_stride == rows.bytes && rows.from_stride == rows.bytes);
  if (result != kSuccess) return device_->failed("a copy", result);
  if (together) {
    result = api.MemcpyAsync(rows.to, rows.from, size_t{rows.bytes} * rows.rows, stream_);
  } else if (rows.to_stride <= kMaxPitch && rows.from_stride <= kMaxPitch) {
    Copy2d copy{};
    copy.source_type = copy.target_type = kMemoryTypeUnified;
    copy.source_device = rows.from;
    copy.target_device = rows.to;
    copy.source_pitch = rows.from_stride;
    copy.target_pitch = rows.to_stride;
    copy.width_bytes = rows.bytes;
    copy.height = rows.rows;
    result = api.Memcpy2DAsync(&copy, stream_);
  } else {
    for (uint32_t i = 0; i < rows.rows && result == kSuccess; i++) {
      result = api.MemcpyAsync(rows.to + i * rows.to_stride, rows.from + i * rows.from_stride, rows.bytes,
                               stream_);
    }
  }
  if (result == kSuccess) return {};
  return device_->failed(
      "a copy of " + std::to_string(rows.rows) + " rows of " + std::to_string(rows.bytes) + " bytes", result);
}

Status CopyStream::mark(uint32_t* mark) {
  if (free_.empty()) {
    return Status::error("CAPACITY_EXHAUSTED", "more than " + std::to_string(kMaxMarks) +
                                                   " copies are under way on a stream; wait for one");
  }
  const Scope scope(device_->api(), device_->context_);
  const Functions& api = device_->api();
  Result result = scope.result();
  if (result == kSuccess) result = api.EventRecord(events_[free_.back()], stream_);
  if (result == kSuccess && reached_ != nullptr) {
    // It makes no call to CUDA, as a host function must not. The stream is synchronised before this goes.
    const HostFunction tell = [](void* self) { static_cast<CopyStream*>(self)->reached_(); };
    result = api.LaunchHostFunc(stream_, tell, this);
  }
  if (result != kSuccess) return device_->failed("an event", result);
  *mark = free_.back();
  free_.pop_back();
  return {};
}

DeviceStream::Progress CopyStream::poll(uint32_t mark, Status* why) {
  const Scope scope(device_->api(), device_->context_);
  const Result result =
      scope.result() != kSuccess ? scope.result() : device_->api().EventQuery(events_[mark]);
  if (result == kNotReady) return Progress::kPending;
  free_.push_back(mark);
  if (result == kSuccess) return Progress::kArrived;
  *why = device_->failed("a copy", result);
  return Progress::kFailed;
}

}  // namespace dualpath::cuda
