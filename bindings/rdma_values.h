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

Napi::Object memory_object(Napi::Env env, const rdma::RemoteMemory& memory);
bool parse_memory(Napi::Env env, Napi::Value value, rdma::RemoteMemory* out);
Napi::Object half_object(Napi::Env env, const rdma::ConnectionHalf& half);
// {peer, half, mtuBytes, serviceLevel, trafficClass, hopLimit?, timeout?, retryCount?, rnrRetry?}
bool parse_path(Napi::Env env, Napi::Value value, uint32_t* peer, verbs::PathParameters* out);

}  // namespace dualpath::bindings
