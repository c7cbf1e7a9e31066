// A strict stub provider: RDMA devices of this process, under libibverbs' own structures, for tests and for
// measuring what posting costs. It is emulation, and says so as its provider's name: no NIC, no wire. Writes
// and reads really copy registered memory, some time after they were posted. Where providers differ it is the
// strictest of them:
//   - a send-queue slot is free only once a later signalled completion has been polled (soft-RoCE frees the
//   slots
//     of unsignalled requests by itself, hardware does not);
//   - data moves late, completions come later still, in any order between queue pairs, in order within one;
//   - completion queues hold exactly what was asked for, and overflow kills them;
//   - immediates and sends consume a posted receive; without one they are tried again rnr_retry times;
//   - keys, bounds, access flags, protection domains, state changes and path parameters are all checked.
#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "verbs/stub/objects.h"
#include "verbs/verbs.h"

namespace dualpath::verbs::stub {

struct StubOptions {
  uint64_t seed = 1;
  uint32_t devices = 2;  // named stub0, stub1, ...
  bool shuffled = true;  // false: every poll runs everything that is posted, in order
  // Works by itself, too, as long as there is work: for users who sleep until completions come.
  bool own_thread = false;
  uint64_t memlock_bytes = UINT64_MAX;
  uint32_t max_send_wr = 32768;
  uint32_t max_send_sge = 16;
  uint32_t max_inline_bytes = 512;
  uint32_t max_cq_entries = 32767;
  ibv_mtu active_mtu = IBV_MTU_4096;
  uint8_t link_layer = IBV_LINK_LAYER_ETHERNET;
  // As nvidia-peermem: where the memory behind a GPU's address lies, nullptr where it is none; nullptr: there
  // is no such module.
  void* (*peer_memory)(void* address, size_t bytes) = nullptr;
};

struct StubCounters {
  uint64_t post_calls = 0;
  uint64_t requests = 0;
  uint64_t writes = 0, writes_with_immediate = 0, reads = 0, sends = 0;  // of requests
  uint64_t signalled = 0, inlined = 0;
  uint64_t receives = 0;
  uint64_t completions = 0;  // polled
  uint64_t errors = 0;       // of completions
  uint64_t most_outstanding = 0;
  uint64_t refused_full = 0;  // requests refused because the send queue was full
};

class StubFabric final : public Verbs {
 public:
  explicit StubFabric(const StubOptions& options = {});
  ~StubFabric() override;
  // One of the whole process for each name, as long as somebody holds it; options are those of the first.
  static std::shared_ptr<StubFabric> named(const std::string& name, const StubOptions& options);

  // Tests' side. All may be called from any thread.
  void step();  // lets the devices work for a moment, as polling does
  StubCounters counters();
  bool set_link(uint32_t device, bool up);  // false: there is no such device
  // The nth request from now to run on this queue pair (0: any) ends with this status; half its bytes have
  // moved.
  void fail_request(uint32_t qp_num, uint32_t nth, ibv_wc_status status);
  // The nth request from now to be posted is refused with this errno.
  void fail_post(uint32_t nth, int error);
  void fail_completion_queues(uint32_t device);  // those there are, as an overflow would
  void set_memlock(uint64_t bytes);
  uint32_t objects();       // alive, over all contexts
  void pause(bool paused);  // nothing moves and nothing completes meanwhile

  const char* provider() const override { return "strict stub (emulated, no RDMA device)"; }
  ibv_device** get_device_list(int* count) override;
  void free_device_list(ibv_device** list) override;
  ibv_context* open_device(ibv_device* device) override;
  int close_device(ibv_context* context) override;
  int query_device(ibv_context* context, ibv_device_attr* out) override;
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) override;
  int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* out) override;
  ibv_pd* alloc_pd(ibv_context* context) override;
  int dealloc_pd(ibv_pd* pd) override;
  ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) override;
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                        int access) override;
  int dereg_mr(ibv_mr* mr) override;
  ibv_comp_channel* create_comp_channel(ibv_context* context) override;
  int destroy_comp_channel(ibv_comp_channel* channel) override;
  ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel) override;
  int destroy_cq(ibv_cq* cq) override;
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override;
  void ack_cq_events(ibv_cq* cq, unsigned count) override;
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) override;
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override;
  int destroy_qp(ibv_qp* qp) override;
  int get_async_event(ibv_context* context, ibv_async_event* out) override;
  void ack_async_event(ibv_async_event* event) override;

 private:
  struct Fault {
    uint32_t qp_num;
    uint32_t left;
    ibv_wc_status status;
  };

  // posting.cc: the context's own table
  static int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad_wr);
  static int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad_wr);
  static int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
  static int req_notify_cq(ibv_cq* cq, int solicited_only);
  int queue_send(StubQp& qp, const ibv_send_wr& wr);
  int poll(StubCq& cq, int count, ibv_wc* wc);

  // execution.cc: what a NIC does by itself
  void advance();
  bool turn(StubQp& qp);
  bool run_next(StubQp& qp);
  ibv_wc_status transfer(StubQp& qp, const SendEntry& entry, StubQp* peer, uint64_t bytes);
  ibv_wc_status receive(StubQp& qp, const SendEntry& entry, StubQp& peer, uint64_t bytes);
  void finish(StubQp& qp, ibv_wc_status status, uint64_t bytes);
  void fail_queue_pair(StubQp& qp);
  void complete(StubQp& qp, const Completion& completion);
  bool deliver(StubQp& qp);
  StubQp* peer_of(StubQp& qp, ibv_wc_status* status);
  bool strikes(const StubQp& qp, ibv_wc_status* status);
  StubMr* find(uint32_t key, bool remote);
  std::byte* resolve(const StubQp& qp, uint32_t key, bool remote, uint64_t address, uint64_t bytes,
                     int access);
  bool gather(StubQp& qp, const SendEntry& entry, std::byte* to, uint64_t bytes, bool write_back);
  void raise(StubContext& context, ibv_event_type type, void* element);

  // worker.cc
  bool has_work();
  void work();

  // connecting.cc
  int to_init(StubQp& qp, const ibv_qp_attr& attr, int mask);
  int to_rtr(StubQp& qp, const ibv_qp_attr& attr, int mask);
  int to_rts(StubQp& qp, const ibv_qp_attr& attr, int mask);

  ibv_mr* add_mr(ibv_pd* pd, std::unique_ptr<StubMr> mr, size_t bytes);

  const StubOptions options_;
  std::mutex mutex_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<StubDevice>> devices_;
  std::unordered_map<uint32_t, std::unique_ptr<StubMr>> regions_;  // by number
  std::unordered_map<uint32_t, std::unique_ptr<StubQp>> queue_pairs_;
  std::vector<StubQp*> order_;  // of turns
  uint32_t next_region_ = 1;
  uint32_t next_qp_num_ = 0x11;
  uint64_t locked_bytes_ = 0;
  uint64_t memlock_bytes_;
  std::vector<Fault> faults_;
  uint32_t post_fault_in_ = 0;
  int post_fault_errno_ = 0;
  StubCounters counters_;
  bool paused_ = false;
  bool stopping_ = false;
  std::condition_variable work_;  // something was posted
  std::thread thread_;
};

}  // namespace dualpath::verbs::stub
