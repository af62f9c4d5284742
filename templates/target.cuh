// The targets of cross entropy.
#pragma once
#include "arguments.cuh"
#include "device.cuh"

namespace ce {

CE_DEVICE int64 target_of(const Arguments& arguments, int64 row) {
  return static_cast<const problem::Target*>(arguments.target)[row];
}

}  // namespace ce
