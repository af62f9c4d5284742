#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "c/cross_entropy_fields.hpp"
#include "generator/operations/cross_entropy.hpp"

namespace ce::c {
namespace {

template <class Table>
auto find_named(const Table& table, std::string_view name, std::string_view Table::value_type::*member) {
  return std::find_if(table.begin(), table.end(), [&](const auto& row) { return row.*member == name; });
}

/// The C interface has a table of its own, since Python sees no other: it says the same.
TEST(CrossEntropyFields, OfOutputsAreThoseOfTheGenerator) {
  const auto& known = generator::cross_entropy_outputs;
  EXPECT_EQ(output_fields.size(), known.size());
  for (const OutputField& field : output_fields) {
    SCOPED_TRACE(std::string(field.name));
    const auto row = find_named(known, field.name, &generator::CrossEntropyOutput::tensor);
    ASSERT_NE(row, known.end());
    const bool of_rows = row->kind == generator::CrossEntropyOutput::Kind::of_rows;
    EXPECT_EQ(field.kind == OutputField::Kind::of_rows, of_rows);
    if (of_rows) {
      EXPECT_EQ(static_cast<int>(field.dtype), static_cast<int>(row->dtype));
    }
    EXPECT_EQ(field.of_forward.own, row->member.of_forward);
    EXPECT_EQ(field.of_merge.own, row->member.of_merge);
  }
}

TEST(CrossEntropyFields, OfAmountsAreThoseOfTheGenerator) {
  const auto& known = generator::cross_entropy_options;
  EXPECT_EQ(amount_fields.size(), known.size());
  for (const AmountField& field : amount_fields) {
    SCOPED_TRACE(std::string(field.name));
    const auto row = find_named(known, field.name, &generator::CrossEntropyOption::name);
    ASSERT_NE(row, known.end());
    EXPECT_EQ(field.of_forward, row->of_forward);
    EXPECT_EQ(field.of_backward, row->of_backward);
  }
}

}  // namespace
}  // namespace ce::c
