// The door for those who cannot map it (copies in and out), and for other processes (a socket).
#include <algorithm>
#include <cstring>

#include "objects.h"

namespace dualpath::bindings {
namespace {

bool uint32_array(const Napi::CallbackInfo& info, size_t at, Napi::Uint32Array* out) {
  if (!info[at].IsTypedArray() || info[at].As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
    throw_argument(info.Env(), "words", "a Uint32Array");
    return false;
  }
  *out = info[at].As<Napi::Uint32Array>();
  return true;
}

bool within(const Napi::CallbackInfo& info, uint64_t first, uint64_t count, uint64_t limit) {
  if (first <= limit && count <= limit - first) return true;
  throw_argument(info.Env(), "range", "a range of the table");
  return false;
}

constexpr size_t kDescriptorWords = sizeof(dp_descriptor) / sizeof(uint32_t);
constexpr size_t kRecordWords = sizeof(dp_record) / sizeof(uint32_t);

}  // namespace

// {submissionEntries, completionEntries, counterEntries, slotEntries, keyEntries}
Napi::Value EngineObject::door_layout(const Napi::CallbackInfo& info) {
  const DoorLayout& layout = engine_->door().header();
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("submissionEntries", layout.submission_entries);
  out.Set("completionEntries", layout.completion_entries);
  out.Set("counterEntries", layout.counter_entries);
  out.Set("slotEntries", layout.slot_entries);
  out.Set("keyEntries", layout.key_entries);
  return out;
}

// Descriptors native code has taken.
Napi::Value EngineObject::submission_head(const Napi::CallbackInfo& info) {
  const std::atomic_ref<uint32_t> head(engine_->door().submission().head);
  return Napi::Number::New(info.Env(), head.load(std::memory_order_acquire));
}

// publish(words, first, count): the ring's entries [first, first + count) from a copy of the whole ring.
Napi::Value EngineObject::publish(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Door& door = engine_->door();
  const uint32_t entries = door.header().submission_entries;
  Napi::Uint32Array words;
  if (!uint32_array(info, 0, &words)) return env.Undefined();
  const uint32_t first = u32_of(info[1]);
  const uint32_t count = u32_of(info[2]);
  if (words.ElementLength() != entries * kDescriptorWords || count > entries) {
    throw_argument(env, "words", "the entries of the submission ring");
    return env.Undefined();
  }
  for (uint32_t i = 0; i < count; i++) {
    const size_t at = (first + i) & (entries - 1);
    std::memcpy(&door.descriptor(first + i), words.Data() + at * kDescriptorWords, sizeof(dp_descriptor));
  }
  std::atomic_ref<uint32_t>(door.submission().tail).store(first + count, std::memory_order_seq_cst);
  const std::atomic_ref<uint32_t> sleeping(door.submission().sleeping);
  return sleeping.load(std::memory_order_seq_cst) != 0 ? doorbell(info) : env.Undefined();
}

// takeRecords(words) -> how many: as many as there are and as fit. None: the doorbell will ring.
Napi::Value EngineObject::take_records(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Napi::Uint32Array words;
  if (!uint32_array(info, 0, &words)) return env.Undefined();
  Door& door = engine_->door();
  dp_ring_index& ring = door.completion();
  const std::atomic_ref<uint32_t> tail(ring.tail);
  const std::atomic_ref<uint32_t> head(ring.head);
  const std::atomic_ref<uint32_t> sleeping(ring.sleeping);
  const uint32_t room = static_cast<uint32_t>(words.ElementLength() / kRecordWords);
  const uint32_t first = head.load(std::memory_order_relaxed);
  sleeping.store(0, std::memory_order_seq_cst);
  uint32_t there = tail.load(std::memory_order_seq_cst) - first;
  if (there == 0) {
    sleeping.store(1, std::memory_order_seq_cst);
    there = tail.load(std::memory_order_seq_cst) - first;
  }
  const uint32_t count = std::min(there, room);
  for (uint32_t i = 0; i < count; i++) {
    const dp_record record = door.record(first + i);
    std::memcpy(words.Data() + i * kRecordWords, &record, sizeof record);
  }
  head.store(first + count, std::memory_order_release);
  return Napi::Number::New(env, count);
}

Napi::Value EngineObject::counter(const Napi::CallbackInfo& info) {
  const uint32_t index = u32_of(info[0]);
  if (!within(info, index, 1, engine_->door().counter_entries())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), static_cast<double>(engine_->door().counter(index)));
}

