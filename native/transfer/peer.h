// Another engine as this one sees it: memory it may write, counters it may bump. Engines meet through
// this and through control messages, nothing else; verbs and loopback are implementations.
#pragma once
#include <cstdint>

#include "core/nic_link.h"
#include "dualpath_ring.h"
#include "memory/geometry.h"

namespace dualpath {

// Some blocks of one layer, on their way into the peer's memory.
struct SendPart {
  const Geometry* from;
  uint32_t to_geometry;        // in the peer's table
  const uint32_t* from_slots;  // entries_per_block() of `from` a block
  const uint32_t* to_slots;    // one a block: a peer's memory is slots
  uint32_t count;
  uint32_t layer;
  uint32_t first_block;  // position of from_slots[0] in the sequence
  TokenRange tokens;
  uint32_t window_end;
};

enum class PeerResult { kOk, kLost, kOutOfBounds };

class Peer {
 public:
  virtual ~Peer() = default;
  virtual const char* transport() const = 0;  // as reports name it
  virtual const char* name() const = 0;

  // Whether blocks of `local` can be written into the peer's geometry.
  virtual PeerResult check(const Geometry& local, uint32_t remote_geometry) = 0;
  // Writes; *bytes says how many moved.
  virtual PeerResult write(const SendPart& part, uint64_t* bytes) = 0;
  // Bumps one of the peer's counters, after everything written before.
  virtual PeerResult signal(uint8_t mode, uint32_t counter, uint64_t value) = 0;
  // The peer's side of the compute network, nullptr when it is not emulated.
  virtual NicLink* ingress() = 0;
};

}  // namespace dualpath
