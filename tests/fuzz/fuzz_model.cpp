// The device's half of a lookup key.
#include "runtime/model_key.hpp"
#include "tests/fuzz/harness.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ce;
  const std::string_view text = fuzz::as_text(data, size);
  const auto model = runtime::parse_model_key(text);
  if (!model) return 0;
  fuzz::require(model->key() == text, "a model prints as it was read");
  for (const std::int64_t number :
       {std::int64_t{model->capability}, std::int64_t{model->multiprocessors}, model->l2_bytes,
        std::int64_t{model->shared_bytes_per_block}, std::int64_t{model->shared_bytes_per_multiprocessor},
        std::int64_t{model->registers_per_multiprocessor}, std::int64_t{model->threads_per_multiprocessor}})
    fuzz::require(number >= 0, "no device has less than none of anything");
  return 0;
}
