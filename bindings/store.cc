#include "objects.h"

namespace dualpath::bindings {

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
  wanted.index_capacity = options.u64("indexCapacity", wanted.index_capacity);
  const uint64_t chain_bytes = options.u64("chainCacheBytes", size_t{64} << 20);
  const Napi::Value layers = options.get("layerBytes");
  if (!layers.IsArray()) options.fail("layerBytes", "an array");
  if (!options.ok()) return;
  std::vector<uint64_t> layer_bytes;
  const Napi::Array array = layers.As<Napi::Array>();
  for (uint32_t i = 0; i < array.Length(); i++) {
    layer_bytes.push_back(static_cast<uint64_t>(array.Get(i).ToNumber().Int64Value()));
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
  out.Set("blocks", number(env, stat.blocks));
  out.Set("bytes", number(env, stat.bytes));
  out.Set("probes", number(env, stat.probes));
  out.Set("probeErrors", number(env, stat.probe_errors));
  out.Set("published", number(env, stat.published));
  out.Set("forgotten", number(env, stat.forgotten));
  out.Set("quarantined", number(env, stat.quarantined));
  out.Set("indexOverflows", number(env, stat.index_overflows));
  const store::ChainCacheStatistics chains =
      chains_ == nullptr ? store::ChainCacheStatistics{} : chains_->stat();
  out.Set("chainCacheBytes", number(env, chains.capacity_bytes));
  out.Set("chainCacheBlocks", number(env, chains.blocks));
  out.Set("chainHitBlocks", number(env, chains.hit_blocks));
  out.Set("chainMissBlocks", number(env, chains.miss_blocks));
  out.Set("chainEvictedBlocks", number(env, chains.evicted_blocks));
  return out;
}

}  // namespace dualpath::bindings
