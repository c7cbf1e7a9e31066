#include "verbs/expand.h"

#include <algorithm>

namespace dualpath::verbs {

void PartExpander::begin(const Part& part) {
  part_ = part;
  block_ = 0;
  block_open_ = false;
}

bool PartExpander::open_block() {
  from_slot_ = part_.from_slots[block_];
  to_slot_ = part_.to_slots[block_];
  plane_ = row_ = 0;
  block_open_ = from_slot_ < part_.from->geometry().slots() && to_slot_ < part_.to->geometry().slots();
  return block_open_;
}

PartExpander::Result PartExpander::expand(Chain& chain) {
  for (; block_ < part_.count; block_++) {
    if (!block_open_ && !open_block()) return Result::kOutOfBounds;
    if (!expand_block(chain)) return Result::kChainFull;
    block_open_ = false;
  }
  return Result::kDone;
}

bool PartExpander::expand_block(Chain& chain) {
  const Geometry& from = part_.from->geometry();
  const Geometry& to = part_.to->geometry();
  const uint32_t block_tokens = from.block_tokens();
  const uint64_t first = (static_cast<uint64_t>(part_.first_block) + block_) * block_tokens;
  const uint64_t last = first + block_tokens;
  if (part_.tokens.begin >= last || part_.tokens.end <= first) return true;
  const TokenRange within{static_cast<uint32_t>(std::max<uint64_t>(part_.tokens.begin, first)),
                          static_cast<uint32_t>(std::min<uint64_t>(part_.tokens.end, last))};
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

}  // namespace dualpath::verbs
