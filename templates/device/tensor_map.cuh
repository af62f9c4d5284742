// The description of a matrix for bulk tensor copies: the driver's CUtensorMap, as a kernel's parameter holds it.
#pragma once

namespace ce {

struct alignas(64) TensorMap {
  unsigned long long words[16];
};

}  // namespace ce
