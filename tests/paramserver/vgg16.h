#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/arena.h"
#include "nn/module.h"

namespace troop {

// The tensors of VGG-16 (Simonyan & Zisserman 2015, configuration D): 138,357,544 parameters, of
// which fc6 has 102,764,544.
inline std::vector<ParamSpec> Vgg16Params(std::int64_t* parameters) {
  std::vector<ParamSpec> params;
  std::int64_t offset = 0;
  const auto add = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    params.push_back({.name = name + ".weight", .shape = {out, in}, .offset = offset});
    offset += AlignParams(in * out);
    params.push_back({.name = name + ".bias", .shape = {out}, .offset = offset});
    offset += AlignParams(out);
  };
  std::int64_t in = 3;
  int layer = 0;
  for (const std::int64_t out : {64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512}) {
    add("conv" + std::to_string(++layer), in * 9, out);
    in = out;
  }
  add("fc6", 512 * 7 * 7, 4096);
  add("fc7", 4096, 4096);
  add("fc8", 4096, 1000);
  *parameters = offset;
  return params;
}

}  // namespace troop
