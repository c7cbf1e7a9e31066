#include "shared/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include <algorithm>

namespace dualpath::shared {
namespace {

// A descriptor of another process of the same user, opened anew: a memfd or an end of a pipe.
Status open_of(const std::string& peer, int pid, int fd, int flags, store::ScopedFd* out) {
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(fd);
  out->reset(open(path.c_str(), flags | O_CLOEXEC));
  if (out->valid()) return {};
  const int error = errno;
  const bool gone = error == ENOENT || error == ESRCH;
  return Status::error("PEER_LOST",
                       "memory of engine '" + peer + "' (" + path + ") cannot be opened: " + strerror(error) +
                           (gone ? "; it has ended" : "; run both engines as one user, in one PID namespace"),
                       error);
}

Status invalid(const std::string& peer, const std::string& what) {
  return Status::error("INVALID_ARGUMENT", "engine '" + peer + "' describes its memory wrongly: " + what +
                                               "; run the same version of dualpath on both sides");
}

}  // namespace

Status SharedPeer::create(std::string name, const Invitation& invitation, StepsOver* over,
                          std::unique_ptr<SharedPeer>* out) {
  auto peer = std::unique_ptr<SharedPeer>(new SharedPeer(std::move(name), over));
  store::ScopedFd segment;
  Status status = open_of(peer->name_, invitation.pid, invitation.segment_fd, O_RDWR, &segment);
  if (status.ok()) status = Segment::map(segment.get(), invitation.nonce, &peer->segment_);
  if (status.ok()) {
    status = open_of(peer->name_, invitation.pid, invitation.bell_fd, O_WRONLY | O_NONBLOCK, &peer->bell_);
  }
  if (!status.ok()) return status;
  if (invitation.mailbox >= Segment::kMailboxes) return invalid(peer->name_, "a mailbox that there is not");
  peer->mailbox_ = &peer->segment_->mailbox(invitation.mailbox);
  peer->counter_entries_ = invitation.counter_entries;
  for (const RemoteGeometry& remote : invitation.geometries) {
    status = peer->map_geometry(invitation.pid, remote);
    if (!status.ok()) return status;
  }
  *out = std::move(peer);
  return {};
}

Status SharedPeer::map_geometry(int pid, const RemoteGeometry& remote) {
  if (remote.id >= geometries_.size()) return invalid(name_, "geometry " + std::to_string(remote.id));
  GeometryOptions options = remote.layout;
  for (const RemoteArena& arena : remote.arenas) {
    store::ScopedFd fd;
    Status status = open_of(name_, pid, arena.fd, O_RDWR, &fd);
    std::shared_ptr<Arena> mapped;
    if (status.ok())
      status = Arena::map("memory of " + name_, fd.get(), arena.bytes, ArenaKind::kHost, &mapped);
    if (!status.ok()) return status;
    if (options.arena == nullptr) {
      options.arena = std::move(mapped);
    } else {
      options.more_arenas.push_back(std::move(mapped));
    }
  }
  if (options.arena == nullptr) return invalid(name_, "a geometry without an arena");
  const Status status = Geometry::create(std::move(options), &geometries_[remote.id]);
  return status.ok() ? status : invalid(name_, status.message);
}

PeerResult SharedPeer::check(const Geometry& local, uint32_t, uint32_t remote_geometry) {
  if (remote_geometry >= geometries_.size()) return PeerResult::kOutOfBounds;
  const auto& to = geometries_[remote_geometry];
  if (to == nullptr || local.device() != nullptr) return PeerResult::kOutOfBounds;
  return to->same_shape(local) ? PeerResult::kOk : PeerResult::kOutOfBounds;
}

PeerResult SharedPeer::begin(const StepRequest& request, PeerStep** step, PeerFailure* failure) {
  for (uint32_t i = 0; i < request.signal_count; i++) {
    if ((request.signals[i].counter & DP_COUNTER_MASK) < counter_entries_) continue;
    failure->result = PeerResult::kOutOfBounds;
    return PeerResult::kOutOfBounds;
  }
  if (lost_.load(std::memory_order_acquire)) {
    failure->result = PeerResult::kLost;
    return PeerResult::kLost;
  }
  SharedStep* const begun = over_->take_step();
  if (begun == nullptr) return PeerResult::kAgain;
  begun->request = request;
  begun->next_block = 0;
  begun->bytes = 0;
  begun->failure = {};
  *step = begun;
  return PeerResult::kOk;
}

// Blocks a chunk at a time, so that other descriptors get their turns; its signals after the last.
PeerResult SharedPeer::post(PeerStep* posted, bool* moved, uint32_t* block, PeerFailure* failure) {
  SharedStep& step = *static_cast<SharedStep*>(posted);
  const StepRequest& request = step.request;
  if (!room_for(request.signal_count)) return PeerResult::kAgain;
  *moved = true;
  PeerResult result = PeerResult::kLost;
  {
    Writing writing(*mailbox_);
    if (writing.allowed() && !lost_.load(std::memory_order_acquire)) result = copy_chunk(step, block);
  }
  if (result != PeerResult::kOk) {
    failure->result = result;
    return result;
  }
  if (step.next_block < request.part.count) return PeerResult::kAgain;
  put_signals(request);
  sent_bytes_.fetch_add(step.bytes, std::memory_order_relaxed);
  over_->step_over(&step);
  return PeerResult::kOk;
}

PeerResult SharedPeer::copy_chunk(SharedStep& step, uint32_t* block) {
  const SendPart& part = step.request.part;
  if (part.count == 0) return PeerResult::kOk;
  const Geometry& to = *geometries_[part.to_geometry];  // check() has seen it
  const uint64_t width = part.from->entries_per_block();
  const uint64_t before = step.bytes;
  while (step.next_block < part.count && step.bytes - before < kChunkBytes) {
    const uint32_t i = step.next_block;
    if (!copy_block(*part.from, part.from_slots + i * width, to, part.to_slots + i, part.layer,
                    part.first_block + i, part.tokens, part.window_end, &step.bytes)) {
      *block = i;
      return PeerResult::kOutOfBounds;
    }
    step.next_block++;
  }
  return PeerResult::kOk;
}

void SharedPeer::abandon(PeerStep* step) { over_->step_over(static_cast<SharedStep*>(step)); }

bool SharedPeer::room_for(uint32_t signals) {
  const uint32_t used =
      mailbox_->tail.load(std::memory_order_relaxed) - mailbox_->head.load(std::memory_order_acquire);
  return used <= Mailbox::kEntries - signals;
}

void SharedPeer::put_signals(const StepRequest& request) {
  if (request.signal_count == 0) return;
  uint32_t tail = mailbox_->tail.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < request.signal_count; i++) {
    const PeerSignal& signal = request.signals[i];
    mailbox_->entries[tail++ % Mailbox::kEntries] = {signal.counter, signal.mode, signal.value};
  }
  mailbox_->tail.store(tail, std::memory_order_seq_cst);
  if (segment_->header().sleeping.exchange(0, std::memory_order_seq_cst) == 0) return;
  const char ring = 1;
  [[maybe_unused]] ssize_t n = ::write(bell_.get(), &ring, 1);  // EAGAIN: it is full of rings
}

}  // namespace dualpath::shared
