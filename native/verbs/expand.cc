#include "verbs/expand.h"

#include <algorithm>

#include "core/read_once.h"
#include "memory/walk.h"

namespace dualpath::verbs {

void PartExpander::begin(const Part& part) {
  part_ = part;
  block_ = 0;
  block_open_ = false;
}

bool PartExpander::open_block() {
  plane_ = row_ = strip_ = 0;
  written_bytes_ = walked_ = 0;
  plane_open_ = false;
  block_open_ = true;
  if (part_.to->geometry().paged()) return true;
  to_slot_ = read_once(part_.to_slots[block_]);
  block_open_ = to_slot_ < part_.to->geometry().slots();
  if (part_.from->geometry().paged()) return block_open_;  // its pages are looked at as they are expanded
  from_slot_ = read_once(part_.from_slots[block_]);
  block_open_ &= from_slot_ < part_.from->geometry().slots();
  return block_open_;
}

PartExpander::Result PartExpander::expand(Chain& chain) {
  for (; block_ < part_.count; block_++) {
    if (!block_open_ && !open_block()) return Result::kOutOfBounds;
    if (part_.from->geometry().paged() || part_.to->geometry().paged()) {
      const Result result = part_.to->geometry().paged() ? expand_into_pages(chain) : expand_pages(chain);
      if (result != Result::kDone) return result;
    } else if (!expand_block(chain)) {
      return Result::kChainFull;
    }
    block_open_ = false;
  }
  return Result::kDone;
}

// Tokens of the part that lie in the block, by their position in the sequence.
TokenRange PartExpander::within_block() const {
  const uint32_t block_tokens = part_.from->geometry().block_tokens();
  const uint64_t first = (static_cast<uint64_t>(part_.first_block) + block_) * block_tokens;
  const uint64_t last = first + block_tokens;
  if (part_.tokens.begin >= last || part_.tokens.end <= first) return {0, 0};
  return {static_cast<uint32_t>(std::max<uint64_t>(part_.tokens.begin, first)),
          static_cast<uint32_t>(std::min<uint64_t>(part_.tokens.end, last))};
}

bool PartExpander::expand_block(Chain& chain) {
  const Geometry& from = part_.from->geometry();
  const Geometry& to = part_.to->geometry();
  const uint64_t first = (static_cast<uint64_t>(part_.first_block) + block_) * from.block_tokens();
  const TokenRange within = within_block();
  if (within.begin == within.end) return true;
  const auto& sources = from.planes(part_.layer);
  const auto& targets = to.planes(part_.layer);
  const uint32_t local_key = part_.from->key(from_slot_);
  const uint32_t remote_key = part_.to->key(to_slot_);
  for (; plane_ < sources.size(); plane_++) {
    const Plane& source = sources[plane_];
    const Plane& target = targets[plane_];
    const TokenRange seen = Geometry::visible(source, within, part_.window_end);
    if (seen.begin >= seen.end) continue;
    const uint32_t row = source.bytes_per_token;
    if (source.token_stride_bytes != row || target.token_stride_bytes != row) {
      if (!expand_rows(chain, source, target, seen)) return false;
      row_ = 0;
      continue;
    }
    const uint32_t token = static_cast<uint32_t>(seen.begin - first);
    const Piece piece{reinterpret_cast<uint64_t>(from.at(from_slot_, part_.layer, source, token)),
                      reinterpret_cast<uint64_t>(to.at(to_slot_, part_.layer, target, token)), local_key,
                      remote_key, row * (seen.end - seen.begin)};
    if (!chain.write(piece)) return false;
  }
  return true;
}

bool PartExpander::expand_rows(Chain& chain, const Plane& source, const Plane& target, TokenRange seen) {
  const Geometry& from = part_.from->geometry();
  const uint64_t first = (static_cast<uint64_t>(part_.first_block) + block_) * from.block_tokens();
  const uint32_t token = static_cast<uint32_t>(seen.begin - first);
  const auto source_base = reinterpret_cast<uint64_t>(from.at(from_slot_, part_.layer, source, token));
  const auto target_base =
      reinterpret_cast<uint64_t>(part_.to->geometry().at(to_slot_, part_.layer, target, token));
  for (; row_ < seen.end - seen.begin; row_++) {
    const Piece piece{source_base + uint64_t{row_} * source.token_stride_bytes,
                      target_base + uint64_t{row_} * target.token_stride_bytes, part_.from->key(from_slot_),
                      part_.to->key(to_slot_), source.bytes_per_token};
    if (!chain.write(piece)) return false;
  }
  return true;
}

// A run of tokens lies together in each of the plane's strips; at the peer the plane's bytes do.
PartExpander::Result PartExpander::expand_pages(Chain& chain) {
  const Geometry& from = part_.from->geometry();
  const uint32_t* const entries = part_.from_slots + uint64_t{block_} * from.entries_per_block();
  const uint64_t first = (static_cast<uint64_t>(part_.first_block) + block_) * from.block_tokens();
  const TokenRange within = within_block();
  if (within.begin == within.end) return Result::kDone;
  const auto& planes = from.planes(part_.layer);
  for (; plane_ < planes.size(); plane_++, plane_open_ = false) {
    const TokenRange seen = Geometry::visible(planes[plane_], within, part_.window_end);
    if (!plane_open_) token_ = static_cast<uint32_t>(seen.begin - first);
    plane_open_ = true;
    const uint32_t end = static_cast<uint32_t>(seen.end - first);
    while (token_ < end) {
      Place place;
      if (!from.find(entries, part_.layer, plane_, token_, &place)) return Result::kOutOfBounds;
      const uint32_t rows = std::min(end - token_, place.tokens);
      if (!expand_run(chain, from.strips(part_.layer, plane_), place, rows)) return Result::kChainFull;
      row_ = 0;
      token_ += rows;
    }
  }
  return Result::kDone;
}

// Token by token and strip by strip: in the order of the peer's bytes, so that pieces become one request's
// SGEs. Where the plane is one strip whose tokens lie side by side, as on the other side, it is one piece.
bool PartExpander::expand_run(Chain& chain, const Strips& strips, const Place& place, uint32_t rows) {
  const Plane& target = part_.to->geometry().planes(part_.layer)[plane_];
  const uint32_t row_bytes = target.bytes_per_token;
  const auto base =
      reinterpret_cast<uint64_t>(part_.to->geometry().at(to_slot_, part_.layer, target, token_));
  const Geometry& from = part_.from->geometry();
  const bool together =
      strips.count == 1 && strips.data[0].token_stride == row_bytes && target.token_stride_bytes == row_bytes;
  if (together) {
    return write(chain, reinterpret_cast<uint64_t>(from.address(strips.data[0], place)), base,
                 uint64_t{row_bytes} * rows);
  }
  for (; row_ < rows; row_++) {
    uint64_t remote = base + uint64_t{row_} * target.token_stride_bytes;
    for (uint32_t i = 0; i < strip_; i++) remote += strips.data[i].bytes;
    const Place row{place.page, place.token + row_, 1};
    for (; strip_ < strips.count; strip_++) {
      const Strip& strip = strips.data[strip_];
      const auto local = reinterpret_cast<uint64_t>(from.address(strip, row));
      if (!write(chain, local, remote, strip.bytes)) return false;
      remote += strip.bytes;
    }
    strip_ = 0;
  }
  return true;
}

// The loop of copy_block itself; where the chain fills up within a block it is walked again from its start,
// past what was appended. Entries are looked at each time, so that they may change and do no harm.
PartExpander::Result PartExpander::expand_into_pages(Chain& chain) {
  const Geometry& from = part_.from->geometry();
  const Geometry& to = part_.to->geometry();
  uint64_t bytes = 0;
  uint64_t at = 0;
  bool full = false;
  const auto append = [&](const PieceRows& piece) {
    const bool together = piece.to_stride == piece.bytes && piece.from_stride == piece.bytes;
    const uint64_t row_bytes = together ? uint64_t{piece.bytes} * piece.rows : piece.bytes;
    for (uint32_t r = 0; r < (together ? 1 : piece.rows); r++) {
      if (at++ < walked_) continue;
      full = !write_between(chain, reinterpret_cast<uint64_t>(piece.from) + r * piece.from_stride,
                            reinterpret_cast<uint64_t>(piece.to) + r * piece.to_stride, row_bytes);
      if (full) return false;
      walked_++;
    }
    return true;
  };
  if (walk_block(from, part_.from_slots + uint64_t{block_} * from.entries_per_block(), to,
                 part_.to_slots + uint64_t{block_} * to.entries_per_block(), part_.layer,
                 part_.first_block + block_, part_.tokens, part_.window_end, &bytes, append)) {
    return Result::kDone;
  }
  return full ? Result::kChainFull : Result::kOutOfBounds;
}

// Either side may cross from one registered range into the next.
bool PartExpander::write_between(Chain& chain, uint64_t local, uint64_t remote, uint64_t bytes) {
  while (written_bytes_ < bytes) {
    const uint64_t here = local + written_bytes_;
    const uint64_t there = remote + written_bytes_;
    const KeyedRange& source = part_.from->range(here);
    const KeyedRange& target = part_.to->range(there);
    const uint64_t piece =
        std::min({bytes - written_bytes_, source.end - here, target.end - there, uint64_t{1} << 30});
    if (!chain.write({here, there, source.key, target.key, static_cast<uint32_t>(piece)})) return false;
    written_bytes_ += piece;
  }
  written_bytes_ = 0;
  return true;
}

// From paged memory, which may cross from one registered range into the next.
bool PartExpander::write(Chain& chain, uint64_t local, uint64_t remote, uint64_t bytes) {
  while (written_bytes_ < bytes) {
    const uint64_t at = local + written_bytes_;
    const KeyedRange& range = part_.from->range(at);
    const uint64_t piece = std::min(bytes - written_bytes_, range.end - at);
    if (!chain.write({at, remote + written_bytes_, range.key, part_.to->key(to_slot_),
                      static_cast<uint32_t>(piece)})) {
      return false;
    }
    written_bytes_ += piece;
  }
  written_bytes_ = 0;
  return true;
}

}  // namespace dualpath::verbs
