// The JavaScript classes of the add-on. Each wraps shared native objects; nothing here decides anything.
#pragma once
#include <uv.h>

#include <memory>
#include <vector>

#include "args.h"
#include "core/nic_link.h"
#include "core/rate_link.h"
#include "emulation/stream.h"
#include "external.h"
#include "lookup.h"
#include "memory/arena.h"
#include "memory/block_pool.h"
#include "memory/page_table.h"
#include "memory/region.h"
#include "store/block_store.h"
#include "store/chain_cache.h"
#include "transfer/door_server.h"
#include "transfer/reactor.h"

namespace dualpath::verbs {
class LoadEnd;
}

namespace dualpath::bindings {

class ArenaObject : public Wrap<ArenaObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit ArenaObject(const Napi::CallbackInfo& info);
  ~ArenaObject() override;
  const std::shared_ptr<Arena>& arena() const { return arena_; }

 private:
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value buffer(const Napi::CallbackInfo& info);
  Napi::Value read(const Napi::CallbackInfo& info);
  Napi::Value write(const Napi::CallbackInfo& info);
  bool range(const Napi::CallbackInfo& info, uint64_t bytes, uint64_t* offset);
  bool reachable(Napi::Env env) const;  // false with an exception pending
  std::shared_ptr<Arena> arena_;
  Napi::Reference<Napi::ArrayBuffer> buffer_;
};

// Memory of an engine's own; holds what keeps it alive. Engines hold the regions of their geometries.
class RegionObject : public Wrap<RegionObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RegionObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<Region>& region() const { return region_; }
  bool there() const;  // false for a buffer that has been transferred away

 private:
  Status adopt_buffer(Options& options, std::string name, ArenaKind kind);
  Status adopt_address(Options& options, std::string name, ArenaKind kind);
  Napi::Value facts(const Napi::CallbackInfo& info);
  std::shared_ptr<Region> region_;
  Napi::ObjectReference kept_;  // the buffer, or the owner of the address
};

class RateLinkObject : public Wrap<RateLinkObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RateLinkObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<RateLink>& link() const { return link_; }

 private:
  Napi::Value statistics(const Napi::CallbackInfo& info);
  std::shared_ptr<RateLink> link_;
};

// One direction of a compute NIC: a rate, and an arbiter between traffic classes.
class NicLinkObject : public Wrap<NicLinkObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit NicLinkObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<NicLink>& link() const { return link_; }

 private:
  Napi::Value statistics(const Napi::CallbackInfo& info);
  std::shared_ptr<NicLink> link_;
};

class StoreObject : public Wrap<StoreObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit StoreObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<store::BlockStore>& store() const { return store_; }
  const std::shared_ptr<store::ChainCache>& chains() const { return chains_; }  // null: none wanted

 private:
  struct Opening;
  struct OpeningJob;
  static Napi::Value open(const Napi::CallbackInfo& info);
  Napi::Value facts(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);
  std::shared_ptr<store::BlockStore> store_;
  std::shared_ptr<store::ChainCache> chains_;
};

// False, with an exception pending, when `value` is neither undefined nor such options.
bool parse_storage_io(Napi::Env env, Napi::Value value, StorageIo* storage_io);

// A reactor and the way its records wake this environment's event loop: an eventfd watched by uv_poll
// (thread-safe functions abort when a worker is terminated with calls under way).
class RuntimeObject : public Wrap<RuntimeObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RuntimeObject(const Napi::CallbackInfo& info);
  ~RuntimeObject() override;

  Reactor* reactor();
  std::function<void()> wake_function() const;
  // What has to be told when the runtime stops.
  void keep(const std::shared_ptr<emulation::EmulatedGpu>& gpu) { keep_in(gpus_, gpu); }
  void keep(const std::shared_ptr<TransferEngine>& engine) { keep_in(engines_, engine); }
  void keep(const std::shared_ptr<DoorServer>& server) { keep_in(servers_, server); }

 private:
  struct Poll;
  Napi::Value close(const Napi::CallbackInfo& info);
  Napi::Value facts(const Napi::CallbackInfo& info);
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
  std::vector<std::weak_ptr<DoorServer>> servers_;
  Poll* poll_ = nullptr;  // freed when libuv has closed its handle
};

