// The JavaScript classes of the add-on. Each wraps shared native objects; nothing here decides anything.
#pragma once
#include <uv.h>

#include <memory>
#include <vector>

#include "args.h"
#include "core/rate_link.h"
#include "emulation/stream.h"
#include "memory/arena.h"
#include "memory/block_pool.h"
#include "store/block_store.h"
#include "transfer/reactor.h"

namespace dualpath::bindings {

class ArenaObject : public Napi::ObjectWrap<ArenaObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit ArenaObject(const Napi::CallbackInfo& info);
  ~ArenaObject() override;
  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value buffer(const Napi::CallbackInfo& info);
  std::shared_ptr<Arena> arena_;
  Napi::Reference<Napi::ArrayBuffer> buffer_;
};

class RateLinkObject : public Napi::ObjectWrap<RateLinkObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RateLinkObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<RateLink>& link() const { return link_; }

 private:
  Napi::Value statistics(const Napi::CallbackInfo& info);
  std::shared_ptr<RateLink> link_;
};

class StoreObject : public Napi::ObjectWrap<StoreObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit StoreObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<store::BlockStore>& store() const { return store_; }

 private:
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);
  std::shared_ptr<store::BlockStore> store_;
};

// A reactor and the way its records wake this environment's event loop: an eventfd watched by uv_poll
// (thread-safe functions abort when a worker is terminated with calls under way).
class RuntimeObject : public Napi::ObjectWrap<RuntimeObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RuntimeObject(const Napi::CallbackInfo& info);
  ~RuntimeObject() override;

  Reactor* reactor();
  std::function<void()> wake_function() const;
  // What has to be told when the runtime stops.
  void keep(const std::shared_ptr<emulation::EmulatedGpu>& gpu) { keep_in(gpus_, gpu); }
  void keep(const std::shared_ptr<TransferEngine>& engine) { keep_in(engines_, engine); }

 private:
  struct Poll;
  Napi::Value close(const Napi::CallbackInfo& info);
  Napi::Value set_faults(const Napi::CallbackInfo& info);
  void stop();
  template <typename T>
  static void keep_in(std::vector<std::weak_ptr<T>>& kept, const std::shared_ptr<T>& object) {
    std::erase_if(kept, [](const auto& weak) { return weak.expired(); });
    kept.push_back(object);
  }
  static void on_readable(uv_poll_t* handle, int status, int events);
  static void on_cleanup(napi_async_cleanup_hook_handle hook, void* data);

  std::unique_ptr<Reactor> reactor_;
  std::vector<std::weak_ptr<emulation::EmulatedGpu>> gpus_;
  std::vector<std::weak_ptr<TransferEngine>> engines_;
  Poll* poll_ = nullptr;  // freed when libuv has closed its handle
};

class EngineObject : public Napi::ObjectWrap<EngineObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit EngineObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<TransferEngine>& engine() const { return engine_; }
  RuntimeObject* runtime() const { return runtime_; }

 private:
  Napi::Value door(const Napi::CallbackInfo& info);
  Napi::Value doorbell(const Napi::CallbackInfo& info);
  Napi::Value add_geometry(const Napi::CallbackInfo& info);
  Napi::Value connect(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);
  Napi::Value hash(const Napi::CallbackInfo& info);
  Napi::Value block_path(const Napi::CallbackInfo& info);
  Napi::Value request_close(const Napi::CallbackInfo& info);
  Napi::Value detach(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);

  std::shared_ptr<TransferEngine> engine_;
  RuntimeObject* runtime_ = nullptr;
  Napi::ObjectReference runtime_reference_;
};

// Slots of a geometry, taken and given back as lists in the door's slot table.
class BlockPoolObject : public Napi::ObjectWrap<BlockPoolObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit BlockPoolObject(const Napi::CallbackInfo& info);

 private:
  bool range(const Napi::CallbackInfo& info, uint32_t* offset, uint32_t* count);
  Napi::Value available(const Napi::CallbackInfo& info);
  Napi::Value take(const Napi::CallbackInfo& info);
  Napi::Value give_back(const Napi::CallbackInfo& info);
  std::shared_ptr<Door> door_;
  std::unique_ptr<BlockPool> pool_;
};

class KvSeedsObject : public Napi::ObjectWrap<KvSeedsObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit KvSeedsObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<const std::vector<uint64_t>>& seeds() const { return seeds_; }

 private:
  std::shared_ptr<const std::vector<uint64_t>> seeds_;
};

class EmulatedGpuObject : public Napi::ObjectWrap<EmulatedGpuObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit EmulatedGpuObject(const Napi::CallbackInfo& info);

 private:
  bool parse_body(Napi::Env env, Napi::Value value, emulation::KernelBody* body);
  Napi::Value launch(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
  std::shared_ptr<TransferEngine> engine_;
  std::shared_ptr<emulation::EmulatedGpu> gpu_;
  uint32_t lanes_ = 0;
};

// Sizes and offsets of every field of dualpath_ring.h, for the test that holds TypeScript against them.
Napi::Value describe_abi(const Napi::CallbackInfo& info);
// What posting work requests costs, against the strict stub provider.
Napi::Value measure_post_cost(const Napi::CallbackInfo& info);

}  // namespace dualpath::bindings
