#pragma once
/// \file
/// Finds the device library's fastest algorithm for a product.

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "cache/cache.hpp"
#include "runtime/device.hpp"
#include "tuner/race.hpp"

namespace ce::tuner {

/// A product whose number of tokens may differ at each call: all numbers up to one power of two share an algorithm.
struct TokenMatmul {
  runtime::Matmul matmul;
  std::int64_t runtime::Matmul::*tokens = &runtime::Matmul::m;  ///< m, or k

  /// The product that represents its range of tokens.
  [[nodiscard]] runtime::Matmul bucket() const;
};

/// Races algorithms. Each must agree with the first one, which is assumed to be right, in a sample of D: its first and
/// last elements. Writes D. A single algorithm wins without a race.
/// \param seconds  time limit; 0: none. The race stops after the step that exceeds it
[[nodiscard]] RaceResult race(runtime::Device& device, const runtime::Matmul& matmul,
                              const runtime::MatmulOperands& operands,
                              std::span<const runtime::MatmulAlgorithm> algorithms, double seconds);

/// The algorithms chosen so far, and the database's results: for each product, with its tokens rounded up, the
/// library's version and the model of the device. Thread-safe.
class MatmulChooser {
 public:
  /// Both references must outlive this object.
  /// \param seconds  limit of each race; 0: none
  MatmulChooser(runtime::Device& device, cache::Cache& cache, double seconds = 0)
      : device_(device), winners_(device, cache, seconds) {}

  /// The fastest known algorithm, else the library's first one.
  /// \param most_workspace  bytes that it may need
  /// \throws Unsupported if the library has none
  [[nodiscard]] runtime::MatmulAlgorithm choose(const TokenMatmul& product, std::int64_t most_workspace);

  /// Whether a race would improve the result.
  [[nodiscard]] bool is_open(const TokenMatmul& product, std::int64_t most_workspace);
  /// Races the library's algorithms, then the fastest of them and its neighbours; the database keeps the times. Several
  /// threads may race at the same time.
  void tune(const TokenMatmul& product, const runtime::MatmulOperands& operands, std::int64_t most_workspace,
            double seconds);

 private:
  struct Chosen {
    runtime::MatmulAlgorithm algorithm;
    bool is_open;  ///< as is_open() returns
  };

  [[nodiscard]] RaceSubject subject_of(const TokenMatmul& product, std::int64_t most_workspace);
  /// The state for a product; the database, and the library, which may search for long, are asked once. Requires the
  /// mutex.
  [[nodiscard]] const Chosen& chosen(const TokenMatmul& product, std::int64_t most_workspace);

  runtime::Device& device_;
  std::mutex mutex_;  ///< guards the members below
  RaceWinners winners_;
  std::map<std::pair<runtime::Matmul, std::int64_t>, Chosen> chosen_;
};

}  // namespace ce::tuner
