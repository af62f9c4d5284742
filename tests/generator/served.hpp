#pragma once
/// \file
/// What a Variant serves, asked of the Variant: tests of every Variant list none by name.

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/config.hpp"
#include "generator/problem.hpp"
#include "generator/variant.hpp"

namespace ce::test {

/// The limits of a GPU of that capability.
[[nodiscard]] generator::Limits limits_of(int capability);

/// Its configs for the problem on such a device, in the order of space().
[[nodiscard]] std::vector<generator::Config> configs_of(const generator::Variant& variant,
                                                        const generator::Problem& problem,
                                                        const generator::Limits& limits);

/// The problem, or one that differs in as little as possible, in options, width and operation, of those that the variant
/// serves and has configs for on a GPU of capability 90. Nothing where it serves none that `keeps` what it must.
[[nodiscard]] std::optional<generator::Problem> nearest_served(
    const generator::Variant& variant, const generator::Problem& wanted,
    const std::function<bool(const generator::Problem&)>& keeps);
/// \throws std::logic_error for a variant that serves nothing
[[nodiscard]] generator::Problem nearest_served(const generator::Variant& variant,
                                                const generator::Problem& wanted);

/// Whether it serves the operation at all, in whatever shape and with whatever options.
[[nodiscard]] bool serves(const generator::Variant& variant, generator::Operation operation);
/// Every operation and word of code_text() that a problem of the variant can have, but for its columns and alignment.
[[nodiscard]] std::set<std::string> words_served(const generator::Variant& variant, DType dtype);
/// The problem that shows the word, if the variant serves one.
[[nodiscard]] std::optional<generator::Problem> problem_with(const generator::Variant& variant, DType dtype,
                                                             std::string_view word);

}  // namespace ce::test
