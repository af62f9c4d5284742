// The text form of a Config, and what decides whether such a Config can work.
#include <array>

#include "generator/config.hpp"
#include "generator/variant.hpp"
#include "tests/fuzz/harness.hpp"

namespace {

using namespace ce;
using generator::Operation;
using generator::Problem;

constexpr std::array problems{
    Problem{.dtype = DType::bf16, .rows = 8192, .columns = 4096},
    Problem{.operation = Operation::cross_entropy,
            .dtype = DType::f32,
            .gradient = true,
            .alignment = generator::Alignment::shifted,
            .rows = 3,
            .columns = 262144},
    Problem{.operation = Operation::log_softmax,
            .dtype = DType::bf16,
            .alignment = generator::Alignment::dense,
            .rows = 1 << 20,
            .columns = 10},
    Problem{.operation = Operation::softmax_backward,
            .dtype = DType::f16,
            .strided = true,
            .rows = 1,
            .columns = 1},
    Problem{.operation = Operation::copy, .dtype = DType::f32, .rows = 1 << 20, .columns = 1 << 20},
};
constexpr generator::Limits h200{.capability = 90, .shared_bytes_per_block = 232448};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  const auto config = fuzz::parsed([&] { return generator::parse_config(text); });
  if (!config) return 0;
  fuzz::require(generator::to_text(*config) == text, "a config prints as it was read");
  const generator::Variant& variant = generator::variant(config->variant);
  for (const Problem& problem : problems) {
    if (!variant.serves(problem)) continue;
    const int shared_bytes = variant.shared_bytes(*config, problem);
    fuzz::require(shared_bytes >= 0, "shared memory is some");
    fuzz::require(variant.blocks(*config, problem) >= 0, "blocks are some");
    if (variant.rejects(*config, problem, h200)) continue;
    fuzz::require(shared_bytes <= h200.shared_bytes_per_block,
                  "a config that is not rejected fits the shared memory");
    fuzz::require(variant.blocks(*config, problem) > 0, "a config that is not rejected has blocks");
  }
  return 0;
}
