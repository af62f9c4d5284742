// The data of a row that another thread has finalized, for outputs of cross entropy.
#pragma once
#include "operations/cross_entropy.cuh"

namespace ce {

/// The entropy terms of a finalized row, if it has any.
template <bool used>
struct KeptTerms {
  CE_DEVICE void keep(const EntropyTerms&) {}
  CE_DEVICE static EntropyTerms kept() { return {}; }
};
template <>
struct KeptTerms<true> {
  EntropyTerms terms;
  CE_DEVICE void keep(const EntropyTerms& of_row) { terms = of_row; }
  CE_DEVICE EntropyTerms kept() const { return terms; }
};

/// The scale of a finalized row, if rows have scales and writers need them.
template <bool used>
struct KeptScale {
  CE_DEVICE void keep_scale(float) {}
  CE_DEVICE static float kept_scale() { return 1.f; }
};
template <>
struct KeptScale<true> {
  float scale;
  CE_DEVICE void keep_scale(float of_row) { scale = of_row; }
  CE_DEVICE float kept_scale() const { return scale; }
};

/// \tparam Operation  a CrossEntropy
template <class Operation>
struct FinalizedRow : KeptTerms<Operation::entropy_gradient>,
                      KeptScale<problem::row_scales && Operation::caps> {
  Probability probability;
  float at_target, per_class, per_probability;
  int target;
  bool dead;
  float dead_value;

  CE_DEVICE static FinalizedRow of(const Operation& operation) {
    FinalizedRow row;
    row.keep(operation.of_entropy);
    row.keep_scale(operation.prefetch.row_scale);
    row.probability = operation.probability;
    row.at_target = operation.at_target;
    row.per_class = operation.per_class;
    row.per_probability = operation.per_probability;
    row.target = operation.target;
    row.dead = operation.dead;
    row.dead_value = operation.dead_value;
    return row;
  }
  /// Prepares outputs of this row from here on.
  CE_DEVICE void give(Operation& operation) const {
    operation.probability = probability;
    operation.at_target = at_target;
    operation.per_class = per_class;
    operation.per_probability = per_probability;
    operation.target = target;
    operation.dead = dead;
    operation.dead_value = dead_value;
    operation.of_entropy = this->kept();
    if constexpr (problem::row_scales && Operation::caps)
      operation.logits = Logits(operation.arguments).of_row(this->kept_scale());
  }
};

}  // namespace ce
