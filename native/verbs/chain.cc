#include "verbs/chain.h"

namespace dualpath::verbs {

Chain::Chain(const ChainOptions& options)
    : options_(options), requests_(options.requests), sges_(size_t{options.requests} * options.sges) {
  for (uint32_t i = 0; i < options.requests; i++) {
    requests_[i] = ibv_send_wr{};
    requests_[i].sg_list = &sges_[size_t{i} * options.sges];
    requests_[i].next = i + 1 < options.requests ? &requests_[i + 1] : nullptr;
  }
}

void Chain::clear() {
  first_ = size_ = receives_ = 0;
  bytes_ = 0;
}

ibv_send_wr* Chain::fresh(ibv_wr_opcode opcode) {
  if (size_ == options_.requests) return nullptr;
  ibv_send_wr* const request = &requests_[size_++];
  request->opcode = opcode;
  request->send_flags = 0;
  request->num_sge = 0;
  request->wr.rdma.remote_addr = 0;
  request->wr.rdma.rkey = 0;
  last_bytes_ = 0;
  return request;
}

bool Chain::append(ibv_wr_opcode opcode, const Piece& piece) {
  if (bytes_ >= options_.chain_bytes) return false;
  if (size_ != first_) {
    ibv_send_wr& request = last();
    const bool continues = request.opcode == opcode && piece.remote == remote_end_ &&
                           request.wr.rdma.rkey == piece.remote_key && request.num_sge != 0 &&
                           last_bytes_ + piece.bytes <= options_.request_bytes;
    if (continues) {
      ibv_sge& sge = request.sg_list[request.num_sge - 1];
      const bool contiguous = piece.local == local_end_ && sge.lkey == piece.local_key;
      if (contiguous || static_cast<uint32_t>(request.num_sge) < options_.sges) {
        if (contiguous) {
          sge.length += piece.bytes;
        } else {
          request.sg_list[request.num_sge++] = {piece.local, piece.bytes, piece.local_key};
        }
        last_bytes_ += piece.bytes;
        bytes_ += piece.bytes;
        remote_end_ += piece.bytes;
        local_end_ = piece.local + piece.bytes;
        return true;
      }
    }
  }
  ibv_send_wr* const request = fresh(opcode);
  if (request == nullptr) return false;
  request->wr.rdma.remote_addr = piece.remote;
  request->wr.rdma.rkey = piece.remote_key;
  request->sg_list[0] = {piece.local, piece.bytes, piece.local_key};
  request->num_sge = 1;
  last_bytes_ = piece.bytes;
  bytes_ += piece.bytes;
  remote_end_ = piece.remote + piece.bytes;
  local_end_ = piece.local + piece.bytes;
  return true;
}

bool Chain::announce(uint32_t immediate) {
  const bool carries = size_ != first_ && last().opcode == IBV_WR_RDMA_WRITE;
  ibv_send_wr* const request = carries ? &last() : fresh(IBV_WR_RDMA_WRITE_WITH_IMM);
  if (request == nullptr) return false;
  request->opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request->imm_data = htobe32(immediate);
  receives_++;
  return true;
}

bool Chain::message(uint64_t local, uint32_t local_key, uint32_t bytes) {
  ibv_send_wr* const request = fresh(IBV_WR_SEND);
  if (request == nullptr) return false;
  request->sg_list[0] = {local, bytes, local_key};
  request->num_sge = 1;
  if (bytes <= options_.inline_bytes) request->send_flags = IBV_SEND_INLINE;
  receives_++;
  bytes_ += bytes;
  return true;
}

bool Chain::write_control(const Piece& piece) {
  ibv_send_wr* const request = fresh(IBV_WR_RDMA_WRITE);
  if (request == nullptr) return false;
  request->wr.rdma.remote_addr = piece.remote;
  request->wr.rdma.rkey = piece.remote_key;
  request->sg_list[0] = {piece.local, piece.bytes, piece.local_key};
  request->num_sge = 1;
  if (piece.bytes <= options_.inline_bytes) request->send_flags = IBV_SEND_INLINE;
  bytes_ += piece.bytes;
  remote_end_ = 0;  // nothing continues it
  return true;
}

void Chain::drop_front(uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const ibv_wr_opcode opcode = requests_[first_ + i].opcode;
    if (opcode == IBV_WR_SEND || opcode == IBV_WR_RDMA_WRITE_WITH_IMM) receives_--;
  }
  first_ += count;
}

}  // namespace dualpath::verbs
