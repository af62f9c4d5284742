#include "tuner/key.hpp"

#include <fmt/format.h>

#include "ce/error.hpp"

namespace ce::tuner {
namespace {

constexpr std::string_view beginning_of_races = "race ";  // no operation has this name

}  // namespace

cache::Key key_of(const generator::Problem& problem, const runtime::Model& model) {
  return {generator::key_text(problem), model.key()};
}

std::optional<generator::Problem> problem_of(const cache::Key& key) {
  try {
    return generator::parse_key_text(key.problem);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

cache::Key race_key(std::string_view subject, const runtime::Model& model) {
  return {fmt::format("{}{}", beginning_of_races, subject), model.key()};
}

std::optional<std::string_view> subject_of_race(const cache::Key& key) {
  const std::string_view text = key.problem;
  return text.starts_with(beginning_of_races) ? std::optional(text.substr(beginning_of_races.size()))
                                              : std::nullopt;
}

}  // namespace ce::tuner
