// Two connected queue pairs on a soft-RoCE device, $DUALPATH_RXE_DEVICE: run these tests with `npm run
// test:rxe`.
#pragma once
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "../test/verbs/pair.h"
#include "core/clock.h"
#include "verbs/library.h"

namespace dualpath::test {

inline constexpr uint64_t kPatienceNs = 20'000'000'000;

// What the provider was asked, counted in its own table.
struct ProviderCalls {
  static inline uint64_t post_send = 0, completions = 0;
  static inline int (*post)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
  static inline int (*poll)(ibv_cq*, int, ibv_wc*) = nullptr;

  static void count(ibv_context* context) {
    if (context->ops.post_send != counted_post) {
      post = context->ops.post_send;
      poll = context->ops.poll_cq;
    }
    context->ops.post_send = counted_post;
    context->ops.poll_cq = counted_poll;
    post_send = completions = 0;
  }
  static int counted_post(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
    post_send++;
    return post(qp, request, bad);
  }
  static int counted_poll(ibv_cq* cq, int entries, ibv_wc* wc) {
    const int count = poll(cq, entries, wc);
    if (count > 0) completions += static_cast<uint64_t>(count);
    return count;
  }
};

inline std::shared_ptr<Device> rxe_device() {
  const char* const name = getenv("DUALPATH_RXE_DEVICE");
  std::shared_ptr<Verbs> library;
  std::shared_ptr<Device> device;
  Status status = open_library(&library);
  if (status.ok()) status = Device::open(library, name == nullptr ? "rxe0" : name, &device);
  EXPECT_TRUE(status.ok()) << status.message;
  return device;
}

// The first entry of the GID table that is an IPv4 address (RoCE v2 is the later of its two).
inline int routable_gid(Device& device) {
  int found = -1;
  ibv_gid gid{};
  for (int i = 0; i < 16; i++) {
    const bool mapped = device.gid(1, i, &gid).ok() && gid.global.subnet_prefix == 0 && gid.raw[10] == 0xff &&
                        gid.raw[11] == 0xff;
    if (mapped) found = i;
  }
  return found;
}

class RxePair {
 public:
  // Tests may claim what is not so in the path of either end.
  explicit RxePair(const QueuePairOptions& options = {}, uint32_t claimed_receives = 0) {
    const uint32_t entries = 2 * (options.send_entries + options.receive_entries);
    for (End* const end : {&a, &b}) {
      end->device = rxe_device();
      if (end->device == nullptr) return;
      EXPECT_TRUE(CompletionQueue::create(end->device, entries, &end->completion_queue).ok());
      end->make(options, end == &a ? 0xfffff0 : 77);
    }
    PathParameters to_b = path_to_end(b), to_a = path_to_end(a);
    if (claimed_receives != 0) to_b.peer.receives = claimed_receives;
    EXPECT_TRUE(b.queue_pair->connect(to_a).ok());
    EXPECT_TRUE(a.queue_pair->connect(to_b).ok());
  }

  // Polls both ends, or only one, until it holds; false when that takes too long.
  template <typename Holds>
  bool until(Holds holds, bool b_polls = true) {
    const uint64_t deadline = now_ns() + kPatienceNs;
    while (!holds()) {
      if (now_ns() > deadline) return false;
      a.completion_queue->poll(64);
      if (b_polls) b.completion_queue->poll(64);
    }
    return true;
  }

  End a, b;

 private:
  static PathParameters path_to_end(End& end) {
    PathParameters path;
    path.peer = end.queue_pair->address();
    path.gid_index = routable_gid(*end.device);
    EXPECT_TRUE(end.device->gid(1, path.gid_index, &path.peer_gid).ok());
    path.mtu_bytes = 1024;
    return path;
  }
};

}  // namespace dualpath::test
