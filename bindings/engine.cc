#include <cstring>

#include "objects.h"

namespace dualpath::bindings {
namespace {

// Key chain and look-up off the JavaScript thread: hashes full blocks of `tokens` into the door's key
// table and, when asked, counts how many leading ones are stored.
class HashWorker : public Napi::AsyncWorker {
 public:
  HashWorker(Napi::Env env, std::shared_ptr<TransferEngine> engine, Napi::Uint32Array tokens)
      : Napi::AsyncWorker(env),
        engine_(std::move(engine)),
        deferred_(Napi::Promise::Deferred::New(env)),
        kept_(Napi::Persistent(tokens.As<Napi::Object>())),
        tokens_(tokens.Data()) {}

  store::BlockKey parent;
  uint32_t first_token = 0;
  uint32_t block_tokens = 0;
  uint32_t blocks = 0;
  uint32_t key_offset = 0;
  bool look_up = false;

  Napi::Promise promise() { return deferred_.Promise(); }

  void Execute() override {
    store::BlockKey* keys = engine_->door().keys() + key_offset;
    store::extend_chain(parent, tokens_ + first_token, block_tokens, blocks, keys);
    if (look_up) stored_ = engine_->options().store->acquire_prefix(keys, blocks);
  }
  void OnOK() override { deferred_.Resolve(Napi::Number::New(Env(), static_cast<double>(stored_))); }
  void OnError(const Napi::Error& error) override { deferred_.Reject(error.Value()); }

 private:
  std::shared_ptr<TransferEngine> engine_;
  Napi::Promise::Deferred deferred_;
  Napi::ObjectReference kept_;  // the tokens' memory
  const uint32_t* tokens_;
  size_t stored_ = 0;
};

bool parse_plane(Options& options, Plane* plane) {
  plane->offset_bytes = options.u64("offsetBytes");
  plane->bytes_per_token = options.u32("bytesPerToken");
  plane->token_stride_bytes = options.u32("tokenStrideBytes", plane->bytes_per_token);
  plane->window_tokens = options.u32("windowTokens");
  return options.ok();
}

bool parse_layers(Napi::Env env, Options& options, std::vector<LayerPlaces>* layers) {
  const Napi::Value value = options.get("layers");
  if (!value.IsArray()) options.fail("layers", "an array");
  if (!options.ok()) return false;
  const Napi::Array array = value.As<Napi::Array>();
  for (uint32_t l = 0; l < array.Length(); l++) {
    Options layer(env, array.Get(l));
    LayerPlaces places{layer.u64("offsetBytes"), {}};
    const Napi::Value planes = layer.get("planes");
    if (!planes.IsArray()) layer.fail("planes", "an array");
    if (!layer.ok()) return false;
    for (uint32_t p = 0; p < planes.As<Napi::Array>().Length(); p++) {
      Options plane_options(env, planes.As<Napi::Array>().Get(p));
      Plane plane{};
      if (!parse_plane(plane_options, &plane)) return false;
      places.planes.push_back(plane);
    }
    layers->push_back(std::move(places));
  }
  return true;
}

bool parse_more_arenas(Napi::Env env, Options& options, std::vector<std::shared_ptr<Arena>>* arenas) {
  if (!options.has("moreArenas")) return options.ok();
  const Napi::Value value = options.get("moreArenas");
  if (!value.IsArray()) options.fail("moreArenas", "an array");
  for (uint32_t i = 0; options.ok() && i < value.As<Napi::Array>().Length(); i++) {
    const Napi::Object holder = Napi::Object::New(env);
    holder.Set("arena", value.As<Napi::Array>().Get(i));
    Options one(env, holder);
    ArenaObject* arena = one.wrapped<ArenaObject>("arena");
    if (!one.ok()) return false;
    arenas->push_back(arena == nullptr ? nullptr : arena->arena());
  }
  return options.ok();
}

std::shared_ptr<RateLink> link_of(Options& options, const char* name) {
  RateLinkObject* object = options.wrapped<RateLinkObject>(name);
  return object == nullptr ? nullptr : object->link();
}

}  // namespace

void EngineObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set(
      "Engine",
      DefineClass(
          env, "Engine",
          {InstanceMethod<&EngineObject::door>("door"), InstanceMethod<&EngineObject::doorbell>("doorbell"),
           InstanceMethod<&EngineObject::add_geometry>("addGeometry"),
           InstanceMethod<&EngineObject::connect>("connect"), InstanceMethod<&EngineObject::cancel>("cancel"),
           InstanceMethod<&EngineObject::hash>("hash"), InstanceMethod<&EngineObject::release>("release"),
           InstanceMethod<&EngineObject::block_path>("blockPath"),
           InstanceMethod<&EngineObject::request_close>("requestClose"),
           InstanceMethod<&EngineObject::detach>("detach"),
           InstanceMethod<&EngineObject::statistics>("statistics")}));
}

