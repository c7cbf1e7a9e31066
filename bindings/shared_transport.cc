// The transport over shared memory as a JavaScript class. What an engine tells another is a plain object that
// JSON can carry: that of verbs (rdma_values.h), with a descriptor of the engine's process as the key of an
// arena.
#include "shared_transport.h"

#include "rdma_values.h"

namespace dualpath::bindings {
namespace {

Napi::Object invitation_object(Napi::Env env, const shared::Invitation& invitation) {
  rdma::RemoteMemory memory;
  memory.counter_entries = invitation.counter_entries;
  for (const shared::RemoteGeometry& geometry : invitation.geometries) {
    rdma::RemoteGeometry remote{geometry.id, geometry.layout, {}};
    for (const auto& arena : geometry.arenas)
      remote.arenas.push_back({0, arena.bytes, static_cast<uint32_t>(arena.fd)});
    memory.geometries.push_back(std::move(remote));
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("pid", number(env, static_cast<uint32_t>(invitation.pid)));
  out.Set("segmentFd", number(env, static_cast<uint32_t>(invitation.segment_fd)));
  out.Set("bellFd", number(env, static_cast<uint32_t>(invitation.bell_fd)));
  out.Set("nonce", hex(invitation.nonce));
  out.Set("mailbox", number(env, invitation.mailbox));
  out.Set("memory", memory_object(env, memory));
  return out;
}

bool parse_invitation(Napi::Env env, Napi::Value value, shared::Invitation* out) {
  Options options(env, value);
  out->pid = static_cast<int>(options.u64("pid", 0, INT32_MAX));
  out->segment_fd = static_cast<int>(options.u64("segmentFd", 0, INT32_MAX));
  out->bell_fd = static_cast<int>(options.u64("bellFd", 0, INT32_MAX));
  out->mailbox = options.u32("mailbox");
  rdma::RemoteMemory memory;
  if (!options.ok() || !parse_hex(options, "nonce", &out->nonce) ||
      !parse_memory(env, options.get("memory"), &memory)) {
    return false;
  }
  out->counter_entries = memory.counter_entries;
  for (rdma::RemoteGeometry& geometry : memory.geometries) {
    shared::RemoteGeometry remote{geometry.id, std::move(geometry.layout), {}};
    for (const auto& arena : geometry.arenas)
      remote.arenas.push_back({static_cast<int>(arena.key), arena.bytes});
    out->geometries.push_back(std::move(remote));
  }
  return true;
}

}  // namespace

void SharedTransportObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("SharedTransport",
              DefineClass(env, "SharedTransport",
                          {InstanceMethod<&SharedTransportObject::invite>("invite"),
                           InstanceMethod<&SharedTransportObject::add_peer>("addPeer"),
                           InstanceMethod<&SharedTransportObject::shut_out>("shutOut"),
                           InstanceMethod<&SharedTransportObject::lose>("lose"),
                           InstanceMethod<&SharedTransportObject::statistics>("statistics")}));
}

// {engine}
SharedTransportObject::SharedTransportObject(const Napi::CallbackInfo& info) : Wrap(info) {
  Options options(info.Env(), info[0]);
  EngineObject* const engine = options.wrapped<EngineObject>("engine");
  if (options.ok() && engine == nullptr) options.fail("engine", "an engine");
  if (!options.ok()) return;
  Reactor* const reactor = engine->runtime()->reactor();
  if (reactor == nullptr) return;
  const Status status = shared::SharedTransport::create(engine->engine(), *reactor, &transport_);
  if (!status.ok()) throw_status(info.Env(), status);
}

// -> what addPeer() of an engine that is to send here takes
Napi::Value SharedTransportObject::invite(const Napi::CallbackInfo& info) {
  shared::Invitation invitation;
  if (const Status status = transport_->invite(&invitation); !status.ok()) {
    throw_status(info.Env(), status);
    return info.Env().Undefined();
  }
  return invitation_object(info.Env(), invitation);
}

// (name, invitation) -> peer's id
Napi::Value SharedTransportObject::add_peer(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string name = info[0].IsString() ? info[0].As<Napi::String>().Utf8Value() : "";
  shared::Invitation invitation;
  if (!parse_invitation(env, info[1], &invitation)) return env.Undefined();
  uint32_t peer = 0;
  if (const Status status = transport_->add_peer(name, invitation, &peer); !status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  return number(env, peer);
}

// (mailbox) -> whether nothing of its sender is under way
Napi::Value SharedTransportObject::shut_out(const Napi::CallbackInfo& info) {
  return Napi::Boolean::New(info.Env(), transport_->shut_out(u32_of(info[0])));
}

Napi::Value SharedTransportObject::lose(const Napi::CallbackInfo& info) {
  transport_->lose(u32_of(info[0]));
  return info.Env().Undefined();
}

Napi::Value SharedTransportObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const shared::SharedStatistics statistics = transport_->statistics();
  Napi::Array sent = Napi::Array::New(env, statistics.sent_bytes.size());
  for (uint32_t i = 0; i < statistics.sent_bytes.size(); i++) {
    Napi::Object one = Napi::Object::New(env);
    one.Set("peer", number(env, statistics.sent_bytes[i].first));
    one.Set("bytes", number(env, statistics.sent_bytes[i].second));
    sent.Set(i, one);
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("sentBytes", sent);
  out.Set("badSignals", number(env, statistics.bad_signals));
  out.Set("mailboxes", number(env, statistics.mailboxes));
  return out;
}

}  // namespace dualpath::bindings
