// Another engine as this one sees it: memory it may write, counters it may bump. Engines meet through
// this and through control messages, nothing else; verbs and loopback are implementations.
//
// Loopback moves bytes when it is asked to (write, signal). Other transports carry steps: one is begun,
// posted in as many turns as it takes, and ends when everything of it has arrived or nothing more of it can.
#pragma once
#include <array>
#include <cstdint>

#include "core/nic_link.h"
#include "dualpath_ring.h"
#include "memory/geometry.h"
#include "transfer/copy_way.h"

namespace dualpath {

// Some blocks of one layer, on their way into the peer's memory.
struct SendPart {
  const Geometry* from;
  uint32_t from_geometry;      // in this engine's table
  uint32_t to_geometry;        // in the peer's table
  const uint32_t* from_slots;  // entries_per_block() of `from` a block
  const uint32_t* to_slots;    // one a block: a peer's memory is slots
  uint32_t count;
  uint32_t layer;
  uint32_t first_block;  // position of from_slots[0] in the sequence
  TokenRange tokens;
  uint32_t window_end;
};

struct PeerSignal {
  uint32_t counter;  // with its generation: dualpath_ring.h
  uint8_t mode;
  uint64_t value;
};

enum class PeerResult { kOk, kAgain, kLost, kOutOfBounds };

// Why a step failed, as a record says it.
struct PeerFailure {
  PeerResult result = PeerResult::kOk;
  int sys_errno = 0;        // of posting
  uint32_t status = 0;      // ibv_wc_status
  uint32_t queue_pair = 0;  // number
};

// Told of the end of each step that was begun, on the reactor's thread and never from within a call to the
// peer.
class StepOwner {
 public:
  virtual void step_ended(void* context, uint16_t step, uint64_t bytes, const PeerFailure& failure) = 0;

 protected:
  ~StepOwner() = default;
};

// What a transport keeps of a step.
class PeerStep {
 protected:
  ~PeerStep() = default;
};

struct StepRequest {
  StepOwner* owner;
  void* context;
  uint16_t step;
  uint8_t traffic_class;
  SendPart part;  // of no blocks: signals alone
  std::array<PeerSignal, 2> signals;
  uint32_t signal_count;
};

class Peer {
 public:
  virtual ~Peer() = default;
  virtual const char* transport() const = 0;  // as reports name it
  virtual const char* name() const = 0;

  // Whether blocks of `local` can be written into the peer's geometry.
  virtual PeerResult check(const Geometry& local, uint32_t local_geometry, uint32_t remote_geometry) = 0;
  virtual bool carries_steps() const = 0;

  // Where it carries no steps.
  // Writes; *bytes says how many moved.
  virtual PeerResult write(const SendPart&, uint64_t*) { return PeerResult::kLost; }
  // Bumps one of the peer's counters, after everything written before.
  virtual PeerResult signal(const PeerSignal&) { return PeerResult::kLost; }
  // The peer's side of the compute network, nullptr when it is not emulated.
  virtual NicLink* ingress() { return nullptr; }

  // Where it does. kAgain: no room now. kLost and kOutOfBounds: *failure says more.
  virtual PeerResult begin(const StepRequest&, PeerStep**, PeerFailure*) { return PeerResult::kLost; }
  // Posts what there is room for. kOk: all of it, and the step is the transport's until its owner is told of
  // the end. kAgain: more is to be posted; *moved: some was now. Otherwise *failure says why, *block is that
  // which is out of bounds, and the step has to be abandoned.
  virtual PeerResult post(PeerStep*, bool* /*moved*/, uint32_t* /*block*/, PeerFailure*) {
    return PeerResult::kLost;
  }
  // Nothing more of it will be posted; it ends when what is in flight has.
  virtual void abandon(PeerStep*) {}
};

// What several peers of an engine share: a device, a port. On the reactor's thread.
class PeerTransport {
 public:
  virtual ~PeerTransport() = default;
  // The engine closes: nothing is sent and no peer writes here any more, once quiet() says so.
  virtual void close(uint64_t now) = 0;
  virtual bool quiet(uint64_t now) = 0;
  // The engine is gone when this returns.
  virtual void leave() = 0;
  virtual uint64_t next_due() const = 0;  // when quiet() is worth asking by time alone
};

// A NIC that carries copies within its host: a peer that is this engine itself.
class CopyCarrier : public Peer, public PeerTransport {
 public:
  // kNone: it carries a copy between these geometries now.
  virtual NicRefusal refusal(uint32_t from_geometry, uint32_t to_geometry) = 0;
  // It carries nothing any more: another may take its place.
  virtual bool ended() const = 0;
};

}  // namespace dualpath
