// `ce-tune db import`: measurements as JSON lines. An input is a whole export, or its lines between the first and the
// last, which no fuzzer hits upon by chance.
#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/digest.hpp"
#include "cache/codec.hpp"
#include "cache/export.hpp"
#include "cache/store.hpp"
#include "tests/fuzz/harness.hpp"

namespace {

using namespace ce;
using cache::Measurement;

constexpr std::string_view first_line = R"({"format":"ce measurements","version":1})";

std::string whole_export(std::string_view text) {
  if (text.starts_with(R"({"format)")) return std::string(text);
  std::istringstream lines{std::string(text)};
  std::string all(first_line), line, identities;
  all += '\n';
  int count = 0;
  for (; std::getline(lines, line); ++count) {
    all += line + '\n';
    identities += digest({line});
  }
  return all + R"({"digest":")" + digest({identities}) + R"(","measurements":)" + std::to_string(count) +
         "}\n";
}

std::vector<Measurement> read(const std::string& text) {
  std::istringstream in(text);
  return cache::read_export(in, "input");
}

std::string written(const std::vector<Measurement>& list) {
  std::ostringstream out;
  cache::write_export(out, list);
  return out.str();
}

std::set<std::string> identities_of(const std::vector<Measurement>& list) {
  std::set<std::string> found;
  for (const Measurement& one : list) found.insert(cache::identity_of(one));
  return found;
}

void import(const std::vector<Measurement>& list) {
  const auto store = cache::Store::in_memory();
  const std::set<std::string> identities = identities_of(list);
  fuzz::require(store->add(list) == static_cast<std::int64_t>(identities.size()),
                "each measurement is added once");
  fuzz::require(store->add(list) == 0, "a second import adds nothing");
  std::vector<Measurement> kept;
  for (const cache::KeySummary& summary : store->keys()) {
    cache::KeyRows rows = store->rows(summary.key);
    rows.expect_whole();
    for (Measurement& one : rows.measurements()) kept.push_back(std::move(one));
  }
  fuzz::require(kept.size() == identities.size() && identities_of(kept) == identities,
                "what was imported is what is there");
  fuzz::require(store->damages().empty(), "an import damages nothing");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto list = fuzz::parsed([&] { return read(whole_export(fuzz::as_text(data, size))); });
  if (!list) return 0;
  const std::string text = written(*list);
  fuzz::require(written(read(text)) == text, "an export is read as it was written");
  import(*list);
  return 0;
}
