// From blocks of a layer to work requests: the same arithmetic as copy_block (memory/geometry.h), with keys.
#pragma once
#include <cstdint>

#include "verbs/chain.h"
#include "verbs/region.h"

namespace dualpath::verbs {

// Some blocks of one layer (SendPart of transfer/peer.h, with keys): `count` slots here and at the peer.
struct Part {
  const KeyedGeometry* from;   // this side's memory
  const KeyedGeometry* to;     // the peer's, of the same shape
  const uint32_t* from_slots;  // entries_per_block() of `from` a block
  const uint32_t* to_slots;    // likewise of `to`; where that is paged both are keyed by ranges
  uint32_t count;
  uint32_t layer;
  uint32_t first_block;  // position of from_slots[0] in the sequence
  TokenRange tokens;
  uint32_t window_end;
};

// Takes as many chains as it needs; where one is full it goes on with the next. The slot lists may be shared
// memory: each entry is read once and checked.
class PartExpander {
 public:
  enum class Result { kDone, kChainFull, kOutOfBounds };

  void begin(const Part& part);
  // Appends writes from here to there. kOutOfBounds: a slot outside its geometry (a page that is none);
  // nothing that it names or that comes after it was appended.
  Result expand(Chain& chain);
  uint32_t block() const { return block_; }  // the next to be expanded, counted in the list

 private:
  bool open_block();
  TokenRange within_block() const;
  bool expand_block(Chain& chain);
  Result expand_pages(Chain& chain);
  Result expand_into_pages(Chain& chain);
  bool write_between(Chain& chain, uint64_t local, uint64_t remote, uint64_t bytes);
  bool expand_run(Chain& chain, const Strips& strips, const Place& place, uint32_t rows);
  bool write(Chain& chain, uint64_t local, uint64_t remote, uint64_t bytes);
  bool expand_rows(Chain& chain, const Plane& source, const Plane& target, TokenRange seen);

  Part part_{};
  uint32_t block_ = 0;
  bool block_open_ = false;
  uint32_t from_slot_ = 0, to_slot_ = 0;
  uint32_t plane_ = 0;
  uint32_t row_ = 0;  // rows of the plane already expanded, where rows have a stride
  // Paged memory: where in the plane it stands.
  uint32_t token_ = 0;  // of the block
  bool plane_open_ = false;
  uint32_t strip_ = 0;
  uint64_t written_bytes_ = 0;  // of a piece that several regions hold
  uint64_t walked_ = 0;         // pieces of the block that were appended, where the target is paged
};

}  // namespace dualpath::verbs
