#include "rdma_values.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "layers.h"

namespace dualpath::bindings {

std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

std::string gid_text(const ibv_gid& gid) {
  std::string text;
  for (const uint8_t byte : gid.raw) {
    char digits[3];
    snprintf(digits, sizeof digits, "%02x", byte);
    text += digits;
  }
  return text;
}

bool parse_hex(Options& options, const char* name, uint64_t* out) {
  const std::string text = options.string(name);
  if (!options.ok()) return false;
  const bool digits = text.size() > 2 && text.size() <= 18 && text.compare(0, 2, "0x") == 0 &&
                      text.find_first_not_of("0123456789abcdef", 2) == std::string::npos;
  if (!digits) options.fail(name, "an address as '0x' and hexadecimal digits");
  *out = strtoull(text.c_str(), nullptr, 16);
  return options.ok();
}

bool parse_gid(Options& options, const char* name, ibv_gid* out) {
  const std::string text = options.string(name);
  if (!options.ok()) return false;
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) {
    options.fail(name, "a GID of 32 hexadecimal digits");
    return false;
  }
  for (size_t i = 0; i < 16; i++) {
    out->raw[i] = static_cast<uint8_t>(strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return true;
}

bool parse_class(Options& options, const char* name, uint8_t* out) {
  const std::string text = options.string(name);
  for (uint8_t c = 0; options.ok() && c < rdma::VerbsPeer::kClasses; c++) {
    if (text != kTrafficClasses[c]) continue;
    *out = c;
    return true;
  }
  options.fail(name, "'inference', 'kv' or 'control'");
  return false;
}

namespace {

Napi::Object layer_object(Napi::Env env, const LayerPlaces& layer) {
  Napi::Array planes = Napi::Array::New(env, layer.planes.size());
  for (uint32_t p = 0; p < layer.planes.size(); p++) {
    Napi::Object plane = Napi::Object::New(env);
    plane.Set("offsetBytes", number(env, layer.planes[p].offset_bytes));
    plane.Set("bytesPerToken", number(env, layer.planes[p].bytes_per_token));
    plane.Set("tokenStrideBytes", number(env, layer.planes[p].token_stride_bytes));
    plane.Set("windowTokens", number(env, layer.planes[p].window_tokens));
    planes.Set(p, plane);
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("offsetBytes", number(env, layer.offset_bytes));
  out.Set("planes", planes);
  return out;
}

Napi::Object geometry_object(Napi::Env env, const rdma::RemoteGeometry& geometry) {
  const GeometryOptions& layout = geometry.layout;
  Napi::Array layers = Napi::Array::New(env, layout.layers.size());
  for (uint32_t l = 0; l < layout.layers.size(); l++) layers.Set(l, layer_object(env, layout.layers[l]));
  Napi::Array arenas = Napi::Array::New(env, geometry.arenas.size());
  for (uint32_t a = 0; a < geometry.arenas.size(); a++) {
    Napi::Object arena = Napi::Object::New(env);
    arena.Set("address", hex(geometry.arenas[a].address));
    arena.Set("bytes", number(env, geometry.arenas[a].bytes));
    arena.Set("key", number(env, geometry.arenas[a].key));
    arenas.Set(a, arena);
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("id", number(env, geometry.id));
  out.Set("blockTokens", number(env, layout.block_tokens));
  out.Set("slots", number(env, layout.slots));
  out.Set("slotsPerArena", number(env, layout.slots_per_arena));
  out.Set("offsetBytes", number(env, layout.offset_bytes));
  out.Set("slotStrideBytes", number(env, layout.slot_stride_bytes));
  out.Set("layers", layers);
  out.Set("arenas", arenas);
  return out;
}

bool array_of(Options& options, const char* name, uint32_t most, Napi::Array* out) {
  const Napi::Value value = options.get(name);
  if (!options.ok()) return false;
  if (!value.IsArray() || value.As<Napi::Array>().Length() > most) {
    options.fail(name, ("an array of at most " + std::to_string(most)).c_str());
    return false;
  }
  *out = value.As<Napi::Array>();
  return true;
}

constexpr uint32_t kMaxArenas = 1 << 16;

bool parse_geometry(Napi::Env env, Napi::Value value, rdma::RemoteGeometry* out) {
  Options options(env, value);
  out->id = options.u32("id");
  out->layout.block_tokens = options.u32("blockTokens");
  out->layout.slots = options.u32("slots");
  out->layout.slots_per_arena = options.u32("slotsPerArena");
  out->layout.offset_bytes = options.u64("offsetBytes");
  out->layout.slot_stride_bytes = options.u64("slotStrideBytes");
  if (!options.ok() || !parse_layers(env, options, &out->layout.layers)) return false;
  Napi::Array arenas;
  if (!array_of(options, "arenas", kMaxArenas, &arenas)) return false;
  for (uint32_t a = 0; a < arenas.Length(); a++) {
    Options arena(env, arenas.Get(a));
    rdma::RemoteArena remote{0, arena.u64("bytes"), arena.u32("key")};
    if (!arena.ok() || !parse_hex(arena, "address", &remote.address)) return false;
    out->arenas.push_back(remote);
  }
  return true;
}

}  // namespace

Napi::Object memory_object(Napi::Env env, const rdma::RemoteMemory& memory) {
  Napi::Array geometries = Napi::Array::New(env, memory.geometries.size());
  for (uint32_t g = 0; g < memory.geometries.size(); g++) {
    geometries.Set(g, geometry_object(env, memory.geometries[g]));
  }
  Napi::Object out = Napi::Object::New(env);
  out.Set("counterEntries", number(env, memory.counter_entries));
  out.Set("geometries", geometries);
  return out;
}

bool parse_memory(Napi::Env env, Napi::Value value, rdma::RemoteMemory* out) {
  Options options(env, value);
  out->counter_entries = options.u32("counterEntries");
  Napi::Array geometries;
  if (!options.ok() || !array_of(options, "geometries", GeometryTable::kMax, &geometries)) return false;
  for (uint32_t g = 0; g < geometries.Length(); g++) {
    rdma::RemoteGeometry geometry;
    if (!parse_geometry(env, geometries.Get(g), &geometry)) return false;
    out->geometries.push_back(std::move(geometry));
  }
  return true;
}

Napi::Object half_object(Napi::Env env, const rdma::ConnectionHalf& half) {
  Napi::Object out = Napi::Object::New(env);
  out.Set("qpNum", number(env, half.address.qp_num));
  out.Set("psn", number(env, half.address.psn));
  out.Set("receives", number(env, half.address.receives));
  out.Set("creditAddress", hex(half.address.credit_address));
  out.Set("creditKey", number(env, half.address.credit_key));
  out.Set("gid", gid_text(half.gid));
  out.Set("lid", number(env, half.lid));
  return out;
}

bool parse_path(Napi::Env env, Napi::Value value, uint32_t* peer, verbs::PathParameters* out) {
  Options options(env, value);
  *peer = options.u32("peer");
  const auto u8 = [&](const char* name, uint8_t fallback) {
    return static_cast<uint8_t>(options.u64(name, fallback, UINT8_MAX));
  };
  out->mtu_bytes = options.u32("mtuBytes", out->mtu_bytes);
  out->service_level = u8("serviceLevel", 0);
  out->traffic_class = u8("trafficClass", 0);
  out->hop_limit = u8("hopLimit", out->hop_limit);
  out->timeout = u8("timeout", out->timeout);
  out->retry_count = u8("retryCount", out->retry_count);
  out->rnr_retry = u8("rnrRetry", out->rnr_retry);
  if (!options.ok()) return false;
  Options half(env, options.get("half"));
  out->peer.qp_num = half.u32("qpNum");
  out->peer.psn = half.u32("psn");
  out->peer.receives = half.u32("receives");
  out->peer.credit_key = half.u32("creditKey");
  out->peer_lid = static_cast<uint16_t>(half.u64("lid", 0, UINT16_MAX));
  return half.ok() && parse_hex(half, "creditAddress", &out->peer.credit_address) &&
         parse_gid(half, "gid", &out->peer_gid);
}

}  // namespace dualpath::bindings
