// What the strict stub provider keeps behind libibverbs' structures. Everything is guarded by the fabric's
// mutex.
#pragma once
#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "verbs/fixed_ring.h"

namespace dualpath::verbs::stub {

struct StubCq;
struct StubDevice;
class StubFabric;

struct StubContext {
  ibv_context base{};  // first: a context is its ibv_context
  StubFabric* fabric = nullptr;
  StubDevice* device = nullptr;
  std::deque<ibv_async_event> events;
  std::vector<StubCq*> completion_queues;
  uint32_t objects = 0;  // alive on it
};

struct StubPd {
  ibv_pd base{};
  uint32_t objects = 0;
};

struct StubMr {
  ibv_mr base{};
  uint64_t iova = 0;
  std::byte* memory = nullptr;
  int access = 0;
  void* mapping = nullptr;  // of a dma-buf, by the stub
  size_t mapping_bytes = 0;
};

struct StubQp;

// A completion on its way: in its queue pair until delivered, then in the completion queue until polled.
struct Completion {
  ibv_wc wc;
  StubQp* qp;
  uint64_t position;  // of the request in its queue
  bool receive;
};

struct StubCq {
  ibv_cq base{};
  FixedRing<Completion> ring;
  bool armed = false;
  bool failed = false;
  uint32_t queue_pairs = 0;
  uint32_t events = 0;  // sent to the channel
  uint32_t acknowledged = 0;
};

struct StubChannel {
  ibv_comp_channel base{};
  std::deque<StubCq*> events;
  uint32_t queues = 0;
};

struct SendEntry {
  uint64_t wr_id;
  ibv_wr_opcode opcode;
  unsigned flags;
  uint32_t imm_data;
  uint64_t remote_addr;
  uint32_t rkey;
  uint32_t sge_count;
  uint32_t inline_bytes;
};

struct ReceiveEntry {
  uint64_t wr_id;
  uint32_t sge_count;
};

struct StubQp {
  ibv_qp base{};
  ibv_qp_cap cap{};
  bool signal_all = false;
  // Send queue: positions [released, posted) hold a slot, [executed, posted) have not run.
  std::vector<SendEntry> sends;
  std::vector<ibv_sge> send_sges;
  std::vector<std::byte> inline_data;
  uint64_t posted = 0, executed = 0, released = 0;
  std::vector<ReceiveEntry> receives;
  std::vector<ibv_sge> receive_sges;
  uint64_t receive_posted = 0, receive_consumed = 0, receive_released = 0;
  FixedRing<Completion> completions;  // not yet delivered, in order
  ibv_qp_attr attr{};
  uint32_t retries = 0;      // of the request at the head, transport
  uint32_t rnr_retries = 0;  // the same, receiver not ready
};

struct StubDevice {
  ibv_device base{};
  struct Port {
    bool up = true;
    std::vector<ibv_gid> gids;
  } port;  // each has one, number 1
  std::vector<StubContext*> contexts;
};

}  // namespace dualpath::verbs::stub
