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
    return {{.text = loops}};
  }
  [[nodiscard]] std::vector<MatmulAlgorithm> neighbours(const Matmul&, const MatmulAlgorithm&, std::int64_t,
                                                        int) override {
    return {};
  }
  [[nodiscard]] std::optional<MatmulAlgorithm> algorithm(const Matmul&, std::string_view text,
                                                         std::int64_t) override {
    return text == loops ? std::optional<MatmulAlgorithm>({.text = loops}) : std::nullopt;
  }
  void launch(const Matmul& matmul, const MatmulAlgorithm& algorithm, const MatmulOperands& operands,
              Stream stream) override;

 private:
  static constexpr const char* loops = "loops";
};

}  // namespace ce::runtime::host
