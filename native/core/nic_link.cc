#include "core/nic_link.h"

#include <algorithm>
#include <utility>

namespace dualpath {
namespace {

constexpr const char* kClassNames[kTrafficClasses] = {"inference", "kv", "control"};

}  // namespace

Status NicLink::create(const NicLinkOptions& options, std::shared_ptr<NicLink>* out) {
  Status status = VlArbiter::check(options.arbitration);
  if (!status.ok()) return Status::error(status.code, "link '" + options.name + "': " + status.message);
  const VlArbiter arbiter(options.arbitration);
  for (uint32_t c = 0; c < kTrafficClasses; c++) {
    if (options.lanes[c] < VlArbiter::kLanes && arbiter.serves(options.lanes[c])) continue;
    return Status::error("INVALID_ARGUMENT", "link '" + options.name + "': traffic class " + kClassNames[c] +
                                                 " has virtual lane " + std::to_string(options.lanes[c]) +
                                                 ", to which neither table gives any weight: it would never "
                                                 "send; give the lane a weight or the class another lane");
  }
  out->reset(new NicLink(options));
  return {};
}

NicLink::NicLink(const NicLinkOptions& options) : options_(options), state_(options.arbitration) {
  for (const uint8_t lane : options_.lanes) {
    if (lanes_[lane].messages == nullptr)
      lanes_[lane].messages = std::make_unique<std::array<Message, kMaxMessages>>();
  }
}

NicLink::NicLink(std::string name, uint64_t bytes_per_s)
    : NicLink(NicLinkOptions{std::move(name), bytes_per_s, default_arbitration(), {1, 2, 3}}) {}

uint64_t NicLink::duration_ns(uint64_t bytes) const {
  if (options_.bytes_per_s == 0) return 0;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(bytes) * 1'000'000'000u / options_.bytes_per_s);
}

// The packet that begins at the state's clock, which then stands at its end. False when nothing waits.
bool NicLink::send_next(State& state) const {
  VlArbiter::Heads heads{};
  for (uint32_t l = 0; l < VlArbiter::kLanes; l++) {
    const Lane& lane = lanes_[l];
    if (state.head[l] == lane.tail) continue;
    const uint64_t left = (*lane.messages)[state.head[l] % kMaxMessages].end - state.sent[l];
    heads[l] = static_cast<uint32_t>(std::min<uint64_t>(left, VlArbiter::kPacketBytes));
  }
  const uint32_t l = state.arbiter.next(heads);
  if (l == VlArbiter::kLanes) return false;
  const Message& message = (*lanes_[l].messages)[state.head[l] % kMaxMessages];
  state.sent[l] += heads[l];
  if (state.sent[l] == message.end) state.head[l]++;
  const uint64_t time = uint64_t{heads[l]} * 1'000'000'000u + state.remainder;
  state.clock += time / options_.bytes_per_s;
  state.remainder = time % options_.bytes_per_s;
  state.last_lane = l;
  state.last_bytes = heads[l];
  state.last_class = message.traffic_class;
  return true;
}

// Begins what can begin before `now`. Whoever queues something at `now` calls this first, so that it does not
// take part in what was decided earlier.
void NicLink::advance(uint64_t now) {
  while (state_.clock < now) {
    const uint64_t begin = state_.clock;
    if (!send_next(state_)) {
      state_.clock = now;  // idle
      state_.remainder = 0;
      return;
    }
    statistics_.busy_ns += state_.clock - begin;
    statistics_.classes[state_.last_class].bytes += state_.last_bytes;
  }
}

uint64_t NicLink::enqueue(uint32_t traffic_class, uint64_t bytes, uint64_t now) {
  std::lock_guard lock(mutex_);
  auto& of_class = statistics_.classes[traffic_class];
  of_class.transfers++;
  statistics_.transfers++;
  statistics_.bytes += bytes;
  if (options_.bytes_per_s == 0) {
    of_class.bytes += bytes;
    return 0;
  }
  advance(now);
  const uint32_t l = lane_of(traffic_class);
  Lane& lane = lanes_[l];
  lane.end += bytes;
  if (bytes == 0) return lane.end;
  if (lane.tail - state_.head[l] == kMaxMessages) {
    (*lane.messages)[(lane.tail - 1) % kMaxMessages].end = lane.end;
    statistics_.joined++;
  } else {
    (*lane.messages)[lane.tail++ % kMaxMessages] = {lane.end, static_cast<uint8_t>(traffic_class)};
  }
  return lane.end;
}

bool NicLink::crossed(uint32_t traffic_class, uint64_t position, uint64_t now) {
  if (options_.bytes_per_s == 0) return true;
  std::lock_guard lock(mutex_);
  advance(now);
  return ended(lane_of(traffic_class), now) >= position;
}

uint64_t NicLink::forecast(uint32_t traffic_class, uint64_t position) {
  if (options_.bytes_per_s == 0) return 0;
  std::lock_guard lock(mutex_);
  return forecast_lane(lane_of(traffic_class), position);
}

uint64_t NicLink::ended(uint32_t lane, uint64_t now) const {
  const bool on_the_wire = state_.clock > now && state_.last_lane == lane;
  return state_.sent[lane] - (on_the_wire ? state_.last_bytes : 0);
}

uint64_t NicLink::forecast_lane(uint32_t lane, uint64_t position) const {
  if (ended(lane, 0) >= position) return 0;
  State ahead = state_;
  while (ahead.sent[lane] < position && send_next(ahead)) {
  }
  return ahead.clock;
}

bool NicLink::accepts(uint32_t traffic_class, uint64_t now, uint64_t lookahead_ns, uint64_t* when) {
  if (options_.bytes_per_s == 0) return true;
  std::lock_guard lock(mutex_);
  advance(now);
  const uint32_t l = lane_of(traffic_class);
  const uint64_t backlog = lanes_[l].end - state_.sent[l];
  if (duration_ns(backlog) <= lookahead_ns) return true;
  const uint64_t ahead = static_cast<uint64_t>(static_cast<unsigned __int128>(lookahead_ns) *
                                               options_.bytes_per_s / 1'000'000'000u);
  *when = forecast_lane(l, lanes_[l].end - ahead);
  return false;
}

NicLinkStatistics NicLink::statistics(uint64_t now) {
  std::lock_guard lock(mutex_);
  if (options_.bytes_per_s != 0) advance(now);
  return statistics_;
}

uint64_t NicLink::bytes() {
  std::lock_guard lock(mutex_);
  return statistics_.bytes;
}

}  // namespace dualpath
