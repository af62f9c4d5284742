#pragma once
/// \file
/// Which algorithm of the device's library makes a product fastest.

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

/// A product whose number of tokens may be another at each call: those of one power of two share an algorithm.
struct TokenMatmul {
  runtime::Matmul matmul;
  std::int64_t runtime::Matmul::*tokens = &runtime::Matmul::m;  ///< m, or k

  /// The product that stands for its range of tokens.
  [[nodiscard]] runtime::Matmul bucket() const;
};

/// Each must agree with the first in a sample of D, the first and the last elements; that one is taken to be right. Writes D.
/// A single one wins unseen.
/// \param seconds  that it may take; 0: no bound. What has begun is finished
[[nodiscard]] RaceResult race(runtime::Device& device, const runtime::Matmul& matmul,
                              const runtime::MatmulOperands& operands,
                              std::span<const runtime::MatmulAlgorithm> algorithms, double seconds);

/// The algorithms that were chosen so far, and what the database knows of them: for each product, with its tokens rounded
/// up, the library with its version and the model of the device. Thread-safe.
class MatmulChooser {
 public:
  /// Both must outlive it.
  /// \param seconds  that each race may take; 0: no bound
  MatmulChooser(runtime::Device& device, cache::Cache& cache, double seconds = 0)
      : device_(device), winners_(device, cache, seconds) {}

  /// The fastest that is known, else the one that the library names first.
  /// \param most_workspace  bytes that it may need
  /// \throws Unsupported where the library has none
  [[nodiscard]] runtime::MatmulAlgorithm choose(const TokenMatmul& product, std::int64_t most_workspace);

  /// Whether a race would find something new.
  [[nodiscard]] bool is_open(const TokenMatmul& product, std::int64_t most_workspace);
  /// Lets those race that the library names, then the fastest of them and its neighbours; the database keeps what each
  /// took. Others may do so at the same time.
  void tune(const TokenMatmul& product, const runtime::MatmulOperands& operands, std::int64_t most_workspace,
            double seconds);

 private:
  struct Chosen {
    runtime::MatmulAlgorithm algorithm;
    bool is_open;  ///< as is_open() says
  };

  [[nodiscard]] RaceSubject subject_of(const TokenMatmul& product, std::int64_t most_workspace);
  /// What every call asks: the database, and the library, which may search for long, are asked once. Needs the mutex.
  [[nodiscard]] const Chosen& chosen(const TokenMatmul& product, std::int64_t most_workspace);

  runtime::Device& device_;
  std::mutex mutex_;  ///< guards what follows
  RaceWinners winners_;
  std::map<std::pair<runtime::Matmul, std::int64_t>, Chosen> chosen_;
};

}  // namespace ce::tuner
