#pragma once
/// \file
/// Fits the weights of the ranking to recorded searches.

#include <cstddef>
#include <string>
#include <vector>

#include "bench/lab/replay/replay.hpp"
#include "tuner/ranking.hpp"

namespace ce::replay {

/// Weights that own themselves.
struct Fitted {
  std::vector<tuner::VariantWeights> variants;
  std::vector<tuner::ModifierWeights> loads, stores;

  [[nodiscard]] tuner::Weights weights() const noexcept { return {variants, loads, stores}; }
};

/// A part of the ranking's model that a fit can go without: a trait with its products, a product, what operations add.
struct Concept {
  std::string name;
  std::vector<std::size_t> terms;  ///< places in tuner::Terms
};
[[nodiscard]] std::vector<Concept> concepts();

/// Which terms are fitted; the others weigh 0.
using Kept = std::vector<bool>;
/// All but those of the concepts of these names. \throws InvalidArgument for another name
[[nodiscard]] Kept kept_without(const std::vector<std::string>& names);

/// A ridge regression of the logarithm of a config's time over that of its problem's best on its terms, by
/// variant. Configs count the more the faster they are, as only the order of the fast ones matters. What cache
/// modifiers add comes first, from configs that differ in nothing else: not every problem was recorded with all of them.
class Regression {
 public:
  explicit Regression(const Recording& recording, Kept kept = kept_without({}));

  [[nodiscard]] Fitted fitted() const;
  /// As if every problem for which part_numbers() modulo `parts` is `part` had never been measured on any GPU; nor had
  /// its key by a search that looked at few configs.
  [[nodiscard]] Fitted fitted_without(std::size_t part, std::size_t parts) const;

 private:
  /// Normal equations: the sums that a regression is solved from.
  struct Sums {
    explicit Sums(std::size_t columns) : matrix(columns * columns), right(columns) {}
    void add(const Sums& other, double times);
    std::vector<double> matrix;  ///< columns x columns
    std::vector<double> right;
  };

  /// Of one problem or many.
  struct Parts {
    /// Of no problem yet. \param count  of variants
    explicit Parts(std::size_t count);

    std::vector<Sums> variants;  ///< of each: its terms and the modifiers
    Sums modifiers;              ///< alone, against the mean of the configs of their structure

    void add(const Parts& other, double times);
  };

  [[nodiscard]] Parts parts_of(const RecordedProblem& problem) const;
  [[nodiscard]] Fitted solved(Parts parts) const;

  const Recording& recording_;
  Kept kept_;
  std::vector<std::string_view> variants_;  ///< that were recorded, in order
  std::vector<int> problems_;               ///< of each, those that it was recorded on
  std::vector<double> most_idle_;           ///< of each, the largest trait "idle" with which it was
  Parts all_;
};

/// Of each problem of a recording that is not partial: how many other keys come before its own. One key may have been
/// recorded on several GPUs.
[[nodiscard]] std::vector<std::size_t> part_numbers(const Recording& recording);

/// The text of tuner/ranking_weights.hpp.
[[nodiscard]] std::string header_of(const Fitted& fitted);

}  // namespace ce::replay
