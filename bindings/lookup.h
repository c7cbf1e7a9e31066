// Key chains and look-ups off the JavaScript thread, on libuv's pool.
#pragma once
#include <napi.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "store/chain_lookup.h"
#include "transfer/engine.h"

namespace dualpath::bindings {

class Lookup;

// Of one engine. Touched by the JavaScript thread only.
struct Lookups {
  static constexpr size_t kMaxInFlight = 64;

  std::shared_ptr<store::ChainCache> chains;
  std::vector<Lookup*> in_flight;
  uint64_t finished = 0;
  uint64_t blocks = 0;
  store::ChainTimes times;
  uint64_t index_ns = 0;
};

// hash(tokens, id, firstToken, blockTokens, blocks, keyOffset, lookUp, parentKey?): keys of full blocks of
// `tokens` into the door's key table; Promise of how many leading ones are stored (0 unless lookUp).
//
// The tokens stay the caller's. Node-API can keep the array alive but not its memory, which goes when the
// ArrayBuffer is transferred or shrunk: see store/chain_lookup.h. A result that may be of other bytes is
// refused. A SharedArrayBuffer can do neither and is read as it lies.
Napi::Value start_lookup(const Napi::CallbackInfo& info, const std::shared_ptr<TransferEngine>& engine,
                         const std::shared_ptr<Lookups>& lookups);
// The look-up ends soon, with CANCELLED unless it has ended already.
void cancel_lookup(Lookups& lookups, uint32_t id);

}  // namespace dualpath::bindings
