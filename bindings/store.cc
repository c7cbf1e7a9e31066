#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "objects.h"
#include "store_tool.h"

namespace dualpath::bindings {

Napi::Object faults_value(Napi::Env env, const std::array<uint64_t, store::kBlockFaults>& faults) {
  constexpr const char* kNames[store::kBlockFaults] = {nullptr,          "truncated",     "notABlock",
                                                       "unknownVersion", "headerCorrupt", "foreign",
                                                       "wrongKey",       "wrongSize",     "layerCorrupt"};
  Napi::Object out = Napi::Object::New(env);
  for (size_t i = 1; i < store::kBlockFaults; ++i) out.Set(kNames[i], number(env, faults[i]));
  return out;
}

void StoreObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Store", DefineClass(env, "Store",
                                   {StaticMethod<&StoreObject::open>("open"),
                                    InstanceMethod<&StoreObject::facts>("facts"),
                                    InstanceMethod<&StoreObject::statistics>("statistics")}));
}

// Opening reads directories, and on a slow file system takes seconds.
struct StoreObject::Opening {
  std::string path;
  std::string identity;
  std::vector<uint64_t> layer_bytes;
  std::vector<uint8_t> salt;
  store::StoreOptions options;
  uint64_t chain_bytes = 0;
  std::unique_ptr<store::BlockStore> store;
  std::unique_ptr<store::ChainCache> chains;

  // False, with an exception pending, for what are no such options.
  bool parse(Napi::Env env, Napi::Value value) {
    Options from(env, value);
    path = from.string("path");
    identity = from.string("identity");
    options.create = from.boolean("create", true);
    if (from.has("namespace")) options.namespace_name = from.string("namespace");
    options.index_capacity = from.u64("indexCapacity", options.index_capacity);
    chain_bytes = from.u64("chainCacheBytes", size_t{64} << 20);
    options.capacity_bytes = from.u64("capacityBytes");
    const Napi::Value layers = from.get("layerBytes");
    if (!layers.IsArray()) from.fail("layerBytes", "an array");
    if (!from.ok()) return false;
    const Napi::Array array = layers.As<Napi::Array>();
    for (uint32_t i = 0; i < array.Length(); i++) layer_bytes.push_back(u64_of(array.Get(i)));
    if (!from.has("salt")) return true;
    const Napi::Value given = from.get("salt");
    if (!given.IsTypedArray() || given.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
      from.fail("salt", "a Uint8Array");
      return false;
    }
    const auto bytes = given.As<Napi::Uint8Array>();
    salt.assign(bytes.Data(), bytes.Data() + bytes.ByteLength());
    return true;
  }

  Status run() {
    store::BlockFormat format;
    Status status = store::BlockFormat::create(identity, layer_bytes, &format);
    if (status.ok()) status = store::BlockStore::open(path, format, salt, options, &store);
    if (status.ok() && chain_bytes > 0) status = store::ChainCache::create(chain_bytes, &chains);
    return status;
  }
};

// Plain napi_async_work, as in store_tool.cc.
struct StoreObject::OpeningJob {
  Opening opening;
  Status status;
  napi_ref store_class = nullptr;
  napi_deferred deferred = nullptr;
  napi_async_work work = nullptr;

  void execute() noexcept try { status = opening.run(); } catch (const std::bad_alloc&) {
    status = Status::error("MEMORY_LIMIT", "block store " + opening.path + ": no memory to open it");
  }

  void settle(napi_env env) {
    if (can_answer(env)) answer(env);
    napi_delete_reference(env, store_class);
    napi_delete_async_work(env, work);
  }

  void answer(napi_env env) {
    napi_value constructor = nullptr;
    napi_value opened = nullptr;
    napi_value object = nullptr;
    if (!status.ok()) {
      napi_reject_deferred(env, deferred, status_error(env, status).Value());
    } else if (napi_get_reference_value(env, store_class, &constructor) == napi_ok &&
               napi_create_external(env, &opening, nullptr, nullptr, &opened) == napi_ok &&
               napi_new_instance(env, constructor, 1, &opened, &object) == napi_ok) {
      napi_resolve_deferred(env, deferred, object);
    }
  }
};

