// The problem's half of a lookup key.
#include "generator/problem.hpp"
#include "tests/fuzz/harness.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ce;
  const std::string_view text = fuzz::as_text(data, size);
  const auto problem = fuzz::parsed([&] { return generator::parse_key_text(text); });
  if (!problem) return 0;
  fuzz::require(generator::key_text(*problem) == text, "a key prints as it was read");
  generator::validate(*problem);
  fuzz::require(generator::parse_key_text(generator::key_text(*problem)) == *problem,
                "a key is read as it was");
  fuzz::require(generator::traffic(*problem).total() > 0, "the bytes of a problem can be counted");
  fuzz::require(generator::workspace_bytes(*problem) >= 0, "the bytes of a workspace can be counted");
  fuzz::require(!generator::title(*problem).empty(), "a problem has a title");
  return 0;
}
