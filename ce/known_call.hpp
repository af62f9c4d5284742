#pragma once
/// \file
/// Recognises calls that differ from an earlier one in addresses only. Not installed.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "ce/bound_kernel.hpp"
#include "ce/check_tensor.hpp"
#include "ce/operations.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "runtime/device.hpp"

namespace ce {

/// Whether an operation has optional inputs and outputs of cross entropy.
template <class Tensors>
[[nodiscard]] consteval std::size_t optional_tensors() {
  std::size_t count = 0;
  generator::for_each_optional_tensor<Tensors>([&](const auto&, auto) { ++count; });
  return count;
}

/// All tensors of a call. A new tensor does not compile until it is added here or to the tables.
template <class Tensors>
[[nodiscard]] auto all_of(const Tensors& tensors) noexcept {
  const auto with_optional = [&](const auto&... own) {
    static_assert(sizeof(Tensor) == sizeof(ConstTensor));
    constexpr std::size_t count = sizeof(Tensors) / sizeof(Tensor);
    static_assert(sizeof...(own) + optional_tensors<Tensors>() == count);
    std::array<const ConstTensor*, count> all{view_of(own)...};
    std::size_t next = sizeof...(own);
    generator::for_each_optional_tensor<Tensors>(
        [&](const auto&, auto member) { all[next++] = view_of(tensors.*member); });
    return all;
  };
  if constexpr (std::same_as<Tensors, CrossEntropy::Tensors>) {
    return with_optional(tensors.logits, tensors.target, tensors.weight, tensors.upstream, tensors.loss,
                         tensors.grad);
  } else if constexpr (std::same_as<Tensors, CrossEntropyBackward::Tensors>) {
    return with_optional(tensors.logits, tensors.target, tensors.weight, tensors.lse, tensors.upstream,
                         tensors.grad, tensors.entropy);
  } else if constexpr (std::same_as<Tensors, CrossEntropyShard::Tensors>) {
    return with_optional(tensors.logits, tensors.target, tensors.weight, tensors.statistics);
  } else if constexpr (std::same_as<Tensors, CrossEntropyMerge::Tensors>) {
    return with_optional(tensors.statistics, tensors.target, tensors.weight, tensors.loss, tensors.merged);
  } else if constexpr (std::same_as<Tensors, CrossEntropyShardBackward::Tensors>) {
    return with_optional(tensors.logits, tensors.target, tensors.weight, tensors.statistics, tensors.upstream,
                         tensors.grad);
  } else if constexpr (std::same_as<Tensors, SoftmaxBackward::Tensors> ||
                       std::same_as<Tensors, LogSoftmaxBackward::Tensors>) {
    return with_optional(tensors.output, tensors.output_grad, tensors.input_grad);
  } else {
    return with_optional(tensors.input, tensors.output);
  }
}

/// A call that was checked, with its bound kernel and its tensors.
template <AnyOperation Operation>
class KnownCall {
 public:
  using Tensors = typename Operation::Tensors;

  KnownCall(const Operation& operation, const Tensors& tensors, const BoundKernel& its_kernel)
      : kernel(its_kernel), operation_(operation) {
    const auto all = all_of(tensors);
    for (std::size_t i = 0, given = 0; i < count; ++i) {
      if (all[i]->data == nullptr) continue;
      is_given_ |= 1u << i;
      given_[given++] = {*all[i], extent_of(*all[i])};
    }
  }

  /// Takes over a new call if the checks of the known one hold for it, too, and lead to the same kernel: it differs
  /// only in addresses, with the same alignment. Tensors with equal addresses keep them equal; all others do not
  /// overlap. Returns false, and changes nothing, if that needs a longer check.
  [[nodiscard]] bool take(const Operation& operation, const Tensors& tensors, const runtime::Device& device) {
    if (!(operation == operation_)) return false;
    const auto all = all_of(tensors);
    bool elsewhere = false;
    // A loop, not unrolled for each tensor: after a launch little of this code is in the processor's caches, and
    // loading it takes longer than running it.
    const Given* known = given_.data();
    for (std::size_t i = 0; i < count; ++i) {
      const ConstTensor& own = *all[i];
      const std::uintptr_t start = address_of(own);
      if ((is_given_ >> i & 1u) == 0) {
        if (start != 0 || own.rows != 0) return false;
        continue;
      }
      if (start == 0 || !is_same_view(own, known->view) || (start ^ known->extent.start) % 16 != 0)
        return false;
      elsewhere |= start != known->extent.start;
      ++known;
    }
    return !elsewhere || move(tensors, device);
  }

