// What two engines tell each other to be connected by verbs, as plain objects that JSON can carry: addresses
// are strings ('0x7f...'), GIDs 32 hexadecimal digits.
#pragma once
#include "args.h"
#include "rdma/transport.h"

namespace dualpath::bindings {

inline constexpr const char* kTrafficClasses[] = {"inference", "kv", "control"};  // dp_traffic_class

std::string hex(uint64_t value);
std::string gid_text(const ibv_gid& gid);
bool parse_hex(Options& options, const char* name, uint64_t* out);
bool parse_gid(Options& options, const char* name, ibv_gid* out);
bool parse_class(Options& options, const char* name, uint8_t* out);

// device, port?, gidIndex?, sendEntries?, sges?, chainBytes?, inFlightBytes?: of whatever uses a port.
template <typename PortOptions>
void parse_port(Options& options, PortOptions* out) {
  out->device = options.string("device");
  out->port = static_cast<uint8_t>(options.u64("port", 1, UINT8_MAX));
  if (options.has("gidIndex")) out->gid_index = static_cast<int>(options.u64("gidIndex", 0, UINT8_MAX));
  out->queue_pair.send_entries = options.u32("sendEntries", out->queue_pair.send_entries);
  out->queue_pair.sges = options.u32("sges", out->queue_pair.sges);
  out->chain_bytes = options.u64("chainBytes", out->chain_bytes);
  out->in_flight_bytes = options.u64("inFlightBytes", out->in_flight_bytes);
}

Napi::Object memory_object(Napi::Env env, const rdma::RemoteMemory& memory);
bool parse_memory(Napi::Env env, Napi::Value value, rdma::RemoteMemory* out);
Napi::Object half_object(Napi::Env env, const rdma::ConnectionHalf& half);
// {peer, half, mtuBytes, serviceLevel, trafficClass, hopLimit?, timeout?, retryCount?, rnrRetry?}
bool parse_path(Napi::Env env, Napi::Value value, uint32_t* peer, verbs::PathParameters* out);

}  // namespace dualpath::bindings
