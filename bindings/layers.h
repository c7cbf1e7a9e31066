// Geometries as plain objects.
#pragma once
#include <vector>

#include "args.h"
#include "memory/geometry.h"

namespace dualpath::bindings {

// layers: [{offsetBytes, planes: [...]}]; false with an exception pending.
bool parse_layers(Napi::Env env, Options& options, std::vector<LayerPlaces>* layers);

}  // namespace dualpath::bindings
