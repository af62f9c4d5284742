#pragma once
/// \file
/// The dtypes of C++ types.

#include <cstdint>
#include <type_traits>

#include "ce/dtype.hpp"
#include "ce/language.hpp"

#ifdef __STDCPP_FLOAT16_T__
#include <stdfloat>
#endif

// CUDA's types, from cuda_fp16.h and cuda_bf16.h. They are declared here, so that programs need not include those
// headers.
struct __half;         // NOLINT(bugprone-reserved-identifier)
struct __nv_bfloat16;  // NOLINT(bugprone-reserved-identifier)

namespace ce {

/// The value of dtype_of for a type that cannot be an element of a tensor.
struct NoDType {};

/// The DType of elements of type T, without const. A specialization adds your own type with the same bits:
/// \code
/// template <>
/// inline constexpr ce::DType ce::dtype_of<my::bfloat16> = ce::DType::bf16;
/// \endcode
template <class T>
inline constexpr NoDType dtype_of{};

template <>
inline constexpr DType dtype_of<float> = DType::f32;
template <>
inline constexpr DType dtype_of<__half> = DType::f16;
template <>
inline constexpr DType dtype_of<__nv_bfloat16> = DType::bf16;
#ifdef __STDCPP_FLOAT16_T__
template <>
inline constexpr DType dtype_of<std::float16_t> = DType::f16;
#endif
#ifdef __STDCPP_BFLOAT16_T__
template <>
inline constexpr DType dtype_of<std::bfloat16_t> = DType::bf16;
#endif
template <>
inline constexpr DType dtype_of<int> = DType::i32;
template <>
inline constexpr DType dtype_of<long> = sizeof(long) == 8 ? DType::i64 : DType::i32;
template <>
inline constexpr DType dtype_of<long long> = DType::i64;
template <>
inline constexpr DType dtype_of<unsigned char> = DType::u8;
/// A byte of 0 or 1, the element type of `hit`.
template <>
inline constexpr DType dtype_of<bool> = DType::u8;

namespace detail {

/// The compile error for a type without a DType.
template <class T>
[[nodiscard]] constexpr DType element_dtype() noexcept {
  using Found = std::remove_const_t<decltype(dtype_of<std::remove_cv_t<T>>)>;
  static_assert(
      std::is_same_v<Found, DType>,
      "ce has no dtype for elements of this type: specialise ce::dtype_of for it, or make a ce::Tensor "
      "with `data` and `dtype`");
  if constexpr (std::is_same_v<Found, DType>) return dtype_of<std::remove_cv_t<T>>;
  return DType::f32;
}

}  // namespace detail
}  // namespace ce
