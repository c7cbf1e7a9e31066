// An emulated GPU: lanes (streams) of kernels that take modelled time, wait on and bump the counters
// of a door, and whose bodies write and check emulated KV. Deadlines are absolute: a kernel whose
// wait held before its predecessor's deadline starts at that deadline, however late the thread woke,
// so a run of kernels takes the sum of its durations.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/live.h"
#include "core/waker.h"
#include "emulation/kv_pattern.h"
#include "transfer/door.h"

namespace dualpath::emulation {

// The KV one request brings into a kernel.
struct KernelBody {
  std::shared_ptr<const Geometry> geometry;
  std::vector<uint32_t> slots;  // entries_per_block() of the geometry a block
  uint32_t first_block = 0;
  std::shared_ptr<const std::vector<uint64_t>> seeds;
  TokenRange check{0, 0};  // KV that must be there already
  TokenRange write{0, 0};  // KV this kernel computes
  uint32_t window_end = 0;
};

// One kernel a layer (steps = layers), or one over all layers (steps = 1, all_layers).
struct Launch {
  uint32_t lane = 0;
  uint16_t steps = 1;
  bool all_layers = false;
  uint64_t step_duration_ns = 0;
  dp_wait wait[2] = {{DP_NONE, 0, 0, 0, 0}, {DP_NONE, 0, 0, 0, 0}};
  dp_signal signal[2] = {{DP_NONE, 0, 0, 0, 0, 0}, {DP_NONE, 0, 0, 0, 0, 0}};
  std::vector<KernelBody> bodies;
  uint32_t id = 0;         // given by launch()
  bool cancelled = false;  // by cancel()
};

struct StreamStatistics {
  uint64_t kernels = 0;
  uint64_t modelled_ns = 0;  // sum of durations
  uint64_t checked_bytes = 0;
  uint64_t mismatched_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t overruns = 0;         // kernels whose body took longer than the modelled time
  uint64_t lateness_sum_ns = 0;  // of the bump after its deadline
  uint64_t lateness_max_ns = 0;
  std::array<uint64_t, 32> lateness_log2_ns{};  // bucket b: lateness in [2^b, 2^(b+1)) ns
};

class EmulatedGpu {
 public:
  static constexpr uint32_t kMaxLanes = 1024;
  static constexpr size_t kMaxQueued = 4096;  // launches waiting in all lanes

  EmulatedGpu(std::shared_ptr<Door> door, std::shared_ptr<Waker> waker, uint32_t lanes);
  ~EmulatedGpu() { stop(); }

  // Ends the thread; kernels queued and not begun never run. Idempotent.
  void stop();
  // Its number, or 0 when stopped, when the queue is full, the lane does not exist or there are no steps.
  uint32_t launch(Launch launch);
  // Kernels of the launch that have not begun neither wait nor touch memory nor take time any more; they
  // still bump their counters, so whoever waits for the last one knows that the launch is over.
  void cancel(uint32_t id);
  StreamStatistics statistics();

 private:
  struct Lane {
    std::deque<Launch> queue;
    uint16_t step = 0;
    bool running = false;
    bool chained = false;      // the next kernel was queued when the last one ended
    uint64_t duration_ns = 0;  // of the running kernel, or of the last one
    uint64_t deadline_ns = 0;
  };

  void run();
  uint64_t advance(Lane& lane, bool* progress);
  void take_incoming();
  bool ready(const Launch& launch, uint16_t step);
  void run_bodies(Launch& launch, uint16_t step);
  void finish(const Lane& lane);

  std::shared_ptr<Door> door_;
  std::shared_ptr<Waker> waker_;
  std::vector<Lane> lanes_;
  std::mutex mutex_;  // guards incoming_, cancelling_, last_id_ and statistics_
  std::vector<Launch> incoming_;
  std::vector<uint32_t> cancelling_;
  uint32_t last_id_ = 0;
  std::atomic<size_t> queued_{0};
  StreamStatistics statistics_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
  Live<LiveKind::kStream> live_;
};

}  // namespace dualpath::emulation
