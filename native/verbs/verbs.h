// The verbs this package uses, with libibverbs' own types and meaning (man pages of rdma-core): calls that
// the library exports are methods here, implemented by the library opened at run time (library.h) and by the
// strict stub provider (stub/fabric.h). Calls that rdma-core defines inline (ibv_post_send, ibv_post_recv,
// ibv_poll_cq, ibv_req_notify_cq) go through the context's own table and are used as they are.
#pragma once
#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace dualpath::verbs {

class Verbs {
 public:
  virtual ~Verbs() = default;
  virtual const char* provider() const = 0;  // as reports name it
  // Whether a process may fork with memory registered: ibv_fork_init(3).
  virtual bool fork_safe() const { return true; }

  virtual ibv_device** get_device_list(int* count) = 0;
  virtual void free_device_list(ibv_device** list) = 0;
  virtual ibv_context* open_device(ibv_device* device) = 0;
  virtual int close_device(ibv_context* context) = 0;
  virtual int query_device(ibv_context* context, ibv_device_attr* out) = 0;
  virtual int query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) = 0;
  virtual int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* out) = 0;

  virtual ibv_pd* alloc_pd(ibv_context* context) = 0;
  virtual int dealloc_pd(ibv_pd* pd) = 0;
  virtual ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) = 0;
  // nullptr with errno EOPNOTSUPP where the library is older than rdma-core 34.
  virtual ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                                int access) = 0;
  virtual int dereg_mr(ibv_mr* mr) = 0;

  virtual ibv_comp_channel* create_comp_channel(ibv_context* context) = 0;
  virtual int destroy_comp_channel(ibv_comp_channel* channel) = 0;
  virtual ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context,
                            ibv_comp_channel* channel) = 0;
  virtual int destroy_cq(ibv_cq* cq) = 0;
  virtual int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) = 0;
  virtual void ack_cq_events(ibv_cq* cq, unsigned count) = 0;

  virtual ibv_qp* create_qp(ibv_pd* pd,
                            ibv_qp_init_attr* init) = 0;  // writes the granted sizes into init->cap
  virtual int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) = 0;
  virtual int destroy_qp(ibv_qp* qp) = 0;

  virtual int get_async_event(ibv_context* context, ibv_async_event* out) = 0;
  virtual void ack_async_event(ibv_async_event* event) = 0;
};

}  // namespace dualpath::verbs
