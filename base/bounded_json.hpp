#pragma once
/// \file
/// Reads JSON within bounds: the text may come from anyone.

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ce/error.hpp"

namespace ce {

struct JsonBounds {
  std::size_t most_bytes = std::size_t{16} << 20;
  int most_depth = 16;  ///< nesting of arrays and objects; code that walks over a value recurses as deeply
};

/// \tparam Json  a type of nlohmann's
/// \throws InvalidArgument for a text beyond the bounds, and for an object with the same name twice;
/// nlohmann::json::parse_error for a text that is not JSON
template <class Json>
[[nodiscard]] Json parse_json(std::string_view text, const JsonBounds& bounds = {}) {
  if (text.size() > bounds.most_bytes)
    throw InvalidArgument("JSON", fmt::format("{} bytes long", text.size()),
                          fmt::format("{} at most", bounds.most_bytes));
  using Event = typename Json::parse_event_t;
  std::vector<std::set<std::string>> names;  // one set for each object that is open
  return Json::parse(text, [&](int depth, Event event, Json& parsed) {
    if ((event == Event::object_start || event == Event::array_start) && depth >= bounds.most_depth)
      throw InvalidArgument("JSON", fmt::format("nested {} levels deep", depth + 1),
                            fmt::format("{} at most", bounds.most_depth));
    if (event == Event::object_start) names.emplace_back();
    if (event == Event::object_end) names.pop_back();
    if (event == Event::key && !names.back().insert(parsed.template get<std::string>()).second)
      throw InvalidArgument(parsed.template get<std::string>(), "given twice",
                            "each name only once in an object");
    return true;
  });
}

}  // namespace ce
