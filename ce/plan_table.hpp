#pragma once
/// \file
/// The kernels chosen so far, found without a lock. Not installed.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "ce/context.hpp"
#include "generator/problem.hpp"
#include "tuner/kernel.hpp"

namespace ce {

/// A kernel chosen for a bucket of problems.
struct Chosen {
  tuner::Kernel kernel;
  Choice choice;
  bool provisional = false;  ///< chosen where tuning was not possible: a later call looks again
};

/// Readers take no lock and write nothing; entries are never removed while the table lives, so a reader's
/// pointer stays good.
class PlanTable {
 public:
  /// \param problem  bucketed
  [[nodiscard]] const Chosen* find(const generator::Problem& problem) const noexcept {
    for (const Entry* entry = slot(problem).load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next)
      if (entry->problem == problem) return entry->chosen.load(std::memory_order_acquire);
    return nullptr;
  }

  /// Adds a problem, or replaces what was chosen for it before.
  const Chosen& put(const generator::Problem& problem, std::unique_ptr<Chosen> chosen) {
    const std::lock_guard lock(mutex_);
    const Chosen& added = *owned_.emplace_back(std::move(chosen));
    std::atomic<Entry*>& head = slot(problem);
    for (Entry* entry = head.load(std::memory_order_relaxed); entry != nullptr; entry = entry->next)
      if (entry->problem == problem) {
        entry->chosen.store(&added, std::memory_order_release);
        return added;
      }
    Entry& entry =
        *entries_.emplace_back(std::make_unique<Entry>(problem, head.load(std::memory_order_relaxed)));
    entry.chosen.store(&added, std::memory_order_relaxed);
    head.store(&entry, std::memory_order_release);
    return added;
  }

 private:
  struct Entry {
    Entry(const generator::Problem& p, Entry* n) : problem(p), next(n) {}
    generator::Problem problem;
    std::atomic<const Chosen*> chosen = nullptr;
    Entry* next;
  };
  static constexpr std::size_t slots = 1024;

  static std::size_t hash(const generator::Problem& p) noexcept {
    std::uint64_t h = static_cast<std::uint64_t>(p.columns) * 0x9e3779b97f4a7c15u;
    h ^= static_cast<std::uint64_t>(p.rows) * 0xc2b2ae3d27d4eb4fu;
    const std::uint64_t options =
        static_cast<std::uint64_t>(p.operation) | static_cast<std::uint64_t>(p.dtype) << 8 |
        static_cast<std::uint64_t>(p.target_dtype) << 16 | static_cast<std::uint64_t>(p.loss_dtype) << 24 |
        static_cast<std::uint64_t>(p.reduction) << 32 | static_cast<std::uint64_t>(p.alignment) << 40 |
        static_cast<std::uint64_t>(p.gradient) << 48 | static_cast<std::uint64_t>(p.in_place) << 49;
    h = (h ^ options) * 0xff51afd7ed558ccdu;
    return static_cast<std::size_t>(h >> 32) % slots;
  }
  std::atomic<Entry*>& slot(const generator::Problem& problem) { return heads_[hash(problem)]; }
  const std::atomic<Entry*>& slot(const generator::Problem& problem) const { return heads_[hash(problem)]; }

  std::array<std::atomic<Entry*>, slots> heads_{};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<std::unique_ptr<Chosen>> owned_;
};

}  // namespace ce
