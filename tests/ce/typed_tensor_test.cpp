#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "ce/ce.hpp"
#include "ce/error.hpp"

namespace other {

struct BFloat16 {
  std::uint16_t bits;
};
struct Unknown {};

}  // namespace other

template <>
inline constexpr ce::DType ce::dtype_of<other::BFloat16> = ce::DType::bf16;

namespace ce {
namespace {

// Without a body: this program has no header of CUDA's.
static_assert(dtype_of<float> == DType::f32 && dtype_of<__half> == DType::f16 &&
              dtype_of<__nv_bfloat16> == DType::bf16);
static_assert(dtype_of<std::int32_t> == DType::i32 && dtype_of<std::int64_t> == DType::i64 &&
              dtype_of<long long> == DType::i64 && dtype_of<std::uint8_t> == DType::u8 &&
              dtype_of<bool> == DType::u8);
static_assert(std::is_same_v<decltype(dtype_of<other::Unknown>), const NoDType> &&
              std::is_same_v<decltype(dtype_of<double>), const NoDType> &&
              std::is_same_v<decltype(dtype_of<char>), const NoDType>);

template <class To, class From>
constexpr bool is_initialised_from = std::is_convertible_v<From, To>&& std::is_assignable_v<To&, From>;
static_assert(is_initialised_from<ConstTensor, Tensor> && !is_initialised_from<Tensor, ConstTensor>,
              "what is const would be written");

TEST(TypedTensor, HasTheDTypeOfItsElements) {
  std::array<other::BFloat16, 12> elements{};
  const Tensor expected{elements.data(), DType::bf16, 3, 4};
  const auto view = tensor(elements.data(), 3, 4);
  static_assert(std::is_same_v<decltype(view), const Tensor>);
  EXPECT_EQ(view, expected);
  EXPECT_EQ(tensor(elements.data(), 12), (Tensor{elements.data(), DType::bf16, 12, 1}));
  EXPECT_EQ(tensor(elements.data(), 2, 4, 6), (Tensor{elements.data(), DType::bf16, 2, 4, 6}));
}

TEST(TypedTensor, OfConstElementsIsReadOnly) {
  const std::array<float, 12> elements{};
  const auto view = tensor(elements.data(), 3, 4);
  static_assert(std::is_same_v<decltype(view), const ConstTensor>);
  EXPECT_EQ(view, (ConstTensor{elements.data(), DType::f32, 3, 4}));
}

TEST(TypedTensor, OfASpan) {
  std::vector<std::int64_t> elements(6);
  const std::span<std::int64_t> span(elements);
  EXPECT_EQ(tensor(span), (Tensor{elements.data(), DType::i64, 6, 1}));
  EXPECT_EQ(tensor(span, 2, 3), (Tensor{elements.data(), DType::i64, 2, 3}));
  const auto read = tensor(std::span<const std::int64_t>(span));
  static_assert(std::is_same_v<decltype(read), const ConstTensor>);
  const auto four = tensor(span.first<4>(), 2, 2);
  EXPECT_EQ(four, (Tensor{elements.data(), DType::i64, 2, 2}));
}

TEST(TypedTensor, OfASpanOfAnotherSizeIsRefused) {
  std::vector<float> elements(6);
  for (const auto& [rows, columns] : {std::array<std::int64_t, 2>{2, 2}, {2, 4}, {-2, -3}, {6, 0}}) try {
      static_cast<void>(tensor(std::span(elements), rows, columns));
      ADD_FAILURE() << rows << " x " << columns << " was not refused";
    } catch (const InvalidArgument& error) {
      EXPECT_EQ(error.argument(), rows < 0 ? "rows" : "elements");
    }
}

TEST(TypedTensor, OfViewsThatAreNotDense) {
  std::array<float, 24> elements{};
  const std::array<float, 24>& read_only = elements;
  EXPECT_EQ(batched(elements.data(), 2, 3, 4, 12), batched(elements.data(), DType::f32, 2, 3, 4, 12));
  EXPECT_EQ(class_dimension_second(elements.data(), 2, 3, 4),
            class_dimension_second(elements.data(), DType::f32, 2, 3, 4));
  const auto batches = batched(read_only.data(), 2, 3, 4, 12, 4);
  const auto classes = class_dimension_second(read_only.data(), 2, 3, 4);
  static_assert(std::is_same_v<decltype(batches), const ConstTensor> &&
                std::is_same_v<decltype(classes), const ConstTensor>);
  EXPECT_EQ(batches, batched(elements.data(), 2, 3, 4, 12, 4));
  EXPECT_EQ(classes, class_dimension_second(elements.data(), 2, 3, 4));
}

// A call whose inputs are const all the way, and one whose tensors are listed as members, as ever.
TEST(TypedTensor, BothKindsMakeTheTensorsOfACall) {
  const std::array<float, 12> x{};
  const std::array<std::int64_t, 3> t{};
  std::array<float, 12> gradient{};
  std::array<float, 3> lse{};
  float loss = 0;
  const CrossEntropy::Tensors typed{.logits = tensor(x.data(), 3, 4),
                                    .target = tensor(t.data(), 3),
                                    .loss = tensor(&loss, 1),
                                    .grad = tensor(gradient.data(), 3, 4),
                                    .lse = tensor(lse.data(), 3)};
  const CrossEntropy::Tensors listed{
      .logits = {.data = x.data(), .dtype = DType::f32, .rows = 3, .columns = 4},
      .target = {t.data(), DType::i64, 3},
      .loss = {&loss, DType::f32, 1},
      .grad = {gradient.data(), DType::f32, 3, 4},
      .lse = Tensor{lse.data(), DType::f32, 3}};
  EXPECT_EQ(typed.logits, listed.logits);
  EXPECT_EQ(typed.target, listed.target);
  EXPECT_EQ(typed.loss, listed.loss);
  EXPECT_EQ(typed.grad, listed.grad);
  EXPECT_EQ(typed.lse, listed.lse);
}

}  // namespace
}  // namespace ce
