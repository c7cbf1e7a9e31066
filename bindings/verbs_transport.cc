#include "rdma.h"
#include "rdma_values.h"
#include "verbs/library.h"

namespace dualpath::bindings {
namespace {

using State = verbs::QueuePair::State;

const char* state_name(State state) {
  switch (state) {
    case State::kInitialised:
      return "initialised";
    case State::kReady:
      return "ready";
    case State::kDraining:
      return "draining";
    case State::kDrained:
      break;
  }
  return "drained";
}

const char* blame_name(verbs::Blame blame) {
  return blame == verbs::Blame::kLocal ? "local" : blame == verbs::Blame::kRemote ? "remote" : "cancelled";
}

void set_counters(Napi::Object out, const verbs::QueuePairCounters& c) {
  const std::pair<const char*, uint64_t> fields[] = {
      {"sentBytes", c.bytes},      {"chains", c.chains},
      {"postCalls", c.post_calls}, {"requests", c.requests},
      {"errors", c.errors},        {"completions", c.completions},
      {"flushed", c.flushed},      {"refused", c.refused},
      {"messages", c.messages},    {"announcements", c.announcements}};
  for (const auto& [name, value] : fields) out.Set(name, number(out.Env(), value));
}

void set_peer(Napi::Object out, uint32_t peer) {
  if (peer != DP_NONE) out.Set("peer", number(out.Env(), peer));
}

Napi::Object event_object(Napi::Env env, const rdma::TransportEvent& event) {
  using Kind = rdma::TransportEvent::Kind;
  Napi::Object out = Napi::Object::New(env);
  if (event.kind == Kind::kPort) {
    out.Set("kind", "port");
    out.Set("port", number(env, event.port));
    out.Set("up", event.up);
  } else if (event.kind == Kind::kDeviceFailed) {
    out.Set("kind", "device-failed");
    out.Set("cause", event.cause);
  } else {
    out.Set("kind", event.kind == Kind::kBroke ? "broke" : "drained");
    out.Set("connection", number(env, event.connection));
    set_peer(out, event.peer);
  }
  if (event.kind == Kind::kBroke) {
    out.Set("blame", blame_name(event.error.blame));
    out.Set("cause", verbs::describe(event.error));
  }
  return out;
}

}  // namespace

void VerbsTransportObject::define(Napi::Env env, Napi::Object exports) {
  exports.Set("VerbsTransport", DefineClass(env, "VerbsTransport",
                                            {InstanceMethod<&VerbsTransportObject::facts>("facts"),
                                             InstanceMethod<&VerbsTransportObject::memory>("memory"),
                                             InstanceMethod<&VerbsTransportObject::add_peer>("addPeer"),
                                             InstanceMethod<&VerbsTransportObject::open>("open"),
                                             InstanceMethod<&VerbsTransportObject::connect>("connect"),
                                             InstanceMethod<&VerbsTransportObject::drain>("drain"),
                                             InstanceMethod<&VerbsTransportObject::close>("close"),
                                             InstanceMethod<&VerbsTransportObject::take_events>("takeEvents"),
                                             InstanceMethod<&VerbsTransportObject::statistics>("statistics"),
                                             InstanceMethod<&VerbsTransportObject::shutdown>("shutdown")}));
}

// {engine, provider?, exclusive?, receiveEntries?, inlineBytes?, maxConnections?} and what parse_port() reads
VerbsTransportObject::VerbsTransportObject(const Napi::CallbackInfo& info) : Wrap(info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  EngineObject* const engine = options.wrapped<EngineObject>("engine");
  StubFabricObject* const stub = options.wrapped<StubFabricObject>("provider");
  rdma::TransportOptions wanted;
  parse_port(options, &wanted);
  wanted.exclusive = options.boolean("exclusive", false);
  wanted.queue_pair.receive_entries = options.u32("receiveEntries", wanted.queue_pair.receive_entries);
  wanted.queue_pair.inline_bytes = options.u32("inlineBytes", wanted.queue_pair.inline_bytes);
  wanted.max_connections = options.u32("maxConnections", wanted.max_connections);
  if (options.ok() && engine == nullptr) options.fail("engine", "an engine");
  if (!options.ok()) return;
  runtime_ = engine->runtime();
  if (!usable()) return;
  if (stub != nullptr) verbs_ = stub->fabric();
  Status status = stub == nullptr ? verbs::process_library(&verbs_) : Status{};
  engine_ = engine->engine();
  wanted.engine = engine_.get();
  wanted.reactor = runtime_->reactor();
  wanted.verbs = verbs_;
  wanted.emulated = stub != nullptr;
  wanted.wake_owner = runtime_->wake_function();
  if (status.ok()) status = rdma::Transport::create(std::move(wanted), &transport_);
  if (!status.ok()) {
    throw_status(env, status);
    return;
  }
  engine_reference_ = Napi::Persistent(engine->Value());
}

bool VerbsTransportObject::usable() { return runtime_->reactor() != nullptr; }

Napi::Value VerbsTransportObject::facts(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  rdma::TransportFacts facts;
  if (const Status status = transport_->facts(&facts); !status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("transport", "verbs");
  out.Set("provider", facts.provider);
  out.Set("emulated", facts.emulated);
  out.Set("forkSafe", verbs_->fork_safe());
  out.Set("device", facts.device);
  out.Set("port", number(env, facts.port));
  out.Set("gidIndex", Napi::Number::New(env, facts.gid_index));
  out.Set("gid", gid_text(facts.gid));
  out.Set("lid", number(env, facts.port_facts.lid));
  out.Set("linkLayer", facts.port_facts.ethernet ? "ethernet" : "infiniband");
  out.Set("mtuBytes", number(env, facts.port_facts.mtu_bytes));
  out.Set("active", facts.port_facts.active);
  return out;
}

Napi::Value VerbsTransportObject::memory(const Napi::CallbackInfo& info) {
  rdma::RemoteMemory memory;
  if (!usable()) return info.Env().Undefined();
  if (const Status status = transport_->memory(&memory); !status.ok()) {
    throw_status(info.Env(), status);
    return info.Env().Undefined();
  }
  return memory_object(info.Env(), memory);
}

// (name, memory) -> peer's id
Napi::Value VerbsTransportObject::add_peer(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const std::string name = info[0].IsString() ? info[0].As<Napi::String>().Utf8Value() : "";
  rdma::RemoteMemory memory;
  if (!usable() || !parse_memory(env, info[1], &memory)) return env.Undefined();
  uint32_t peer = 0;
  if (const Status status = transport_->add_peer(name, std::move(memory), &peer); !status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  return number(env, peer);
}

// {trafficClass, gidIndex?} -> {connection, half}
Napi::Value VerbsTransportObject::open(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[0]);
  uint8_t traffic_class = 0;
  if (!parse_class(options, "trafficClass", &traffic_class)) return env.Undefined();
  const int gid_index =
      options.has("gidIndex") ? static_cast<int>(options.u64("gidIndex", 0, UINT8_MAX)) : -1;
  if (!options.ok() || !usable()) return env.Undefined();
  rdma::ConnectionHalf half;
  if (const Status status = transport_->open(traffic_class, gid_index, &half); !status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("connection", number(env, half.connection));
  out.Set("half", half_object(env, half));
  return out;
}

// (connection, {peer, half, mtuBytes, serviceLevel, trafficClass, ...})
Napi::Value VerbsTransportObject::connect(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  uint32_t peer = 0;
  verbs::PathParameters path;
  if (!usable() || !parse_path(env, info[1], &peer, &path)) return env.Undefined();
  if (const Status status = transport_->connect(u32_of(info[0]), peer, path); !status.ok())
    throw_status(env, status);
  return env.Undefined();
}

Napi::Value VerbsTransportObject::drain(const Napi::CallbackInfo& info) {
  if (!usable()) return info.Env().Undefined();
  if (const Status status = transport_->drain(u32_of(info[0])); !status.ok())
    throw_status(info.Env(), status);
  return info.Env().Undefined();
}

Napi::Value VerbsTransportObject::close(const Napi::CallbackInfo& info) {
  if (!usable()) return info.Env().Undefined();
  if (const Status status = transport_->close_connection(u32_of(info[0])); !status.ok())
    throw_status(info.Env(), status);
  return info.Env().Undefined();
}

Napi::Value VerbsTransportObject::take_events(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  const auto events = transport_->take_events();
  Napi::Array out = Napi::Array::New(env, events.size());
  for (uint32_t i = 0; i < events.size(); i++) out.Set(i, event_object(env, events[i]));
  return out;
}

Napi::Value VerbsTransportObject::statistics(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  if (!usable()) return env.Undefined();
  const rdma::TransportStatistics statistics = transport_->statistics();
  Napi::Array connections = Napi::Array::New(env, statistics.connections.size());
  for (uint32_t i = 0; i < statistics.connections.size(); i++) {
    const rdma::ConnectionStatistics& one = statistics.connections[i];
    Napi::Object object = Napi::Object::New(env);
    object.Set("connection", number(env, one.connection));
    set_peer(object, one.peer);
    if (one.peer != DP_NONE) object.Set("peerName", engine_->peer_name(one.peer));
    object.Set("trafficClass", kTrafficClasses[one.traffic_class]);
    object.Set("state", state_name(one.state));
    object.Set("qpNum", number(env, one.qp_num));
    object.Set("credits", number(env, one.credits));
    object.Set("inFlightBytes", number(env, one.in_flight_bytes));
    set_counters(object, one.counters);
    connections.Set(i, object);
  }
  Napi::Object closed = Napi::Object::New(env);
  set_counters(closed, statistics.closed);
  Napi::Object out = Napi::Object::New(env);
  out.Set("connections", connections);
  out.Set("closed", closed);
  out.Set("connectionsOpened", number(env, statistics.connections_opened));
  out.Set("badSignals", number(env, statistics.bad_signals));
  out.Set("completionQueueEntries", number(env, statistics.completion_entries));
  out.Set("completionQueueEntriesUsed", number(env, statistics.completion_entries_used));
  return out;
}

Napi::Value VerbsTransportObject::shutdown(const Napi::CallbackInfo& info) {
  if (usable()) transport_->shut_down();
  return info.Env().Undefined();
}

}  // namespace dualpath::bindings
