#include <algorithm>

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
                                   {InstanceMethod<&StoreObject::facts>("facts"),
                                    InstanceMethod<&StoreObject::statistics>("statistics")}));
}

// {path, identity, layerBytes: number[], salt?: Uint8Array, create?, indexCapacity?, chainCacheBytes?}
StoreObject::StoreObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  const std::string path = options.string("path");
  const std::string identity = options.string("identity");
  store::StoreOptions wanted;
  wanted.create = options.boolean("create", true);
  if (options.has("namespace")) wanted.namespace_name = options.string("namespace");
  wanted.index_capacity = options.u64("indexCapacity", wanted.index_capacity);
  const uint64_t chain_bytes = options.u64("chainCacheBytes", size_t{64} << 20);
  wanted.capacity_bytes = options.u64("capacityBytes");
  const Napi::Value layers = options.get("layerBytes");
  if (!layers.IsArray()) options.fail("layerBytes", "an array");
  if (!options.ok()) return;
  std::vector<uint64_t> layer_bytes;
  const Napi::Array array = layers.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); i++) {
    layer_bytes.push_back(u64_of(array.Get(i)));
  }
  std::span<const uint8_t> salt;
  if (options.has("salt")) {
    const Napi::Value value = options.get("salt");
    if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint8_array) {
      options.fail("salt", "a Uint8Array");
      return;
    }
    const auto bytes = value.As<Napi::Uint8Array>();
    salt = {bytes.Data(), bytes.ByteLength()};
  }
  store::BlockFormat format;
  Status status = store::BlockFormat::create(identity, layer_bytes, &format);
  std::unique_ptr<store::BlockStore> opened;
  if (status.ok()) status = store::BlockStore::open(path, format, salt, wanted, &opened);
  std::unique_ptr<store::ChainCache> chains;
  if (status.ok() && chain_bytes > 0) status = store::ChainCache::create(chain_bytes, &chains);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  store_ = std::move(opened);
  chains_ = std::move(chains);
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
