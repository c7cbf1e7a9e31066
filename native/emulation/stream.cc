#include "emulation/stream.h"

#include <sys/prctl.h>

#include <algorithm>
#include <bit>

namespace dualpath::emulation {

EmulatedGpu::EmulatedGpu(std::shared_ptr<Door> door, std::shared_ptr<Waker> waker, uint32_t lanes)
    : door_(std::move(door)), waker_(std::move(waker)), lanes_(lanes) {
  incoming_.reserve(64);
  thread_ = std::thread([this] { run(); });
}

void EmulatedGpu::stop() {
  stop_.store(true, std::memory_order_seq_cst);
  waker_->ring();
  if (thread_.joinable()) thread_.join();
}

uint32_t EmulatedGpu::launch(Launch launch) {
  if (launch.lane >= lanes_.size() || launch.steps == 0) return 0;
  if (stop_.load(std::memory_order_relaxed)) return 0;
  if (queued_.fetch_add(1, std::memory_order_relaxed) >= kMaxQueued) {
    queued_.fetch_sub(1, std::memory_order_relaxed);
    return 0;
  }
  uint32_t id;
  {
    std::lock_guard lock(mutex_);
    if (++last_id_ == 0) last_id_ = 1;
    id = launch.id = last_id_;
    incoming_.push_back(std::move(launch));
  }
  waker_->wake();
  return id;
}

void EmulatedGpu::cancel(uint32_t id) {
  {
    std::lock_guard lock(mutex_);
    cancelling_.push_back(id);
  }
  waker_->wake();
}

StreamStatistics EmulatedGpu::statistics() {
  std::lock_guard lock(mutex_);
  return statistics_;
}

void EmulatedGpu::take_incoming() {
  std::lock_guard lock(mutex_);
  for (Launch& launch : incoming_) {
    Lane& lane = lanes_[launch.lane];
    lane.queue.push_back(std::move(launch));
  }
  incoming_.clear();
  for (const uint32_t id : cancelling_) {
    for (Lane& lane : lanes_) {
      for (Launch& launch : lane.queue) launch.cancelled |= launch.id == id;
    }
  }
  cancelling_.clear();
}

void EmulatedGpu::run() {
  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  prctl(PR_SET_NAME, "dp-emulated-gpu", 0UL, 0UL, 0UL);
  bool armed = false;
  while (!stop_.load(std::memory_order_seq_cst)) {
    take_incoming();
    bool progress = false;
    uint64_t next = kNever;
    for (Lane& lane : lanes_) next = std::min(next, advance(lane, &progress));
    if (progress) {
      if (armed) waker_->disarm();
      armed = false;
      continue;
    }
    // Arm, look once more, sleep: a counter bumped in between is seen by the second look.
    if (!armed) {
      waker_->arm();
      armed = true;
      continue;
    }
    waker_->sleep(next);
    armed = false;
  }
}

bool EmulatedGpu::ready(const Launch& launch, uint16_t step) {
  if (launch.cancelled) return true;
  for (const dp_wait& wait : launch.wait) {
    if (wait.counter == DP_NONE || step < wait.skip_steps) continue;
    const uint64_t value = wait.value + static_cast<uint64_t>(step) * wait.value_step;
    if (door_->counter(wait.counter + step * wait.counter_step) < value) return false;
  }
  return true;
}

void EmulatedGpu::run_bodies(Launch& launch, uint16_t step) {
  PatternCheck total;
  uint64_t written = 0;
  for (const KernelBody& body : launch.bodies) {
    const PatternTarget target{body.geometry.get(), body.slots.data(),
                               static_cast<uint32_t>(body.slots.size()) / body.geometry->entries_per_block(),
                               body.first_block};
    const uint32_t first = launch.all_layers ? 0 : step;
    const uint32_t last = launch.all_layers ? body.geometry->layers() : step + 1u;
    for (uint32_t layer = first; layer < last; layer++) {
      const PatternCheck check =
          check_pattern(target, layer, body.check, body.window_end, body.seeds->data());
      total.checked_bytes += check.checked_bytes;
      total.mismatched_bytes += check.mismatched_bytes;
      write_pattern(target, layer, body.write, body.seeds->data());
      for (const Plane& plane : body.geometry->planes(layer)) {
        written += static_cast<uint64_t>(plane.bytes_per_token) * (body.write.end - body.write.begin);
      }
    }
  }
  std::lock_guard lock(mutex_);
  statistics_.checked_bytes += total.checked_bytes;
  statistics_.mismatched_bytes += total.mismatched_bytes;
  statistics_.written_bytes += written;
}

void EmulatedGpu::finish(const Lane& lane) {
  const Launch& launch = lane.queue.front();
  const uint16_t step = lane.step;
  const uint64_t late = now_ns() - lane.deadline_ns;
  {
    std::lock_guard lock(mutex_);
    statistics_.kernels++;
    statistics_.modelled_ns += lane.duration_ns;
    statistics_.lateness_sum_ns += late;
    statistics_.lateness_max_ns = std::max(statistics_.lateness_max_ns, late);
    statistics_.lateness_log2_ns[std::min<int>(31, std::bit_width(late | 1) - 1)]++;
  }
  for (const dp_signal& signal : launch.signal) {
    if (signal.counter == DP_NONE) continue;
    const uint32_t index = signal.counter + step * signal.counter_step;
    if (signal.mode == DP_SIGNAL_ADD) {
      door_->counter_add(index, signal.value);
    } else {
      door_->counter_raise(index, signal.value + step + 1u);
    }
  }
  door_->notify();  // now: the body of the next kernel may take a while
}

// Moves one lane as far as time and counters allow; returns when it next needs the thread.
uint64_t EmulatedGpu::advance(Lane& lane, bool* progress) {
  // A lane with kernels of no duration could run for ever, to the harm of the others.
  for (int budget = 64; budget > 0 && !lane.queue.empty(); budget--) {
    Launch& launch = lane.queue.front();
    if (!lane.running) {
      if (!ready(launch, lane.step)) {
        lane.chained = false;  // it starts when the wait comes true, not at the last deadline
        return kNever;
      }
      const uint64_t start = lane.chained ? lane.deadline_ns : now_ns();
      lane.duration_ns = launch.cancelled ? 0 : launch.step_duration_ns;
      lane.deadline_ns = start + lane.duration_ns;
      lane.running = true;
      if (!launch.cancelled && !launch.bodies.empty()) {
        run_bodies(launch, lane.step);
        if (now_ns() > lane.deadline_ns) {
          std::lock_guard lock(mutex_);
          statistics_.overruns++;
        }
      }
    }
    if (now_ns() < lane.deadline_ns) return lane.deadline_ns;
    lane.running = false;
    *progress = true;
    finish(lane);
    if (++lane.step == launch.steps) {
      lane.step = 0;
      lane.queue.pop_front();
      queued_.fetch_sub(1, std::memory_order_relaxed);
    }
    lane.chained = !lane.queue.empty();
  }
  return lane.queue.empty() ? kNever : 0;
}

}  // namespace dualpath::emulation
