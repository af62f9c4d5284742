#pragma once
/// \file
/// How many tokens the chunks of a linear layer's loss have: of those plans that a memory budget admits the fastest, found
/// by a race. Not installed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "ce/linear.hpp"
#include "ce/linear_schedule.hpp"
#include "runtime/device.hpp"
#include "tuner/race.hpp"

namespace ce {

/// "parts=2", of a plan whose chunks have half of the tokens of the largest, "parts=2,exponentials" with exponentials: the same
/// whatever the number of tokens.
[[nodiscard]] std::string text_of(const LinearPlan& plan);

/// One plan for each shape, so that all its calls are alike, whatever memory is free meanwhile. Thread-safe.
class LinearPlans {
 public:
  /// Both must outlive it.
  /// \param any_order  of the products' sums
  /// \param seconds    that each race may take; 0: no bound
  LinearPlans(runtime::Device& device, cache::Cache& cache, bool any_order, double seconds = 0)
      : device_(device), any_order_(any_order), winners_(device, cache, seconds) {}

  struct Known {
    LinearPlan plan;  ///< the fastest, or that with the largest chunks
    std::vector<LinearPlan>
        open;  ///< a race of these would find something new; that with the largest chunks first
    tuner::RaceSubject race;  ///< without a text where there is none
    /// Bytes that a call may take where its caller cannot know whether it comes before the race or after it.
    [[nodiscard]] std::int64_t most_bytes() const noexcept;
  };
  [[nodiscard]] std::shared_ptr<const Known> of(const LinearShape& shape);

  /// Keeps what a race has found, also for other numbers of tokens. Where two threads race, what the first has found stays:
  /// a caller may have asked already for as much memory as it takes.
  void keep(const LinearShape& shape, const tuner::RaceResult& result);
  /// Ends the choice without a race: in this process the largest chunks stay.
  void close(const LinearShape& shape);

 private:
  [[nodiscard]] tuner::RaceSubject subject_of(const LinearShape& shape, const LinearPlan& largest);
  /// What is known of a race, to all shapes that share it.
  void choose(const tuner::RaceSubject& race, const tuner::RaceWinners::Known& found);

  runtime::Device& device_;
  const bool any_order_;
  std::mutex mutex_;  ///< guards what follows
  tuner::RaceWinners winners_;
  std::map<LinearShape, std::shared_ptr<const Known>> known_;
};

/// The first and the last elements of what a call writes, by which plans are compared.
class LinearSamples {
 public:
  /// \param stream  of the calls
  LinearSamples(runtime::Device& device, const LinearCrossEntropy::Tensors& tensors, Stream stream);

  /// NaN.
  void set_back() const;
  [[nodiscard]] std::vector<double> read() const;
  /// What is rounded elsewhere differs by little beside the largest element of its tensor.
  [[nodiscard]] bool agree(const std::vector<double>& made, const std::vector<double>& right) const;

 private:
  struct Piece {
    std::byte* data;
    DType dtype;
    std::int64_t count;
  };
  void add(const Tensor& tensor);

  runtime::Device& device_;
  const Stream stream_;
  std::vector<Piece> pieces_;
};

}  // namespace ce
