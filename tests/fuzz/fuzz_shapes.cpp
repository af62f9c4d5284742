// The file of `ce-tune sweep --from`.
#include "cli/shapes_file.hpp"
#include "tests/fuzz/harness.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ce;
  const auto problems =
      fuzz::parsed([&] { return cli::problems_in(fuzz::as_text(data, size), "shapes.csv", {}); });
  if (!problems) return 0;
  for (const generator::Problem& problem : *problems) {
    generator::validate(problem);
    const generator::Problem bucket = generator::bucketed(problem);
    if (bucket.rows == problem.rows)
      fuzz::require(generator::parse_key_text(generator::key_text(problem)) == problem,
                    "the key of a problem is read as the problem");
  }
  return 0;
}
