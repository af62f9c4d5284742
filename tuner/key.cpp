#include "tuner/key.hpp"

#include "ce/error.hpp"

namespace ce::tuner {

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

}  // namespace ce::tuner
