#pragma once
/// \file
/// The kernels chosen so far, found without a lock. Not installed.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "ce/context.hpp"
#include "generator/operations/cross_entropy.hpp"
#include "generator/problem.hpp"
#include "tuner/kernel.hpp"

namespace ce {

/// A kernel chosen for a bucket of problems.
struct Chosen {
  tuner::Kernel kernel;
  Choice choice;
};

/// Readers take no lock and write nothing; entries are never removed while the table lives, so a reader's
/// pointer stays good.
class PlanTable {
 public:
  /// What was chosen for the problem's bucket.
  [[nodiscard]] const Chosen* find(const generator::Problem& problem) const noexcept {
    const Key key(problem);
    for (const Entry* entry = slot(key).load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next)
      if (entry->key == key) return entry->chosen.load(std::memory_order_acquire);
    return nullptr;
  }

  /// What was chosen for the lookup key is found no longer, unless it is the config.
  void forget(std::string_view key, std::string_view config) {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Entry>& entry : entries_)
      if (const Chosen* chosen = entry->chosen.load(std::memory_order_relaxed);
          chosen != nullptr && chosen->choice.key == key && chosen->choice.config != config)
        entry->chosen.store(nullptr, std::memory_order_release);
  }

  /// Adds the problem's bucket, or replaces what was chosen for it before.
  const Chosen& put(const generator::Problem& problem, std::unique_ptr<Chosen> chosen) {
    const std::lock_guard lock(mutex_);
    const Chosen& added = *owned_.emplace_back(std::move(chosen));
    const Key key(problem);
    std::atomic<Entry*>& head = slot(key);
    for (Entry* entry = head.load(std::memory_order_relaxed); entry != nullptr; entry = entry->next)
      if (entry->key == key) {
        entry->chosen.store(&added, std::memory_order_release);
        return added;
      }
    Entry& entry = *entries_.emplace_back(std::make_unique<Entry>(key, head.load(std::memory_order_relaxed)));
    entry.chosen.store(&added, std::memory_order_relaxed);
    head.store(&entry, std::memory_order_release);
    return added;
  }

 private:
  /// All of a bucketed Problem in three words, read member by member: a Problem as fresh as that of a call is
  /// slow to copy.
  struct Key {
    explicit Key(const generator::Problem& problem) noexcept {
      // A new field of Problem must be below, a flag in a table.
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
  struct Entry {
    Entry(const Key& k, Entry* n) : key(k), next(n) {}
    Key key;
    std::atomic<const Chosen*> chosen = nullptr;
    Entry* next;
  };
  static constexpr std::size_t slots = 1024;

  std::atomic<Entry*>& slot(const Key& key) { return heads_[key.hash() % slots]; }
  const std::atomic<Entry*>& slot(const Key& key) const { return heads_[key.hash() % slots]; }

  std::array<std::atomic<Entry*>, slots> heads_{};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Chosen>> owned_;
};

}  // namespace ce
