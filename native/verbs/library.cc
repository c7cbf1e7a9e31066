#include "verbs/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include <mutex>

// rdma-core wraps these in macros that call further exported symbols; here the symbols themselves are called.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_get_device_list

namespace dualpath::verbs {
namespace {

struct Functions {
  decltype(&ibv_get_device_list) get_device_list = nullptr;
  decltype(&ibv_free_device_list) free_device_list = nullptr;
  decltype(&ibv_open_device) open_device = nullptr;
  decltype(&ibv_close_device) close_device = nullptr;
  decltype(&ibv_query_device) query_device = nullptr;
  decltype(&ibv_query_port) query_port = nullptr;
  decltype(&ibv_query_gid) query_gid = nullptr;
  decltype(&ibv_alloc_pd) alloc_pd = nullptr;
  decltype(&ibv_dealloc_pd) dealloc_pd = nullptr;
  ibv_mr* (*reg_mr)(ibv_pd*, void*, size_t, int) = nullptr;
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd*, uint64_t, size_t, uint64_t, int, int) = nullptr;
  decltype(&ibv_dereg_mr) dereg_mr = nullptr;
  decltype(&ibv_create_comp_channel) create_comp_channel = nullptr;
  decltype(&ibv_destroy_comp_channel) destroy_comp_channel = nullptr;
  decltype(&ibv_create_cq) create_cq = nullptr;
  decltype(&ibv_destroy_cq) destroy_cq = nullptr;
  decltype(&ibv_get_cq_event) get_cq_event = nullptr;
  decltype(&ibv_ack_cq_events) ack_cq_events = nullptr;
  decltype(&ibv_create_qp) create_qp = nullptr;
  decltype(&ibv_modify_qp) modify_qp = nullptr;
  decltype(&ibv_destroy_qp) destroy_qp = nullptr;
  decltype(&ibv_get_async_event) get_async_event = nullptr;
  decltype(&ibv_ack_async_event) ack_async_event = nullptr;
  decltype(&ibv_fork_init) fork_init = nullptr;
  decltype(&ibv_is_fork_initialized) is_fork_initialized = nullptr;
};

class Loader {
 public:
  explicit Loader(void* library) : library_(library) {}

