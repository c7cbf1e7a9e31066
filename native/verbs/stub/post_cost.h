// What it costs to turn blocks into work requests and to post them, measured against the strict stub
// provider: its own copy of each request is part of the figure, a NIC's doorbell is not.
#pragma once
#include <cstdint>

#include "core/status.h"

namespace dualpath::verbs::stub {

struct PostCostOptions {
  uint32_t chain = 64;         // work requests in each
  uint32_t chains = 20'000;    // measured, at least
  uint32_t block_tokens = 64;  // of each block; a block is a request here
  uint32_t bytes_per_token = 64;
};

struct PostCost {
  uint64_t requests = 0;
  uint64_t chains = 0;
  // Medians over rounds of some 64 requests, so that a round in which the thread was preempted does not
  // count.
  double expand_ns_per_request = 0;    // blocks to work requests
  double post_ns_per_request = 0;      // wr_ids, ibv_post_send, accounting
  double complete_ns_per_request = 0;  // polling and accounting, without what the stub does for a NIC
  // Counted by the stub.
  uint64_t post_calls = 0;
  uint64_t completions = 0;
  uint64_t bytes = 0;
};

// INVALID_ARGUMENT for a chain of 0 or more than 1024.
Status measure_post_cost(const PostCostOptions& options, PostCost* out);

}  // namespace dualpath::verbs::stub
