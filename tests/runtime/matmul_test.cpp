#include "runtime/matmul.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ce/error.hpp"
#include "runtime/host/device.hpp"
#include "tests/runtime/matmul_cases.hpp"

namespace ce::runtime {
namespace {

TEST(Matmul, TheHostDeviceMakesProducts) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_products(*device, 1);
}

TEST(Matmul, AProductOfNothingIsWhatWasThere) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_product(*device, device->matmuls(), {.m = 3, .n = 5, .k = 0}, 0, 1);
  test::check_product(*device, device->matmuls(), {.m = 3, .n = 5, .k = 0, .accumulates = true}, 0, 1);
  test::check_product(*device, device->matmuls(), {.m = 0, .n = 5, .k = 2}, 0, 1);
}

TEST(Matmul, OneWhoseSizesAreMultiplesOfNothingIsMadeInTwo) {
  const std::unique_ptr<Device> device = open_host_device();
  test::check_split_products(*device, 2);
}

/// 50 columns, of which the last two are apart.
Matmul odd_product() {
  return {.m = 16,
          .n = 50,
          .k = 24,
          .input = DType::bf16,
          .output = DType::bf16,
          .a_stride = 24,
          .b_stride = 56,
          .d_stride = 56};
}

TEST(Matmul, WhatWonWithMoreTokensMakesFewInTwo) {
  const std::unique_ptr<Device> device = open_host_device();
  const Matmul fewer = odd_product();
  Matmul more = fewer;
  more.m = 32;
  auto behind = std::make_unique<test::Behind>(*device);
  const test::Behind& inner = *behind;
  SplitMatmuls library(std::move(behind), more.m * more.n * more.k);
  const MatmulAlgorithm winner = library.algorithms(more, 0, 1).front();
  ASSERT_EQ(winner.pieces.size(), 2U);
  EXPECT_TRUE(library.algorithms(fewer, 0, 1).front().pieces.empty()) << "too small to begin with";
  const std::optional<MatmulAlgorithm> same = library.algorithm(fewer, winner.text, 0);
  ASSERT_TRUE(same) << "numbers of tokens up to a power of two share the winner";
  ASSERT_EQ(same->pieces.size(), 2U);
  EXPECT_TRUE(library.neighbours(fewer, *same, 0, 4).empty()) << "the host's loops have none";
  std::vector<std::byte> a(16 * 24 * 2), b(24 * 56 * 2), d(16 * 56 * 2);
  library.launch(fewer, *same, {.a = a.data(), .b = b.data(), .d = d.data()}, nullptr);
  EXPECT_EQ(inner.rests, 1);
}

/// Refuses products by their number of columns.
class Choosy final : public MatmulLibrary {
 public:
  explicit Choosy(std::vector<std::int64_t> columns) : refused_(std::move(columns)) {}
  std::string name() const override { return "choosy"; }
  std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t, int most) override {
    if (std::ranges::count(refused_, matmul.n) > 0) throw Unsupported("no algorithm");
    std::vector<MatmulAlgorithm> all{{.text = "first"}, {.text = "second"}, {.text = "third"}};
    all.resize(std::min(all.size(), static_cast<std::size_t>(most)));
    return all;
  }
  std::vector<MatmulAlgorithm> neighbours(const Matmul&, const MatmulAlgorithm&, std::int64_t, int) override {
    return {};
  }
  std::optional<MatmulAlgorithm> algorithm(const Matmul&, std::string_view, std::int64_t) override {
    return std::nullopt;
  }
  void launch(const Matmul&, const MatmulAlgorithm&, const MatmulOperands&, Stream) override {}

 private:
  std::vector<std::int64_t> refused_;
};

TEST(Matmul, WaysThatALibraryDoesNotHaveAreLeftOut) {
  const auto texts = [](std::vector<std::int64_t> refused, int most) {
    SplitMatmuls library(std::make_unique<Choosy>(std::move(refused)), 0);
    std::vector<std::string> all;
    for (const MatmulAlgorithm& one : library.algorithms(odd_product(), 0, most)) all.push_back(one.text);
    return all;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(texts({}, 1), Texts{"first,in_two"});
  EXPECT_EQ(texts({}, 4), (Texts{"first,in_two", "second,in_two", "first", "second"}));
  EXPECT_EQ(texts({}, 3), (Texts{"first,in_two", "second,in_two", "first"}));
  EXPECT_EQ(texts({48}, 4), (Texts{"first", "second", "third"})) << "not the main product";
  EXPECT_EQ(texts({2}, 4), (Texts{"first", "second", "third"})) << "not the rest";
  EXPECT_EQ(texts({50}, 4), (Texts{"first,in_two", "second,in_two"})) << "in two alone";
  EXPECT_THROW(texts({48, 50}, 4), Unsupported);
}

/// Names other algorithms of a small product than of a large one, which has a neighbour, and remembers what runs.
class TwoSizes final : public MatmulLibrary {
 public:
  TwoSizes(std::int64_t of_large, std::int64_t of_small) : of_large_(of_large), of_small_(of_small) {}
  std::string name() const override { return "two sizes"; }
  std::vector<MatmulAlgorithm> algorithms(const Matmul& matmul, std::int64_t, int) override {
    return {named(matmul, is_small(matmul) ? "small" : "large")};
  }
  std::vector<MatmulAlgorithm> neighbours(const Matmul& matmul, const MatmulAlgorithm& algorithm,
                                          std::int64_t, int) override {
    return {named(matmul, "beside " + algorithm.text)};
  }
  std::optional<MatmulAlgorithm> algorithm(const Matmul& matmul, std::string_view text,
                                           std::int64_t) override {
    return named(matmul, std::string(text));
  }
  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands&,
              Stream) override {
    launches.emplace_back(matmul.n, algorithm.text);
  }
  std::vector<std::pair<std::int64_t, std::string>> launches;  ///< columns and algorithms

 private:
  static bool is_small(const Matmul& matmul) { return matmul.n < 8; }
  MatmulAlgorithm named(const Matmul& matmul, std::string text) const {
    return {.text = std::move(text), .workspace_bytes = is_small(matmul) ? of_small_ : of_large_};
  }
  const std::int64_t of_large_, of_small_;
};

