// A chain of work requests for one ibv_post_send, in arrays taken once. Only the last is signalled: its
// completion covers the chain. Pieces that continue the one before become part of the same request.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dualpath::verbs {

struct ChainOptions {
  uint32_t requests = 64;             // capacity
  uint32_t sges = 4;                  // of a request
  uint32_t inline_bytes = 0;          // granted by the queue pair
  uint64_t request_bytes = 1u << 30;  // at most, of one request: the port's largest message
  uint64_t chain_bytes = UINT64_MAX;  // a chain that carries so many takes no more
};

// Contiguous bytes, here and there.
struct Piece {
  uint64_t local;
  uint64_t remote;
  uint32_t local_key;
  uint32_t remote_key;
  uint32_t bytes;
};

class Chain {
 public:
  explicit Chain(const ChainOptions& options);
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  void clear();
  uint32_t size() const { return size_ - first_; }
  bool empty() const { return size_ == first_; }
  uint32_t capacity() const { return options_.requests; }
  uint64_t bytes() const { return bytes_; }
  uint32_t receives() const { return receives_; }  // of the peer's that it consumes

  // False when there is no room for another request; nothing is appended then. bytes is 1 to request_bytes.
  bool write(const Piece& piece) { return append(IBV_WR_RDMA_WRITE, piece); }
  bool read(const Piece& piece) { return append(IBV_WR_RDMA_READ, piece); }
  // The write appended last, or an empty one where there is none, tells the peer: it consumes a receive
  // there, after all that was written before.
  bool announce(uint32_t immediate);
  // A few bytes of control: a message into a receive of the peer's, or a write that merges with nothing.
  // Copied inline when the queue pair grants that many bytes.
  bool message(uint64_t local, uint32_t local_key, uint32_t bytes);
  bool write_control(const Piece& piece);

 private:
  friend class QueuePair;
  bool append(ibv_wr_opcode opcode, const Piece& piece);
  ibv_send_wr* fresh(ibv_wr_opcode opcode);
  ibv_send_wr& last() { return requests_[size_ - 1]; }
  void drop_front(uint32_t count);  // posted

  const ChainOptions options_;
  std::vector<ibv_send_wr> requests_;
  std::vector<ibv_sge> sges_;
  uint32_t first_ = 0;  // not posted yet
  uint32_t size_ = 0;
  uint32_t receives_ = 0;
  uint64_t bytes_ = 0;
  uint64_t last_bytes_ = 0;  // of the last request
  uint64_t remote_end_ = 0;  // where it ends
  uint64_t local_end_ = 0;   // where its last SGE ends
};

}  // namespace dualpath::verbs
