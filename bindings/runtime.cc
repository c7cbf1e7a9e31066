#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "objects.h"

namespace dualpath::bindings {

// Outlives the JavaScript object: libuv and the reactor both refer to it.
struct RuntimeObject::Poll {
  uv_poll_t handle{};
  int fd = -1;
  Napi::Env env{nullptr};
  Napi::FunctionReference on_wake;
  napi_async_cleanup_hook_handle hook = nullptr;
  RuntimeObject* runtime = nullptr;
  bool closing = false;

  void close() {
    if (closing) return;
    closing = true;
    uv_poll_stop(&handle);
    uv_close(reinterpret_cast<uv_handle_t*>(&handle), [](uv_handle_t* closed) {
      Poll* poll = static_cast<Poll*>(closed->data);
      ::close(poll->fd);
      if (poll->hook != nullptr) napi_remove_async_cleanup_hook(poll->hook);
      delete poll;
    });
  }
};

void RuntimeObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Runtime", DefineClass(env, "Runtime",
                                     {InstanceMethod<&RuntimeObject::close>("close"),
                                      InstanceMethod<&RuntimeObject::facts>("facts"),
                                      InstanceMethod<&RuntimeObject::set_faults>("setFaults")}));
}

// {storageIo?: 'auto' | 'io_uring' | 'thread_pool'}
bool parse_storage_io(Napi::Env env, Napi::Value value, StorageIo* storage_io) {
  if (value.IsUndefined()) return true;
  Options options(env, value);
  if (!options.has("storageIo")) return options.ok();
  const std::string name = options.string("storageIo");
  for (const StorageIo io : {StorageIo::kUring, StorageIo::kThreadPool}) {
    if (name == storage_io_name(io)) *storage_io = io;
  }
  if (*storage_io == StorageIo::kAuto && name != "auto")
    options.fail("storageIo", "'auto', 'io_uring' or 'thread_pool'");
  return options.ok();
}

RuntimeObject::RuntimeObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  if (!info[0].IsFunction()) {
    throw_argument(env, "onWake", "a function");
    return;
  }
  StorageIo storage_io = StorageIo::kAuto;
  if (!parse_storage_io(env, info[1], &storage_io)) return;
  const Status status = Reactor::create(&reactor_, storage_io);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  uv_loop_t* loop = nullptr;
  napi_get_uv_event_loop(env, &loop);
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    throw_status(
        env, Status::error("MEMORY_LIMIT", "no eventfd: raise the limit of open files (ulimit -n)", errno));
    return;
  }
  poll_ = new Poll();
  poll_->fd = fd;
  poll_->env = env;
  poll_->runtime = this;
  poll_->on_wake = Napi::Persistent(info[0].As<Napi::Function>());
  poll_->on_wake.SuppressDestruct();
  poll_->handle.data = poll_;
  if (const int rc = uv_poll_init(loop, &poll_->handle, fd); rc != 0) {
    ::close(fd);
    poll_->on_wake.Reset();
    delete poll_;
    poll_ = nullptr;
    throw_status(env, Status::error("INTERNAL", std::string("uv_poll_init: ") + uv_strerror(rc), -rc));
    return;
  }
  uv_poll_start(&poll_->handle, UV_READABLE, on_readable);
  napi_add_async_cleanup_hook(env, on_cleanup, poll_, &poll_->hook);
}

RuntimeObject::~RuntimeObject() { stop(); }

Reactor* RuntimeObject::reactor() {
  if (reactor_ == nullptr) throw_status(Env(), Status::error("CLOSED", "the runtime has been closed"));
  return reactor_.get();
}

std::function<void()> RuntimeObject::wake_function() const {
  return [fd = poll_->fd] {
    const uint64_t one = 1;
    [[maybe_unused]] ssize_t n = ::write(fd, &one, sizeof one);
  };
}

// Peers first: what they send to an engine that nobody carries would be waited for in vain. Then the threads,
// then the handle they ring.
void RuntimeObject::stop() {
  for (auto& weak : servers_) {
    if (auto server = weak.lock()) server->stop();
  }
  for (auto& weak : engines_) {
    if (auto engine = weak.lock()) engine->request_close();
  }
  for (auto& weak : gpus_) {
    if (auto gpu = weak.lock()) gpu->stop();
  }
  reactor_.reset();
  if (poll_ == nullptr) return;
  poll_->runtime = nullptr;
  poll_->on_wake.Reset();
  poll_->close();
  poll_ = nullptr;
}

Napi::Value RuntimeObject::close(const Napi::CallbackInfo& info) {
  stop();
  return info.Env().Undefined();
}

void RuntimeObject::on_readable(uv_poll_t* handle, int, int) {
  Poll* poll = static_cast<Poll*>(handle->data);
  uint64_t count;
  [[maybe_unused]] ssize_t n = ::read(poll->fd, &count, sizeof count);
  if (poll->runtime == nullptr) return;
  Napi::HandleScope scope(poll->env);
  napi_value global;
  napi_value ignored;
  napi_get_global(poll->env, &global);
  napi_make_callback(poll->env, nullptr, global, poll->on_wake.Value(), 0, nullptr, &ignored);
}

void RuntimeObject::on_cleanup(napi_async_cleanup_hook_handle, void* data) {
  Poll* poll = static_cast<Poll*>(data);
  if (poll->runtime != nullptr) {
    poll->runtime->stop();
  } else {
    poll->close();
  }
}

// {storageIo, storageIoRefused, registeredArenas, unregisteredArenas, registerErrno}
Napi::Value RuntimeObject::facts(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (reactor() == nullptr) return env.Undefined();
  const StorageIoFacts& facts = reactor_->storage_io();
  Napi::Object out = Napi::Object::New(env);
  out.Set("storageIo", storage_io_name(facts.io));
  out.Set("storageIoRefused", facts.refused);
  out.Set("registeredArenas", number(env, facts.registered_arenas.load(std::memory_order_relaxed)));
  out.Set("unregisteredArenas", number(env, facts.unregistered_arenas.load(std::memory_order_relaxed)));
  out.Set("registerErrno", Napi::Number::New(env, facts.register_errno.load(std::memory_order_relaxed)));
  return out;
}

Napi::Value RuntimeObject::set_faults(const Napi::CallbackInfo& info) {
  Options options(info.Env(), info[0]);
  if (reactor() == nullptr) return info.Env().Undefined();
  FaultPlan& faults = reactor_->faults();
  faults.short_read_bytes = options.u32("shortReadBytes");
  faults.short_write_bytes = options.u32("shortWriteBytes");
  faults.register_errno = static_cast<int32_t>(options.u32("registerErrno"));
  faults.read_errno = static_cast<int32_t>(options.u32("readErrno"));
  faults.read_error_after = static_cast<int64_t>(options.u64("readErrorAfter"));
  faults.write_errno = static_cast<int32_t>(options.u32("writeErrno"));
  faults.write_error_after = static_cast<int64_t>(options.u64("writeErrorAfter"));
  faults.flip_byte_after = static_cast<int64_t>(options.u64("flipByteAfter"));
  faults.accept_bad_blocks = options.u32("acceptBadBlocks");
  faults.read_delay_ns = options.u64("readDelayNs");
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
