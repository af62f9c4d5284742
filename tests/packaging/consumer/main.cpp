// Uses the public face of ce alone: runs a softmax on the host device and prints the version. Its argument is
// the database.

#include <ce/ce.hpp>
#include <cmath>
#include <iostream>
#include <vector>

#if __has_include("tuner/tuner.hpp") || __has_include("runtime/device.hpp") || \
                                                      __has_include("cache/cache.hpp")
#error "a consumer can include the rooms behind the public headers"
#endif

namespace {

/// The sum of one row's probabilities.
float softmax_sum(const char* database) {
  ce::Context context({.device = "host", .database = database, .policy = ce::Policy::lookup});
  std::vector<float> row{1.F, -2.F, 3.F, 0.5F};
  ce::Memory memory = context.allocate(row.size() * sizeof(float));
  memory.upload(row.data());
  const ce::Tensor tensor{.data = memory.data(),
                          .dtype = ce::DType::f32,
                          .rows = 1,
                          .columns = static_cast<std::int64_t>(row.size())};
  context.run(ce::Softmax{}, {.input = tensor, .output = tensor});
  memory.download(row.data());
  float sum = 0;
  for (const float probability : row) sum += probability;
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: consumer <database>\n";
    return 2;
  }
  if (ce::version() != CE_VERSION) {
    std::cerr << "the library is of version " << ce::version() << ", its headers of " << CE_VERSION << '\n';
    return 1;
  }
  try {
    const float sum = softmax_sum(argv[1]);
    if (!(std::abs(sum - 1.F) < 1e-5F)) {
      std::cerr << "the probabilities sum to " << sum << '\n';
      return 1;
    }
  } catch (const ce::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
  std::cout << ce::version() << '\n';
}