// open(options) -> Promise of a Store: the same, off the JavaScript thread.
Napi::Value StoreObject::open(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  auto job = std::make_unique<OpeningJob>();
  if (!job->opening.parse(env, info[0])) return env.Undefined();
  napi_value name = nullptr;
  napi_value promise = nullptr;
  const auto execute = [](napi_env, void* data) { static_cast<OpeningJob*>(data)->execute(); };
  const auto complete = [](napi_env running, napi_status, void* data) {
    std::unique_ptr<OpeningJob>(static_cast<OpeningJob*>(data))->settle(running);
  };
  if (napi_create_string_utf8(env, "dualpath.store", NAPI_AUTO_LENGTH, &name) == napi_ok &&
      napi_create_reference(env, info.This(), 1, &job->store_class) == napi_ok &&
      napi_create_promise(env, &job->deferred, &promise) == napi_ok &&
      napi_create_async_work(env, nullptr, name, execute, complete, job.get(), &job->work) == napi_ok &&
      napi_queue_async_work(env, job->work) == napi_ok) {
    job.release();  // complete has it
    return {env, promise};
  }
  throw_status(env, Status::error("CLOSED", "the environment is ending"));
  return env.Undefined();
}

// {path, identity, layerBytes: number[], salt?: Uint8Array, create?, indexCapacity?, chainCacheBytes?,
// capacityBytes?, namespace?}, or what a job has opened.
StoreObject::StoreObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Opening here;
  Opening* opening = &here;
  if (info[0].IsExternal()) {
    opening = info[0].As<Napi::External<Opening>>().Data();
  } else {
    if (!here.parse(env, info[0])) return;
    if (const Status status = here.run(); !status.ok()) {
      throw_status(env, status);
      return;
    }
  }
  store_ = std::move(opening->store);
  chains_ = std::move(opening->chains);
}

Napi::Value StoreObject::facts(const Napi::CallbackInfo& info) {
  Napi::Object facts = Napi::Object::New(info.Env());
  facts.Set("path", store_->path());
  facts.Set("fileBytes", number(info.Env(), store_->format().file_bytes()));
  facts.Set("payloadBytes", number(info.Env(), store_->format().payload_bytes()));
  facts.Set("headerBytes", number(info.Env(), store::BlockFormat::kHeaderBytes));
  return facts;
}

Napi::Value StoreObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const store::StoreStatistics stat = store_->stat();
  Napi::Object out = Napi::Object::New(env);
  const std::pair<const char*, uint64_t> fields[] = {{"blocks", stat.blocks},
                                                     {"bytes", stat.bytes},
                                                     {"probes", stat.probes},
                                                     {"probeErrors", stat.probe_errors},
                                                     {"published", stat.published},
                                                     {"forgotten", stat.forgotten},
                                                     {"quarantined", stat.quarantined},
                                                     {"indexOverflows", stat.index_overflows},
                                                     {"indexResets", stat.index_resets},
                                                     {"capacityBytes", stat.capacity_bytes},
                                                     {"evictionsSeen", stat.evictions_seen},
                                                     {"evictedBlocks", stat.evictions.evicted_blocks},
                                                     {"evictedBytes", stat.evictions.evicted_bytes},
                                                     {"evictionFailures", stat.evictions.failures},
                                                     {"collections", stat.evictions.collections},
                                                     {"agesWritten", stat.ages.written},
                                                     {"agesDropped", stat.ages.dropped},
                                                     {"agesQueued", stat.ages.queued}};
  for (const auto& [name, value] : fields) out.Set(name, number(env, value));
  const store::ChainCacheStatistics chains =
      chains_ == nullptr ? store::ChainCacheStatistics{} : chains_->stat();
  out.Set("chainCacheBytes", number(env, chains.capacity_bytes));
  out.Set("chainCacheBlocks", number(env, chains.blocks));
  out.Set("chainHitBlocks", number(env, chains.hit_blocks));
  out.Set("chainMissBlocks", number(env, chains.miss_blocks));
  out.Set("chainEvictedBlocks", number(env, chains.evicted_blocks));
  Napi::Object misses = faults_value(env, stat.faults);
  misses.Set("vanished", number(env, stat.forgotten));
  out.Set("missesByCause", misses);
  out.Set("sharedWithHost", stat.shared);
  return out;
}

// release(keyOffset, held, stored): ends what a look-up holds of a chain in the key table, and ages the
// chain's stored blocks.
Napi::Value EngineObject::release(const Napi::CallbackInfo& info) {
  const uint32_t offset = u32_of(info[0]);
  const uint32_t held = u32_of(info[1]);
  const uint32_t stored = u32_of(info[2]);
  const uint32_t entries = engine_->door().header().key_entries;
  const auto& store = engine_->options().store;
  if (store == nullptr || offset > entries || std::max(held, stored) > entries - offset) {
    throw_argument(info.Env(), "keyOffset", "a range of the key table");
  } else {
    store->release(engine_->door().keys() + offset, held, stored);
  }
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