TEST(Matmul, EachOfTwoProductsHasItsOwnAlgorithm) {
  auto behind = std::make_unique<TwoSizes>(256, 512);
  const TwoSizes& inner = *behind;
  SplitMatmuls library(std::move(behind), 0);
  const Matmul matmul = odd_product();
  const MatmulAlgorithm first = library.algorithms(matmul, 1024, 1).front();
  EXPECT_EQ(first.text, "large,in_two");
  const std::vector<MatmulAlgorithm> near = library.neighbours(matmul, first, 1024, 4);
  ASSERT_EQ(near.size(), 1U);
  EXPECT_EQ(near[0].text, "beside large,in_two");
  std::vector<std::byte> a(16 * 24 * 2), b(24 * 56 * 2), d(16 * 56 * 2);
  for (const MatmulAlgorithm& algorithm : {first, near[0]}) {
    EXPECT_EQ(algorithm.workspace_bytes, 512) << "they run one after the other";
    library.launch(matmul, algorithm, {.a = a.data(), .b = b.data(), .d = d.data()}, nullptr);
  }
  using Launches = std::vector<std::pair<std::int64_t, std::string>>;
  EXPECT_EQ(inner.launches, (Launches{{2, "small"}, {48, "large"}, {2, "small"}, {48, "beside large"}}));
  SplitMatmuls other(std::make_unique<TwoSizes>(512, 256), 0);
  EXPECT_EQ(other.algorithms(matmul, 1024, 1).front().workspace_bytes, 512);
}

TEST(Matmul, IsMadeInOneWhereTwoWouldNotHelp) {
  const Matmul gpt2{.m = 4096,
                    .n = 2048,
                    .k = 50257,
                    .input = DType::bf16,
                    .output = DType::f32,
                    .a_stride = 50304,
                    .b_stride = 2048,
                    .d_stride = 2048};
  const auto pieces = split(gpt2, SplitMatmuls::worth_it);
  ASSERT_TRUE(pieces);
  EXPECT_EQ(pieces->main.k, 50256);
  EXPECT_EQ(pieces->rest.k, 1);
  EXPECT_FALSE(pieces->rest.accumulates);
  EXPECT_TRUE(pieces->main.accumulates) << "adds to what the rest has left";
  Matmul aligned = gpt2;
  aligned.alignment = 256;
  EXPECT_EQ(split(aligned, 0)->main.alignment, 256);
  EXPECT_EQ(split(aligned, 0)->rest.alignment, 16) << "it begins after a multiple of 8 elements";
  Matmul tiny = gpt2;
  tiny.k = 7;
  EXPECT_FALSE(split(tiny, 0)) << "nothing but a rest";
  const auto in_one = [&](auto change) {
    Matmul matmul = gpt2;
    change(matmul);
    return !split(matmul, SplitMatmuls::worth_it);
  };
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.k = 50256; })) << "a multiple of 8";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.m = 16; })) << "too small";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.input = matmul.output = DType::f32; })) << "no tensor cores";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.output = DType::bf16; })) << "rounds in between";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.a_stride = 50257; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.b_stride = 2049; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.d_stride = 2049; })) << "rows that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.alignment = 8; })) << "matrices that begin anywhere";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.n = 2047; })) << "two sizes at once";
  EXPECT_TRUE(in_one([](Matmul& matmul) { matmul.a_transposed = true; })) << "rows of m and n alone";
}

TEST(Matmul, TheKeyNamesAllThatTellsProductsApart) {
  const Matmul plain{.m = 4,
                     .n = 6,
                     .k = 8,
                     .input = DType::bf16,
                     .output = DType::bf16,
                     .a_stride = 8,
                     .b_stride = 6,
                     .d_stride = 6};
  EXPECT_EQ(plain.key(), "matmul bf16 m=4 n=6 k=8 a=row:8 b=row:6 d=bf16:6 align=16");
  Matmul other = plain;
  other.output = DType::f32;
  other.a_transposed = other.b_transposed = other.accumulates = other.bias = true;
  other.alignment = 256;
  EXPECT_EQ(other.key(), "matmul bf16 m=4 n=6 k=8 a=col:8 b=col:6 d=f32:6 add bias align=256");
}

TEST(Matmul, TheAlignmentIsThatOfTheLeastAlignedAddress) {
  const auto at = [](std::uintptr_t address) {
    return reinterpret_cast<const void*>(address);  // NOLINT(performance-no-int-to-ptr)
  };
  EXPECT_EQ(alignment_of({at(512), at(1024)}), 256);
  EXPECT_EQ(alignment_of({at(512), at(1024 + 48)}), 16);
  EXPECT_EQ(alignment_of({at(514), at(1024)}), 2);
  EXPECT_EQ(alignment_of({at(0)}), 256);
}

}  // namespace
}  // namespace ce::runtime