EngineObject::EngineObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<EngineObject>(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  DoorOptions door;
  door.submission_entries = options.u32("submissionEntries", door.submission_entries);
  door.completion_entries = options.u32("completionEntries", door.completion_entries);
  door.counter_entries = options.u32("counterEntries", door.counter_entries);
  door.slot_entries = options.u32("slotEntries", door.slot_entries);
  door.key_entries = options.u32("keyEntries", door.key_entries);
  EngineOptions wanted;
  wanted.name = options.string("name");
  wanted.durable_writes = options.boolean("durable", false);
  wanted.max_programs = options.u32("maxPrograms", wanted.max_programs);
  wanted.max_descriptors = options.u32("maxDescriptors", wanted.max_descriptors);
  wanted.storage_lookahead_ns = options.u64("storageLookaheadNs", wanted.storage_lookahead_ns);
  wanted.links = {link_of(options, "storageRead"), link_of(options, "storageWrite"),
                  link_of(options, "nicEgress"), link_of(options, "nicIngress")};
  if (StoreObject* object = options.wrapped<StoreObject>("store")) wanted.store = object->store();
  RuntimeObject* runtime = options.wrapped<RuntimeObject>("runtime");
  if (!options.ok()) return;
  if (runtime == nullptr) {
    throw_argument(env, "runtime", "a runtime");
    return;
  }
  if (runtime->reactor() == nullptr) return;
  wanted.wake_owner = runtime->wake_function();
  Status status = Door::create(door, &wanted.door);
  if (status.ok())
    status = TransferEngine::create(std::move(wanted), &runtime->reactor()->faults(), &engine_);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  runtime_ = runtime;
  runtime_reference_ = Napi::Persistent(runtime->Value());
  runtime->keep(engine_);
  runtime->reactor()->add(engine_);
}

Napi::Value EngineObject::door(const Napi::CallbackInfo& info) {
  auto* owner = new std::shared_ptr<Door>(engine_->options().door);
  return Napi::ArrayBuffer::New(
      info.Env(), engine_->door().base(), engine_->door().bytes(),
      [](Napi::Env, void*, std::shared_ptr<Door>* kept) { delete kept; }, owner);
}

Napi::Value EngineObject::doorbell(const Napi::CallbackInfo& info) {
  if (Reactor* reactor = runtime_->reactor()) reactor->ring();
  return info.Env().Undefined();
}

