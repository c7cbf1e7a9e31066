#include <cstring>

#include "objects.h"

namespace dualpath::bindings {
namespace {

template <typename Object>
auto link_of(Options& options, const char* name) {
  Object* object = options.wrapped<Object>(name);
  return object == nullptr ? nullptr : object->link();
}

}  // namespace

void EngineObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("Engine", DefineClass(env, "Engine",
                                    {InstanceMethod<&EngineObject::door>("door"),
                                     InstanceMethod<&EngineObject::door_layout>("doorLayout"),
                                     InstanceMethod<&EngineObject::submission_head>("submissionHead"),
                                     InstanceMethod<&EngineObject::publish>("publish"),
                                     InstanceMethod<&EngineObject::take_records>("takeRecords"),
                                     InstanceMethod<&EngineObject::counter>("counter"),
                                     InstanceMethod<&EngineObject::zero_counters>("zeroCounters"),
                                     InstanceMethod<&EngineObject::counter_handle>("counterHandle"),
                                     InstanceMethod<&EngineObject::write_slots>("writeSlots"),
                                     InstanceMethod<&EngineObject::read_slots>("readSlots"),
                                     InstanceMethod<&EngineObject::doorbell>("doorbell"),
                                     InstanceMethod<&EngineObject::add_geometry>("addGeometry"),
                                     InstanceMethod<&EngineObject::add_pages>("addPages"),
                                     InstanceMethod<&EngineObject::write_pages>("writePages"),
                                     InstanceMethod<&EngineObject::connect>("connect"),
                                     InstanceMethod<&EngineObject::cancel>("cancel"),
                                     InstanceMethod<&EngineObject::hash>("hash"),
                                     InstanceMethod<&EngineObject::cancel_hash>("cancelHash"),
                                     InstanceMethod<&EngineObject::release>("release"),
                                     InstanceMethod<&EngineObject::block_path>("blockPath"),
                                     InstanceMethod<&EngineObject::request_close>("requestClose"),
                                     InstanceMethod<&EngineObject::detach>("detach"),
                                     InstanceMethod<&EngineObject::statistics>("statistics")}));
}

EngineObject::EngineObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  DoorOptions door;
  door.submission_entries = options.u32("submissionEntries", door.submission_entries);
  door.completion_entries = options.u32("completionEntries", door.completion_entries);
  door.counter_entries = options.u32("counterEntries", door.counter_entries);
  door.slot_entries = options.u32("slotEntries", door.slot_entries);
  door.key_entries = options.u32("keyEntries", door.key_entries);
  door.shared = options.boolean("shared", false);
  EngineOptions wanted;
  wanted.name = options.string("name");
  wanted.durable_writes = options.boolean("durable", false);
  wanted.max_programs = options.u32("maxPrograms", wanted.max_programs);
  wanted.max_descriptors = options.u32("maxDescriptors", wanted.max_descriptors);
  wanted.storage_lookahead_ns = options.u64("storageLookaheadNs", wanted.storage_lookahead_ns);
  if (options.has("copyWay")) {
    const std::string way = options.string("copyWay");
    if (way != "auto" && way != "nic" && way != "plain") options.fail("copyWay", "'auto', 'nic' or 'plain'");
    wanted.copy_way = way == "nic" ? CopyWish::kNic : way == "plain" ? CopyWish::kPlain : CopyWish::kAuto;
  }
  wanted.copy_in_flight_bytes = options.u64("copyInFlightBytes", wanted.copy_in_flight_bytes);
  wanted.links = {
      link_of<RateLinkObject>(options, "storageRead"), link_of<RateLinkObject>(options, "storageWrite"),
      link_of<NicLinkObject>(options, "nicEgress"), link_of<NicLinkObject>(options, "nicIngress")};
  if (StoreObject* object = options.wrapped<StoreObject>("store")) {
    wanted.store = object->store();
    lookups_->chains = object->chains();
  }
  RuntimeObject* runtime = options.wrapped<RuntimeObject>("runtime");
  if (!options.ok()) return;
  if (runtime == nullptr) {
    throw_argument(env, "runtime", "a runtime");
    return;
  }
  if (runtime->reactor() == nullptr) return;
  Status status = Door::create(door, &wanted.door);
  // Of a shared door the owner of the records is the process on its other side.
  wanted.wake_owner = runtime->wake_function();
  if (door.shared) wanted.wake_owner = [raw = wanted.door.get()] { raw->ring_completion(); };
  if (status.ok())
    status = TransferEngine::create(std::move(wanted), &runtime->reactor()->faults(), &engine_);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  if (status = runtime->reactor()->add(engine_); !status.ok()) {
    throw_status(env, status);
    return;
  }
  runtime_ = runtime;
  storage_io_ = runtime->reactor()->storage_io().io;
  runtime_reference_ = Napi::Persistent(runtime->Value());
  runtime->keep(engine_);
}

