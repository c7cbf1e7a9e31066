// Geometries in, and page tables of requests: what an engine says of its memory.
#include <algorithm>

#include "layers.h"
#include "objects.h"

namespace dualpath::bindings {
namespace {

bool parse_plane(Options& options, Plane* plane) {
  plane->offset_bytes = options.u64("offsetBytes");
  plane->bytes_per_token = options.u32("bytesPerToken");
  plane->token_stride_bytes = options.u32("tokenStrideBytes", plane->bytes_per_token);
  plane->window_tokens = options.u32("windowTokens");
  return options.ok();
}

}  // namespace

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

namespace {

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

// {region, offsetBytes, pageStrideBytes, tokenStrideBytes, bytes}
bool parse_part(Options& options, PagePart* part, std::vector<RegionObject*>* regions) {
  RegionObject* region = options.wrapped<RegionObject>("region");
  if (region != nullptr) part->region = region->region();
  part->offset_bytes = options.u64("offsetBytes");
  part->page_stride_bytes = options.u64("pageStrideBytes");
  part->token_stride_bytes = options.u64("tokenStrideBytes");
  part->bytes = options.u32("bytes");
  if (options.ok() && region != nullptr) regions->push_back(region);
  return options.ok();
}

bool array_of(Options& options, const char* name, Napi::Array* out) {
  const Napi::Value value = options.get(name);
  if (options.ok() && !value.IsArray()) options.fail(name, "an array");
  if (options.ok()) *out = value.As<Napi::Array>();
  return options.ok();
}

bool parse_paged_plane(Napi::Env env, Napi::Value value, PagedPlane* plane,
                       std::vector<RegionObject*>* regions) {
  Options options(env, value);
  plane->table = options.u32("table");
  plane->window_tokens = options.u32("windowTokens");
  Napi::Array parts;
  if (!array_of(options, "parts", &parts)) return false;
  for (uint32_t i = 0; i < parts.Length(); i++) {
    Options part_options(env, parts.Get(i));
    PagePart part{};
    if (!parse_part(part_options, &part, regions)) return false;
    plane->parts.push_back(std::move(part));
  }
  return true;
}

bool parse_pages(Napi::Env env, Napi::Value value, PagedOptions* out, std::vector<RegionObject*>* regions) {
  Options options(env, value);
  out->block_tokens = options.u32("blockTokens");
  Napi::Array tables;
  Napi::Array layers;
  if (!array_of(options, "tables", &tables) || !array_of(options, "layers", &layers)) return false;
  for (uint32_t t = 0; t < tables.Length(); t++) {
    Options table(env, tables.Get(t));
    out->tables.push_back({table.string("name"), table.u32("pages"), table.u32("pageTokens")});
    if (!table.ok()) return false;
  }
  for (uint32_t l = 0; l < layers.Length(); l++) {
    const Napi::Value planes = layers.Get(l);
    if (!planes.IsArray()) options.fail("layers", "arrays of planes");
    if (!options.ok()) return false;
    out->layers.emplace_back();
    for (uint32_t p = 0; p < planes.As<Napi::Array>().Length(); p++) {
      out->layers.back().emplace_back();
      if (!parse_paged_plane(env, planes.As<Napi::Array>().Get(p), &out->layers.back().back(), regions))
        return false;
    }
  }
  return true;
}

}  // namespace

Napi::Value EngineObject::add_if_ok(Napi::Env env, Status status, std::shared_ptr<const Geometry> geometry) {
  uint32_t id = 0;
  if (status.ok()) status = engine_->add_geometry(std::move(geometry), &id);
  if (!status.ok()) {
    throw_status(env, status);
    return env.Undefined();
  }
  return Napi::Number::New(env, id);
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
  const Status status = Geometry::create(std::move(wanted), &geometry);
  return add_if_ok(env, status, std::move(geometry));
}

// {blockTokens, tables: [{name, pages, pageTokens}], layers: [[{table, windowTokens, parts: [...]}]]} -> id
Napi::Value EngineObject::add_pages(const Napi::CallbackInfo& info) {
  PagedOptions wanted;
  std::vector<RegionObject*> regions;
  if (!parse_pages(info.Env(), info[0], &wanted, &regions)) return info.Env().Undefined();
  std::shared_ptr<const Geometry> geometry;
  const Status status = Geometry::create_paged(wanted, &geometry);
  const Napi::Value id = add_if_ok(info.Env(), status, std::move(geometry));
  if (info.Env().IsExceptionPending()) return id;
  std::sort(regions.begin(), regions.end());
  regions.erase(std::unique(regions.begin(), regions.end()), regions.end());
  for (RegionObject* region : regions) regions_.push_back(Napi::Persistent(region->Value()));
  return id;
}

// writePages(geometry, offset, {firstBlock, blocks, tokenBegin, tokenEnd, windowEnd}, tables: Uint32Array[]):
// the entries of these blocks, at `offset` of the slot table.
Napi::Value EngineObject::write_pages(const Napi::CallbackInfo& info) {
  const Napi::Env env = info.Env();
  Options options(env, info[2]);
  const auto geometry = engine_->geometry(u32_of(info[0]));
  const uint32_t offset = u32_of(info[1]);
  const BlockSpan span{options.u32("firstBlock"),
                       options.u32("blocks"),
                       {options.u32("tokenBegin"), options.u32("tokenEnd")},
                       options.u32("windowEnd")};
  if (geometry == nullptr) options.fail("geometry", "a geometry of the engine");
  if (!info[3].IsArray()) options.fail("tables", "an array of Uint32Arrays");
  if (!options.ok()) return env.Undefined();
  const uint64_t needed = static_cast<uint64_t>(span.blocks) * geometry->entries_per_block();
  const uint32_t entries = engine_->door().header().slot_entries;
  if (offset > entries || needed > entries - offset) options.fail("offset", "a range of the slot table");
  const uint64_t first = static_cast<uint64_t>(span.first_block) * geometry->block_tokens();
  const uint64_t last = first + static_cast<uint64_t>(span.blocks) * geometry->block_tokens();
  if (span.tokens.begin > span.tokens.end || span.tokens.begin < first || span.tokens.end > last)
    options.fail("tokenBegin, tokenEnd", "tokens of the blocks");
  std::vector<std::span<const uint32_t>> tables;
  const Napi::Array given = info[3].As<Napi::Array>();
  for (uint32_t t = 0; options.ok() && t < given.Length(); t++) {
    const Napi::Value value = given.Get(t);
    if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_uint32_array) {
      options.fail("tables", "an array of Uint32Arrays");
      break;
    }
    const Napi::Uint32Array table = value.As<Napi::Uint32Array>();
    tables.emplace_back(table.Data(), table.ElementLength());
  }
  if (!options.ok()) return env.Undefined();
  for (const Napi::ObjectReference& region : regions_) {
    const RegionObject* object = RegionObject::Unwrap(region.Value());
    if (object->there()) continue;
    throw_status(env,
                 Status::error("INVALID_ARGUMENT",
                               "memory '" + object->region()->name() +
                                   "': its ArrayBuffer has been transferred away; keep it here, or adopt a "
                                   "SharedArrayBuffer"));
    return env.Undefined();
  }
  const Status status = pages_.read(*geometry, span, tables, engine_->door().slots() + offset);
  if (!status.ok()) throw_status(env, status);
  return env.Undefined();
}

}  // namespace dualpath::bindings
