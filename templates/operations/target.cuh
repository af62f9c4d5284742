// The targets of cross entropy.
#pragma once
#include "arguments.cuh"
#include "device/device.cuh"

namespace ce {

CE_DEVICE int64 target_of(const Arguments& arguments, int64 row) {
  return static_cast<const problem::Target*>(arguments.target)[row];
}

/// The number of classes: in all shards, if they are spread over ranks.
CE_DEVICE int64 class_count(const Arguments& arguments) {
  if constexpr (!problem::sharded) return problem::columns;
  return arguments.classes;
}

/// The weight of a class; 1 without weights.
CE_DEVICE float weight_of(const Arguments& arguments, int64 column) {
  if constexpr (!problem::weights) return 1.f;
  return to_float(load_element<Load::ca>(static_cast<const problem::Weight*>(arguments.weight) + column));
}

}  // namespace ce