// Undefined where the runtime allows no external buffers: everything goes by copies then (door.cc).
Napi::Value EngineObject::door(const Napi::CallbackInfo& info) {
  const auto& door = engine_->options().door;
  return external_buffer(info.Env(), door->base(), door->bytes(), door);
}

Napi::Value EngineObject::doorbell(const Napi::CallbackInfo& info) {
  if (Reactor* reactor = runtime_->reactor()) reactor->ring();
  return info.Env().Undefined();
}

Napi::Value EngineObject::connect(const Napi::CallbackInfo& info) {
  uint32_t peer = 0;
  const Status status =
      engine_->connect(info[0].IsString() ? info[0].As<Napi::String>().Utf8Value() : "", &peer);
  if (!status.ok()) {
    throw_status(info.Env(), status);
    return info.Env().Undefined();
  }
  return Napi::Number::New(info.Env(), peer);
}

Napi::Value EngineObject::cancel(const Napi::CallbackInfo& info) {
  engine_->request_cancel(u32_of(info[0]));
  return doorbell(info);
}

Napi::Value EngineObject::hash(const Napi::CallbackInfo& info) {
  return start_lookup(info, engine_, lookups_);
}

Napi::Value EngineObject::cancel_hash(const Napi::CallbackInfo& info) {
  cancel_lookup(*lookups_, u32_of(info[0]));
  return info.Env().Undefined();
}

// The file of the block whose key stands at this entry of the key table; empty without a store.
Napi::Value EngineObject::block_path(const Napi::CallbackInfo& info) {
  const uint32_t key = u32_of(info[0]);
  const auto& store = engine_->options().store;
  if (store == nullptr || key >= engine_->door().header().key_entries)
    return Napi::String::New(info.Env(), "");
  char relative[store::kBlockPathBytes];
  store->block_path(read_once(engine_->door().keys()[key]), relative);
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
      {"readBytes", &s.read_bytes},
      {"readBlocks", &s.read_blocks},
      {"badBlocks", &s.bad_blocks},
      {"writeBytes", &s.write_bytes},
      {"writeBlocks", &s.write_blocks},
      {"writeSkippedBlocks", &s.write_skipped_blocks},
      {"registeredBytes", &s.registered_bytes},
      {"copyBytes", &s.copy_bytes},
      {"copySteps", &s.copy_steps},
      {"sendBytes", &s.send_bytes},
      {"sendSteps", &s.send_steps},
      {"descriptors", &s.descriptors},
      {"programs", &s.programs},
      {"failedPrograms", &s.failed_programs},
      {"waitsCounter", &s.waits_counter},
      {"waitsLink", &s.waits_link},
      {"waitsQueue", &s.waits_queue},
      {"waitsPeer", &s.waits_peer},
      {"doorErrors", &s.door_errors}};
  for (const auto& [name, value] : fields) out.Set(name, number(env, value->load(std::memory_order_relaxed)));
  out.Set("staleSignals", number(env, engine_->door().stale_signals()));
  out.Set("directIo", engine_->direct_io());
  Napi::Object ways = Napi::Object::New(env);
  for (size_t w = 0; w < kCopyWays; w++)
    ways.Set(kCopyWayNames[w], number(env, s.copy_bytes_by_way[w].load(std::memory_order_relaxed)));
  out.Set("copyBytesByWay", ways);
  Napi::Object refusals = Napi::Object::New(env);
  for (size_t r = 1; r < kNicRefusals; r++)
    refusals.Set(kNicRefusalNames[r], number(env, s.copy_refusals[r].load(std::memory_order_relaxed)));
  out.Set("copyRefusals", refusals);
  const Lookups& l = *lookups_;
  const std::pair<const char*, uint64_t> lookups[] = {{"lookups", l.finished},
                                                      {"lookupBlocks", l.blocks},
                                                      {"lookupHashedBlocks", l.times.hashed_blocks},
                                                      {"lookupCopyNs", l.times.copy_ns},
                                                      {"lookupCompareNs", l.times.compare_ns},
                                                      {"lookupHashNs", l.times.hash_ns},
                                                      {"lookupIndexNs", l.index_ns}};
  for (const auto& [name, value] : lookups) out.Set(name, number(env, value));
  out.Set("storageIo", storage_io_name(storage_io_));
  return out;
}

}  // namespace dualpath::bindings
