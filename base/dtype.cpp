#include "ce/dtype.hpp"

#include <array>
#include <utility>

namespace ce {
namespace {

constexpr std::array<std::pair<DType, std::string_view>, 6> dtype_names{{
    {DType::f32, "f32"},
    {DType::f16, "f16"},
    {DType::bf16, "bf16"},
    {DType::i32, "i32"},
    {DType::i64, "i64"},
    {DType::u8, "u8"},
}};

constexpr std::array<std::pair<Reduction, std::string_view>, 3> reduction_names{{
    {Reduction::none, "none"},
    {Reduction::mean, "mean"},
    {Reduction::sum, "sum"},
}};

template <class Table, class Value>
std::string_view name_in(const Table& table, Value value) noexcept {
  for (const auto& [known, text] : table)
    if (known == value) return text;
  return "?";
}

template <class Value, class Table>
std::optional<Value> parse_in(const Table& table, std::string_view text) noexcept {
  for (const auto& [known, name] : table)
    if (name == text) return known;
  return std::nullopt;
}

}  // namespace

std::string_view name(DType dtype) noexcept { return name_in(dtype_names, dtype); }
std::optional<DType> parse_dtype(std::string_view text) noexcept {
  return parse_in<DType>(dtype_names, text);
}

std::string_view name(Reduction reduction) noexcept { return name_in(reduction_names, reduction); }
std::optional<Reduction> parse_reduction(std::string_view text) noexcept {
  return parse_in<Reduction>(reduction_names, text);
}

}  // namespace ce
