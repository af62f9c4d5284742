#pragma once
/// \file
/// A lock-free table of the kernels chosen so far. Not installed.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string_view>
#include <utility>

#include "ce/context.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/problem.hpp"
#include "tuner/kernel.hpp"

namespace ce {

/// Readers take no lock and write nothing; entries are never removed while the table lives, so a reader's pointer stays
/// valid.
class PlanTable {
  /// A bucketed Problem packed into three words. It is read member by member: copying a Problem that a call has just
  /// created is slow.
  struct Key {
    explicit Key(const generator::Problem& problem) noexcept {
      // A new member of Problem must be added below; a new flag is added by its table.
      [[maybe_unused]] const auto& [f1, f2, f3, f4, f5, f6, f7, f8, f9, f10, flags, f12, f13, f14, f15, f16,
                                    f17] = problem;
      static_assert(sizeof(flags) == generator::cross_entropy_options.size() +
                                         generator::cross_entropy_inputs.size() +
                                         generator::cross_entropy_outputs.size());
      const auto add = [this](int bits, auto... values) {
        ((options = options << bits | static_cast<std::uint64_t>(values)), ...);
      };
      add(4, problem.operation);
      add(3, problem.dtype, problem.target_dtype, problem.loss_dtype, problem.weight_dtype);
      add(2, problem.reduction, problem.upstream, problem.alignment);
      add(1, problem.gradient, problem.probabilities, problem.weights, problem.in_place, problem.batched,
          problem.strided);
      generator::for_each_row<generator::cross_entropy_options>(
          [&](const auto& option) { add(1, problem.has.*option.field); });
      generator::for_each_row<generator::cross_entropy_inputs>(
          [&](const auto& input) { add(1, problem.has.*input.field); });
      generator::for_each_row<generator::cross_entropy_outputs>(
          [&](const auto& output) { add(1, problem.has.*output.field); });
      rows = generator::rows_bucket(problem.rows);
      columns = problem.columns;
    }
    friend bool operator==(const Key&, const Key&) = default;

    [[nodiscard]] std::size_t hash() const noexcept {
      std::uint64_t h = static_cast<std::uint64_t>(columns) * 0x9e3779b97f4a7c15u;
      h ^= static_cast<std::uint64_t>(rows) * 0xc2b2ae3d27d4eb4fu;
      h = (h ^ options) * 0xff51afd7ed558ccdu;
      return static_cast<std::size_t>(h >> 32);
    }

    std::uint64_t options = 0;
    std::int64_t rows = 0, columns = 0;
  };

 public:
  /// The kernel for a bucket of problems, and why it was chosen.
  class Entry {
   public:
    Entry(const Key& key, const Entry* next, tuner::Kernel its_kernel, Choice its_choice)
        : kernel(std::move(its_kernel)), choice(std::move(its_choice)), key_(key), next_(next) {}

    const tuner::Kernel kernel;
    const Choice choice;

   private:
    friend class PlanTable;
    const Key key_;
    const Entry* const next_;
    std::atomic<bool> is_forgotten_ = false;
  };

  /// The entry of the problem's bucket.
  [[nodiscard]] const Entry* find(const generator::Problem& problem) const noexcept {
    const Key key(problem);
    for (const Entry* entry = slot(key).load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next_)
      if (entry->key_ == key) return entry->is_forgotten_.load(std::memory_order_acquire) ? nullptr : entry;
    return nullptr;
  }

  /// Hides entries of the lookup key with another config.
  void forget(std::string_view key, std::string_view config) {
    const std::lock_guard lock(mutex_);
    for (Entry& entry : entries_)
      if (entry.choice.key == key && entry.choice.config != config)
        entry.is_forgotten_.store(true, std::memory_order_release);
  }

  /// Adds an entry for the problem's bucket. An earlier entry stays, but is no longer found.
  const Entry& put(const generator::Problem& problem, tuner::Kernel kernel, Choice choice) {
    const std::lock_guard lock(mutex_);
    const Key key(problem);
    std::atomic<const Entry*>& head = slot(key);
    const Entry& added = entries_.emplace_back(key, head.load(std::memory_order_relaxed), std::move(kernel),
                                               std::move(choice));
    head.store(&added, std::memory_order_release);
    return added;
  }

 private:
  static constexpr std::size_t slots = 1024;

  std::atomic<const Entry*>& slot(const Key& key) { return heads_[key.hash() % slots]; }
  const std::atomic<const Entry*>& slot(const Key& key) const { return heads_[key.hash() % slots]; }

  std::array<std::atomic<const Entry*>, slots> heads_{};  ///< the latest entry of each list comes first
  std::mutex mutex_;                                      ///< guards additions, and the members below
  std::deque<Entry> entries_;
};

}  // namespace ce