// {arena, moreArenas?, slotsPerArena?, offsetBytes, slotStrideBytes, slots, blockTokens,
//  layers: [{offsetBytes, planes: [...]}]} -> id
Napi::Value EngineObject::add_geometry(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  GeometryOptions wanted;
  ArenaObject* arena = options.wrapped<ArenaObject>("arena");
  if (arena != nullptr) wanted.arena = arena->arena();
  if (!parse_more_arenas(env, options, &wanted.more_arenas)) return env.Undefined();
  wanted.slots_per_arena = options.u32("slotsPerArena");
  wanted.offset_bytes = options.u64("offsetBytes");
  wanted.slot_stride_bytes = options.u64("slotStrideBytes");
  wanted.slots = options.u32("slots");
  wanted.block_tokens = options.u32("blockTokens");
  if (!parse_layers(env, options, &wanted.layers)) return env.Undefined();
  std::shared_ptr<const Geometry> geometry;
  uint32_t id = 0;
  Status status = Geometry::create(std::move(wanted), &geometry);
  if (status.ok()) status = engine_->add_geometry(std::move(geometry), &id);
  if (!status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  return Napi::Number::New(env, id);
}

Napi::Value EngineObject::connect(const Napi::CallbackInfo& info) {
  uint32_t peer = 0;
  const Status status = engine_->connect(info[0].ToString(), &peer);
  if (!status.ok()) {
    throw_status(info.Env(), status);
    return info.Env().Undefined();
  }
  return Napi::Number::New(info.Env(), peer);
}

Napi::Value EngineObject::cancel(const Napi::CallbackInfo& info) {
  engine_->request_cancel(info[0].ToNumber().Uint32Value());
  return doorbell(info);
}

// hash(tokens, {firstToken, blockTokens, blocks, parentKey (index or -1), keyOffset, lookUp}) ->
// Promise<stored>
Napi::Value EngineObject::hash(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[1]);
  if (!info[0].IsTypedArray() || info[0].As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
    options.fail("tokens", "a Uint32Array");
  }
  if (!options.ok()) return env.Undefined();
  const Napi::Uint32Array tokens = info[0].As<Napi::Uint32Array>();
  const dp_door_header& header = engine_->door().header();
  auto* worker = new HashWorker(env, engine_, tokens);
  worker->first_token = options.u32("firstToken");
  worker->block_tokens = options.u32("blockTokens");
  worker->blocks = options.u32("blocks");
  worker->key_offset = options.u32("keyOffset");
  worker->look_up = options.boolean("lookUp", false);
  const bool has_parent = options.has("parentKey");
  const uint32_t parent = options.u32("parentKey");
  const uint64_t needed = worker->first_token + static_cast<uint64_t>(worker->block_tokens) * worker->blocks;
  if (needed > tokens.ElementLength()) options.fail("tokens", "as many tokens as the blocks have");
  if (worker->key_offset > header.key_entries || worker->blocks > header.key_entries - worker->key_offset ||
      parent >= header.key_entries) {
    options.fail("keyOffset", "a range of the key table");
  }
  if (engine_->options().store == nullptr) options.fail("store", "an engine with a store");
  if (!options.ok()) {
    delete worker;
    return env.Undefined();
  }
  worker->parent = has_parent ? engine_->door().keys()[parent] : engine_->options().store->root_key();
  const Napi::Promise promise = worker->promise();
  worker->Queue();
  return promise;
}

// The file of the block whose key stands at this entry of the key table; empty without a store.
Napi::Value EngineObject::block_path(const Napi::CallbackInfo& info) {
  const uint32_t key = info[0].ToNumber().Uint32Value();
  const auto& store = engine_->options().store;
  if (store == nullptr || key >= engine_->door().header().key_entries)
    return Napi::String::New(info.Env(), "");
  char relative[store::kBlockPathBytes];
  store->block_path(engine_->door().keys()[key], relative);
  return Napi::String::New(info.Env(), store->path() + "/" + relative);
}

Napi::Value EngineObject::request_close(const Napi::CallbackInfo& info) {
  engine_->request_close();
  return doorbell(info);
}

Napi::Value EngineObject::detach(const Napi::CallbackInfo& info) {
  if (Reactor* reactor = runtime_->reactor()) reactor->remove(engine_);
  return info.Env().Undefined();
}

Napi::Value EngineObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const EngineStatistics& s = engine_->statistics();
  Napi::Object out = Napi::Object::New(env);
  const std::pair<const char*, const std::atomic<uint64_t>*> fields[] = {
      {"readBytes", &s.read_bytes},           {"readBlocks", &s.read_blocks},
      {"badBlocks", &s.bad_blocks},           {"writeBytes", &s.write_bytes},
      {"writeBlocks", &s.write_blocks},       {"writeSkippedBlocks", &s.write_skipped_blocks},
      {"copyBytes", &s.copy_bytes},           {"copySteps", &s.copy_steps},
      {"sendBytes", &s.send_bytes},           {"sendSteps", &s.send_steps},
      {"descriptors", &s.descriptors},        {"programs", &s.programs},
      {"failedPrograms", &s.failed_programs}, {"waitsCounter", &s.waits_counter},
      {"waitsLink", &s.waits_link},           {"waitsQueue", &s.waits_queue}};
  for (const auto& [name, value] : fields) out.Set(name, number(env, value->load(std::memory_order_relaxed)));
  out.Set("directIo", engine_->direct_io());
  return out;
}

}  // namespace dualpath::bindings
