#include "runtime/model_key.hpp"

#include <charconv>
#include <cstddef>
#include <string>

namespace ce::runtime {

std::optional<Model> parse_model_key(std::string_view text) {
  std::string_view rest = text;
  const auto until = [&rest](std::string_view mark) {
    const std::size_t end = rest.find(mark);
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + mark.size());
    return part;
  };
  // A member whose text is not a number of its type stays 0, so the model prints as another text.
  const auto number = [&until](auto& value, std::string_view mark) {
    const std::string_view digits = until(mark);
    if (!digits.starts_with('-')) std::from_chars(digits.data(), digits.data() + digits.size(), value);
  };
  Model model{.name = std::string(until("|cc="))};
  number(model.capability, "|sm=");
  number(model.multiprocessors, "|l2=");
  number(model.l2_bytes, "|smem=");
  number(model.shared_bytes_per_block, "/");
  number(model.shared_bytes_per_multiprocessor, "|regs=");
  number(model.registers_per_multiprocessor, "|threads=");
  number(model.threads_per_multiprocessor, "|mig=");
  if (rest != "none") model.mig_slice = rest;
  if (model.key() != text) return std::nullopt;
  return model;
}

}  // namespace ce::runtime
