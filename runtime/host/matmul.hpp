#pragma once
/// \file
/// Products of matrices on the host device: plain loops.

#include "runtime/matmul.hpp"

namespace ce::runtime::host {

/// Sums in f64, whatever the dtypes, and rounds once.
class MatmulLoops final : public MatmulLibrary {
 public:
  [[nodiscard]] std::string name() const override { return "host loops"; }
  [[nodiscard]] std::vector<MatmulAlgorithm> algorithms(const Matmul&, std::int64_t, int) override {
    return {{.text = "loops"}};
  }
  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
              Stream stream) override;
};

}  // namespace ce::runtime::host