  BoundKernel kernel;  ///< bound to the tensors of the latest call

 private:
  static constexpr std::size_t count = std::tuple_size_v<decltype(all_of(std::declval<Tensors>()))>;
  static_assert(count <= most_tensors, "CallMemory has room for fewer");

  static std::uintptr_t address_of(const ConstTensor& tensor) noexcept {
    return reinterpret_cast<std::uintptr_t>(tensor.data);
  }

  /// Moves the call to other tensors, if the same ones are given with equal layouts.
  [[gnu::noinline]] bool move(const Tensors& tensors, const runtime::Device& device) {
    std::array<Extent, count> extents;  // of the given tensors checked so far
    std::size_t given = 0;
    for (const ConstTensor* own : all_of(tensors)) {
      if (own->data == nullptr) continue;
      const Extent& known = given_[given].extent;
      const Extent here{address_of(*own), address_of(*own) + (known.end - known.start)};
      // Memory of the device is assumed to stay so, unless the program freed it: see SeenMemory in runtime/cuda.
      if (here.start != known.start && device.pointer_kind(own->data) != runtime::PointerKind::device)
        return false;
      for (std::size_t other = 0; other < given; ++other) {
        const Extent& there = extents[other];
        if (given_[other].extent.start == known.start ? there.start != here.start
                                                      : there.start < here.end && here.start < there.end)
          return false;
      }
      extents[given++] = here;
    }
    for (std::size_t i = 0; i < given; ++i) given_[i].extent = extents[i];
    kernel.move(tensors);
    return true;
  }

  /// Whether both are the same view. Has no branches, which a processor would have to predict.
  static bool is_same_view(const ConstTensor& a, const ConstTensor& b) noexcept {
    const std::int64_t different = (a.rows ^ b.rows) | (a.columns ^ b.columns) |
                                   (a.row_stride ^ b.row_stride) | (a.column_stride ^ b.column_stride) |
                                   (a.batch_rows ^ b.batch_rows) | (a.batch_stride ^ b.batch_stride);
    return different == 0 && a.dtype == b.dtype;
  }

  /// A given tensor, and its memory.
  struct Given {
    ConstTensor view;
    Extent extent;
  };

  Operation operation_;
  unsigned is_given_ = 0;                ///< one bit for each tensor
  std::array<Given, count> given_ = {};  ///< the given tensors without gaps, in few cache lines
};

/// The latest kinds of calls of one thread. Has a trivial destructor; entries of a destroyed Context are never found.
template <AnyOperation Operation>
class KnownCalls {
 public:
  using Tensors = typename Operation::Tensors;

  /// \param context  the Context's own number, not 0
  /// Finds a known call that has taken over this one.
  [[nodiscard]] KnownCall<Operation>* find(std::uint64_t context, const Operation& operation,
                                           const Tensors& tensors, const runtime::Device& device) {
    const Tag tag(context, tensors);
    for (std::size_t i = 0; i < slots; ++i)
      if (tags_[i] == tag && calls_[i]->take(operation, tensors, device)) return &*calls_[i];
    return nullptr;
  }

  void forget_all() noexcept { tags_ = {}; }

  /// Replaces the oldest entry.
  void add(std::uint64_t context, const Tensors& tensors, const KnownCall<Operation>& call) {
    calls_[next_] = call;
    tags_[next_] = Tag(context, tensors);
    next_ = (next_ + 1) % slots;
  }

 private:
  static constexpr std::size_t slots = 8;

  /// A quick filter: differs for most calls, and always for calls of different Contexts.
  struct Tag {
    constexpr Tag() = default;
    Tag(std::uint64_t of_context, const Tensors& tensors) noexcept
        : context(of_context),
          rows(all_of(tensors).front()->rows),
          columns(all_of(tensors).front()->columns) {}
    friend bool operator==(const Tag&, const Tag&) = default;

    std::uint64_t context = 0;  ///< 0: the entry is empty
    std::int64_t rows = 0, columns = 0;
  };

  std::array<Tag, slots> tags_{};
  std::array<std::optional<KnownCall<Operation>>, slots> calls_{};
  std::size_t next_ = 0;
};

}  // namespace ce
