#pragma once
/// \file
/// Chooses the number of tokens in the chunks of a linear layer's loss: the fastest of the plans that fit a memory
/// budget, found by a race. Not installed.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "ce/linear.hpp"
#include "ce/linear_plan.hpp"
#include "runtime/device.hpp"
#include "tuner/race.hpp"

namespace ce {

/// The name of a plan, for any number of tokens: "parts=2" if its chunks have half of the tokens of the largest,
/// "parts=2,exponentials" with exponentials.
[[nodiscard]] std::string text_of(const LinearPlan& plan);

/// One plan for each shape, so that all its calls are alike, even if the free memory changes. Thread-safe.
class LinearPlans {
 public:
  /// Both references must outlive this object.
  /// \param any_order  whether products may add up their sums in any order
  /// \param seconds    limit of each race; 0: none
  LinearPlans(runtime::Device& device, cache::Cache& cache, bool any_order, double seconds = 0)
      : device_(device), any_order_(any_order), winners_(device, cache, seconds) {}

  struct Known {
    LinearPlan plan;  ///< the fastest, or the one with the largest chunks
    std::vector<LinearPlan>
        open;                 ///< plans to race, if a race would improve the result; largest chunks first
    tuner::RaceSubject race;  ///< without a text if no race is possible
    /// Bytes that a call may need, for callers that do not know whether it runs before or after the race.
    [[nodiscard]] std::int64_t most_bytes() const noexcept;
  };
  [[nodiscard]] std::shared_ptr<const Known> of(const LinearShape& shape);

  /// Stores a race's result, also for other numbers of tokens. If two threads race, the first result stays: a caller
  /// may have asked already how much memory it takes.
  void keep(const LinearShape& shape, const tuner::RaceResult& result);
  /// Ends the choice without a race: in this process the largest chunks stay.
  void close(const LinearShape& shape);

 private:
  [[nodiscard]] tuner::RaceSubject subject_of(const LinearShape& shape, const LinearPlan& largest);
  /// Passes a race's result to all shapes that share it.
  void choose(const tuner::RaceSubject& race, const tuner::RaceWinners::Known& found);

  runtime::Device& device_;
  const bool any_order_;
  std::mutex mutex_;  ///< guards the members below
  tuner::RaceWinners winners_;
  std::map<LinearShape, std::shared_ptr<const Known>> known_;
};

/// The first and the last elements of a call's outputs, by which plans are compared.
class LinearSamples {
 public:
  /// \param stream  stream of the calls
  LinearSamples(runtime::Device& device, const LinearCrossEntropy::Tensors& tensors, Stream stream);

  /// Fills the outputs with NaN.
  void set_back() const;
  [[nodiscard]] std::vector<double> read() const;
  /// Differences in rounding are small, relative to the largest element of a tensor.
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