class EngineObject : public Wrap<EngineObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit EngineObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<TransferEngine>& engine() const { return engine_; }
  RuntimeObject* runtime() const { return runtime_; }

 private:
  Napi::Value door(const Napi::CallbackInfo& info);
  Napi::Value door_layout(const Napi::CallbackInfo& info);
  Napi::Value submission_head(const Napi::CallbackInfo& info);
  Napi::Value publish(const Napi::CallbackInfo& info);
  Napi::Value take_records(const Napi::CallbackInfo& info);
  Napi::Value counter(const Napi::CallbackInfo& info);
  Napi::Value zero_counters(const Napi::CallbackInfo& info);
  Napi::Value counter_handle(const Napi::CallbackInfo& info);
  Napi::Value write_slots(const Napi::CallbackInfo& info);
  Napi::Value read_slots(const Napi::CallbackInfo& info);
  Napi::Value doorbell(const Napi::CallbackInfo& info);
  Napi::Value add_geometry(const Napi::CallbackInfo& info);
  Napi::Value add_pages(const Napi::CallbackInfo& info);
  Napi::Value write_pages(const Napi::CallbackInfo& info);
  Napi::Value add_if_ok(Napi::Env env, Status status, std::shared_ptr<const Geometry> geometry);
  Napi::Value connect(const Napi::CallbackInfo& info);
  Napi::Value cancel(const Napi::CallbackInfo& info);
  Napi::Value hash(const Napi::CallbackInfo& info);
  Napi::Value cancel_hash(const Napi::CallbackInfo& info);
  Napi::Value release(const Napi::CallbackInfo& info);
  Napi::Value block_path(const Napi::CallbackInfo& info);
  Napi::Value request_close(const Napi::CallbackInfo& info);
  Napi::Value detach(const Napi::CallbackInfo& info);
  Napi::Value statistics(const Napi::CallbackInfo& info);

  std::shared_ptr<TransferEngine> engine_;
  const std::shared_ptr<Lookups> lookups_ = std::make_shared<Lookups>();
  RuntimeObject* runtime_ = nullptr;
  StorageIo storage_io_ = StorageIo::kUring;
  Napi::ObjectReference runtime_reference_;
  std::vector<Napi::ObjectReference> regions_;  // of the geometries
  PageTableReader pages_;
};

// Gives an engine's shared door to other processes. An engine cannot stop while it does: close() first.
class DoorServerObject : public Wrap<DoorServerObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit DoorServerObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value state(const Napi::CallbackInfo& info);
  Napi::Value take_memory(const Napi::CallbackInfo& info);
  Napi::Value answer(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
  std::shared_ptr<DoorServer> server_;
};

// Slots of a geometry, taken and given back as lists in the door's slot table.
class BlockPoolObject : public Wrap<BlockPoolObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit BlockPoolObject(const Napi::CallbackInfo& info);

 private:
  bool range(const Napi::CallbackInfo& info, uint32_t* offset, uint32_t* count);
  Napi::Value available(const Napi::CallbackInfo& info);
  Napi::Value take(const Napi::CallbackInfo& info);
  Napi::Value share(const Napi::CallbackInfo& info);
  Napi::Value give_back(const Napi::CallbackInfo& info);
  std::shared_ptr<Door> door_;
  std::unique_ptr<BlockPool> pool_;
};

class KvSeedsObject : public Wrap<KvSeedsObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit KvSeedsObject(const Napi::CallbackInfo& info);
  const std::shared_ptr<const std::vector<uint64_t>>& seeds() const { return seeds_; }

 private:
  std::shared_ptr<const std::vector<uint64_t>> seeds_;
};

class EmulatedGpuObject : public Wrap<EmulatedGpuObject> {
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

// One end of a benchmark's load (native/verbs/load.h).
class RdmaLoadObject : public Wrap<RdmaLoadObject> {
 public:
  static void define(Napi::Env env, Napi::Object exports);
  explicit RdmaLoadObject(const Napi::CallbackInfo& info);

 private:
  bool is_open(Napi::Env env) const;
  Napi::Value address(const Napi::CallbackInfo& info);
  Napi::Value connect(const Napi::CallbackInfo& info);
  Napi::Value run(const Napi::CallbackInfo& info);
  Napi::Value stop(const Napi::CallbackInfo& info);
  Napi::Value close(const Napi::CallbackInfo& info);
  std::shared_ptr<verbs::LoadEnd> end_;
};

// Sizes and offsets of every field of dualpath_ring.h, for the test that holds TypeScript against them.
Napi::Value describe_abi(const Napi::CallbackInfo& info);
// What posting work requests costs, against the strict stub provider.
Napi::Value measure_post_cost(const Napi::CallbackInfo& info);
Napi::Value work_status_text(const Napi::CallbackInfo& info);

// bench.cc
Napi::Value run_storage_load(const Napi::CallbackInfo& info);
Napi::Value lay_out_storage_file(const Napi::CallbackInfo& info);

}  // namespace dualpath::bindings