// zeroCounters(first, count): of counters that nothing refers to.
Napi::Value EngineObject::zero_counters(const Napi::CallbackInfo& info) {
  const uint32_t first = u32_of(info[0]);
  const uint32_t count = u32_of(info[1]);
  if (!within(info, first, count, engine_->door().counter_entries())) return info.Env().Undefined();
  engine_->door().zero_counters(first, count);
  return info.Env().Undefined();
}

// counterHandle(index): how a peer names the counter until it is zeroed again.
Napi::Value EngineObject::counter_handle(const Napi::CallbackInfo& info) {
  const uint32_t index = u32_of(info[0]);
  if (!within(info, index, 1, engine_->door().counter_entries())) return info.Env().Undefined();
  return Napi::Number::New(info.Env(), engine_->door().counter_handle(index));
}

// writeSlots(offset, slots)
Napi::Value EngineObject::write_slots(const Napi::CallbackInfo& info) {
  const uint32_t offset = u32_of(info[0]);
  Napi::Uint32Array slots;
  if (!uint32_array(info, 1, &slots)) return info.Env().Undefined();
  if (!within(info, offset, slots.ElementLength(), engine_->door().header().slot_entries))
    return info.Env().Undefined();
  std::memcpy(engine_->door().slots() + offset, slots.Data(), slots.ByteLength());
  return info.Env().Undefined();
}

// readSlots(offset, count) -> Uint32Array, a copy
Napi::Value EngineObject::read_slots(const Napi::CallbackInfo& info) {
  const uint32_t offset = u32_of(info[0]);
  const uint32_t count = u32_of(info[1]);
  if (!within(info, offset, count, engine_->door().header().slot_entries)) return info.Env().Undefined();
  Napi::Uint32Array slots = Napi::Uint32Array::New(info.Env(), count);
  std::memcpy(slots.Data(), engine_->door().slots() + offset, slots.ByteLength());
  return slots;
}

// DoorServer: {engine, path}

void DoorServerObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("DoorServer", DefineClass(env, "DoorServer",
                                        {InstanceMethod<&DoorServerObject::state>("state"),
                                         InstanceMethod<&DoorServerObject::take_memory>("takeMemory"),
                                         InstanceMethod<&DoorServerObject::answer>("answer"),
                                         InstanceMethod<&DoorServerObject::close>("close")}));
}

DoorServerObject::DoorServerObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  EngineObject* engine = options.wrapped<EngineObject>("engine");
  const std::string path = options.string("path");
  if (options.ok() && engine == nullptr) options.fail("engine", "an engine");
  if (!options.ok()) return;
  RuntimeObject* runtime = engine->runtime();
  if (runtime->reactor() == nullptr) return;
  std::unique_ptr<DoorServer> server;
  // The runtime stops the server before it ends the reactor and closes what wakes the event loop.
  const Status status = DoorServer::listen(
      {path, engine->engine(), [reactor = runtime->reactor()] { reactor->ring(); }, runtime->wake_function()},
      &server);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  server_ = std::move(server);
  runtime->keep(server_);
}

// {producer: its process or 0, observers, producersSeen, refused}
Napi::Value DoorServerObject::state(const Napi::CallbackInfo& info) {
  const DoorServer::State state = server_->state();
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("producer", state.producer);
  out.Set("observers", state.observers);
  out.Set("producersSeen", number(info.Env(), state.producers_seen));
  out.Set("refused", number(info.Env(), state.refused));
  return out;
}

// {tag, bytes, fd} or undefined: memory the producer offers. Whoever takes it closes the descriptor.
Napi::Value DoorServerObject::take_memory(const Napi::CallbackInfo& info) {
  DoorServer::Offer offer;
  if (!server_->take_offer(&offer)) return info.Env().Undefined();
  Napi::Object out = Napi::Object::New(info.Env());
  out.Set("tag", offer.tag);
  out.Set("bytes", number(info.Env(), offer.bytes));
  out.Set("fd", offer.fd.release());
  return out;
}

// answer(tag, geometry): DP_NONE refuses it.
Napi::Value DoorServerObject::answer(const Napi::CallbackInfo& info) {
  const uint32_t geometry = u32_of(info[1]);
  server_->answer(u32_of(info[0]), geometry == DP_NONE ? DP_DOOR_INVALID : DP_DOOR_OK, geometry);
  return info.Env().Undefined();
}

Napi::Value DoorServerObject::close(const Napi::CallbackInfo& info) {
  server_->stop();
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