  // The version pins the meaning: libibverbs keeps symbols of its old interface under IBVERBS_1.0.
  template <typename F>
  void need(const char* symbol, const char* version, F* out) {
    *out = reinterpret_cast<F>(dlvsym(library_, symbol, version));
    if (*out == nullptr && missing_.empty()) missing_ = std::string(symbol) + "@" + version;
  }
  template <typename F>
  void want(const char* symbol, const char* version, F* out) {
    *out = reinterpret_cast<F>(dlvsym(library_, symbol, version));
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string load(void* library, Functions* f) {
  Loader loader(library);
  loader.need("ibv_get_device_list", "IBVERBS_1.1", &f->get_device_list);
  loader.need("ibv_free_device_list", "IBVERBS_1.1", &f->free_device_list);
  loader.need("ibv_open_device", "IBVERBS_1.1", &f->open_device);
  loader.need("ibv_close_device", "IBVERBS_1.1", &f->close_device);
  loader.need("ibv_query_device", "IBVERBS_1.1", &f->query_device);
  loader.need("ibv_query_port", "IBVERBS_1.1", &f->query_port);
  loader.need("ibv_query_gid", "IBVERBS_1.1", &f->query_gid);
  loader.need("ibv_alloc_pd", "IBVERBS_1.1", &f->alloc_pd);
  loader.need("ibv_dealloc_pd", "IBVERBS_1.1", &f->dealloc_pd);
  loader.need("ibv_reg_mr", "IBVERBS_1.1", &f->reg_mr);
  loader.want("ibv_reg_dmabuf_mr", "IBVERBS_1.12", &f->reg_dmabuf_mr);
  loader.need("ibv_dereg_mr", "IBVERBS_1.1", &f->dereg_mr);
  loader.need("ibv_create_comp_channel", "IBVERBS_1.0", &f->create_comp_channel);
  loader.need("ibv_destroy_comp_channel", "IBVERBS_1.0", &f->destroy_comp_channel);
  loader.need("ibv_create_cq", "IBVERBS_1.1", &f->create_cq);
  loader.need("ibv_destroy_cq", "IBVERBS_1.1", &f->destroy_cq);
  loader.need("ibv_get_cq_event", "IBVERBS_1.1", &f->get_cq_event);
  loader.need("ibv_ack_cq_events", "IBVERBS_1.1", &f->ack_cq_events);
  loader.need("ibv_create_qp", "IBVERBS_1.1", &f->create_qp);
  loader.need("ibv_modify_qp", "IBVERBS_1.1", &f->modify_qp);
  loader.need("ibv_destroy_qp", "IBVERBS_1.1", &f->destroy_qp);
  loader.need("ibv_get_async_event", "IBVERBS_1.1", &f->get_async_event);
  loader.need("ibv_ack_async_event", "IBVERBS_1.1", &f->ack_async_event);
  loader.want("ibv_fork_init", "IBVERBS_1.1", &f->fork_init);
  loader.want("ibv_is_fork_initialized", "IBVERBS_1.13", &f->is_fork_initialized);
  return loader.missing();
}

// Pages that a NIC uses must stay the parent's when a child is forked and either writes to them. Since
// Linux 5.12 the kernel copies them for the child; before, the library marks them (MADV_DONTFORK), if it is
// told so before memory is registered. ibv_fork_init(3).
bool prepare_for_fork(const Functions& f) {
  const bool needed = f.is_fork_initialized == nullptr || f.is_fork_initialized() == IBV_FORK_DISABLED;
  return !needed || (f.fork_init != nullptr && f.fork_init() == 0);
}

class Library final : public Verbs {
 public:
  // The library stays loaded for the life of the process: it does not survive dlclose with devices open.
  explicit Library(const Functions& functions) : f_(functions), fork_safe_(prepare_for_fork(functions)) {}

  const char* provider() const override { return "libibverbs"; }
  bool fork_safe() const override { return fork_safe_; }
  ibv_device** get_device_list(int* count) override { return f_.get_device_list(count); }
  void free_device_list(ibv_device** list) override { f_.free_device_list(list); }
  ibv_context* open_device(ibv_device* device) override { return f_.open_device(device); }
  int close_device(ibv_context* context) override { return f_.close_device(context); }
  int query_device(ibv_context* context, ibv_device_attr* out) override {
    return f_.query_device(context, out);
  }
  int query_port(ibv_context* context, uint8_t port, ibv_port_attr* out) override {
    memset(out, 0, sizeof *out);
    verbs_context* extended = verbs_get_ctx_op(context, query_port);
    if (extended != nullptr) return extended->query_port(context, port, out, sizeof *out);
    return f_.query_port(context, port, reinterpret_cast<_compat_ibv_port_attr*>(out));
  }
  int query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* out) override {
    return f_.query_gid(context, port, index, out);
  }
  ibv_pd* alloc_pd(ibv_context* context) override { return f_.alloc_pd(context); }
  int dealloc_pd(ibv_pd* pd) override { return f_.dealloc_pd(pd); }
  ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t bytes, int access) override {
    return f_.reg_mr(pd, address, bytes, access);
  }
  ibv_mr* reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t bytes, uint64_t iova, int fd,
                        int access) override {
    if (f_.reg_dmabuf_mr != nullptr) return f_.reg_dmabuf_mr(pd, offset, bytes, iova, fd, access);
    errno = EOPNOTSUPP;
    return nullptr;
  }
  int dereg_mr(ibv_mr* mr) override { return f_.dereg_mr(mr); }
  ibv_comp_channel* create_comp_channel(ibv_context* context) override {
    return f_.create_comp_channel(context);
  }
  int destroy_comp_channel(ibv_comp_channel* channel) override { return f_.destroy_comp_channel(channel); }
  ibv_cq* create_cq(ibv_context* context, int entries, void* cq_context, ibv_comp_channel* channel) override {
    return f_.create_cq(context, entries, cq_context, channel, 0);
  }
  int destroy_cq(ibv_cq* cq) override { return f_.destroy_cq(cq); }
  int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) override {
    return f_.get_cq_event(channel, cq, cq_context);
  }
  void ack_cq_events(ibv_cq* cq, unsigned count) override { f_.ack_cq_events(cq, count); }
  ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) override { return f_.create_qp(pd, init); }
  int modify_qp(ibv_qp* qp, ibv_qp_attr* attr, int mask) override { return f_.modify_qp(qp, attr, mask); }
  int destroy_qp(ibv_qp* qp) override { return f_.destroy_qp(qp); }
  int get_async_event(ibv_context* context, ibv_async_event* out) override {
    return f_.get_async_event(context, out);
  }
  void ack_async_event(ibv_async_event* event) override { f_.ack_async_event(event); }

 private:
  const Functions f_;
  const bool fork_safe_;
};

}  // namespace

Status open_library(std::shared_ptr<Verbs>* out, const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Status::error("RDMA_UNAVAILABLE",
                         "no RDMA: " + name +
                             " not found; install rdma-core's libibverbs (Debian: libibverbs1 and "
                             "ibverbs-providers), or use another transport");
  }
  Functions functions;
  const std::string missing = load(library, &functions);
  if (!missing.empty()) {
    dlclose(library);
    return Status::error("RDMA_UNAVAILABLE", "no RDMA: " + name + " has no " + missing +
                                                 "; install rdma-core 16 or later, or use another transport");
  }
  *out = std::make_shared<Library>(functions);
  return {};
}

Status process_library(std::shared_ptr<Verbs>* out) {
  static std::mutex mutex;
  static std::shared_ptr<Verbs>& library =
      *new std::shared_ptr<Verbs>();  // never destroyed: threads may use it
  std::lock_guard lock(mutex);
  if (library == nullptr) {
    const Status status = open_library(&library);
    if (!status.ok()) return status;
  }
  *out = library;
  return {};
}

}  // namespace dualpath::verbs
