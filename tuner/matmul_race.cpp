#include "tuner/matmul_race.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "tuner/verify/elements.hpp"

namespace ce::tuner {
namespace {

/// Number of algorithms that the library is asked for, and of neighbours of the fastest of them.
constexpr int most_named = 16, most_alike = 24;

/// The first and the last elements of a product's output, as far as they are contiguous.
class Samples {
 public:
  Samples(const runtime::Matmul& matmul, void* d) : matmul_(matmul) {
    constexpr std::int64_t most = 16384;
    const std::int64_t count = std::min(matmul.n, most);
    for (const std::int64_t start : {std::int64_t{0}, (matmul.m - 1) * matmul.d_stride + matmul.n - count})
      pieces_.push_back({static_cast<std::byte*>(d) + start * size_of(matmul.output), count});
  }

  /// Fills the output with NaN, or with zeros if the product adds to it.
  void set_back(runtime::Device& device) const {
    for (const Piece& piece : pieces_)
      device.fill(piece.data, matmul_.accumulates ? 0 : 0xff, bytes_of(piece), device.trial_stream());
  }
  [[nodiscard]] std::vector<double> read(runtime::Device& device) const {
    std::vector<double> all;
    device.synchronize(device.trial_stream());
    for (const Piece& piece : pieces_) {
      std::vector<std::byte> bytes(bytes_of(piece));
      device.download(bytes.data(), piece.data, bytes.size());
      for (std::int64_t i = 0; i < piece.count; ++i)
        all.push_back(generator::read_element(matmul_.output, bytes.data(), i));
    }
    return all;
  }

 private:
  struct Piece {
    std::byte* data;
    std::int64_t count;
  };
  [[nodiscard]] std::size_t bytes_of(const Piece& piece) const {
    return static_cast<std::size_t>(piece.count * size_of(matmul_.output));
  }

  const runtime::Matmul& matmul_;
  std::vector<Piece> pieces_;
};

/// Sums in another order differ by little, relative to the largest of them.
bool agree(const std::vector<double>& a, const std::vector<double>& b, DType dtype) {
  double largest = 0;
  for (const double x : b) largest = std::max(largest, std::isfinite(x) ? std::abs(x) : 0);
  const double unit = dtype == DType::f32 ? 0x1p-23 : dtype == DType::f16 ? 0x1p-10 : 0x1p-7;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool alike = std::isfinite(b[i])
                           ? std::abs(a[i] - b[i]) <= 2 * unit * std::abs(b[i]) + 0x1p-10 * largest
                       : std::isnan(b[i]) ? std::isnan(a[i])
                                          : a[i] == b[i];
    if (!alike) return false;
  }
  return true;
}

/// Appends a race that began with the previous race's winner. The second final decides: earlier turns count as
/// screenings.
void append(RaceResult& result, RaceResult&& more) {
  if (!more.cut_short.empty()) result.cut_short = std::move(more.cut_short);
  const bool decides = more.runners > 1;
  if (decides) {
    for (RaceRun& run : result.runs) run.is_final = false;
    result.winner = std::move(more.winner);
    result.first = std::move(more.first);
    result.winner_us = more.winner_us;
    result.first_us = more.first_us;
    result.runners += more.runners - 1;
  }
  result.wrong += more.wrong;
  for (RaceRun& run : more.runs)
    if (decides || !run.wrong.empty()) result.runs.push_back(std::move(run));
}

}  // namespace

runtime::Matmul TokenMatmul::bucket() const {
  runtime::Matmul rounded = matmul;
  rounded.*tokens = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(matmul.*tokens)));
  return rounded;
}

RaceResult race(runtime::Device& device, const runtime::Matmul& matmul,
                const runtime::MatmulOperands& operands, std::span<const runtime::MatmulAlgorithm> algorithms,
                double seconds) {
  if (algorithms.size() == 1)
    return {.winner = algorithms.front().text, .first = algorithms.front().text, .runners = 1};
  runtime::MatmulLibrary& library = device.matmuls();
  const std::string library_name = library.name();
  const Samples samples(matmul, operands.d);
  std::vector<std::string> names;
  names.reserve(algorithms.size());
  for (const runtime::MatmulAlgorithm& algorithm : algorithms) names.push_back(algorithm.text);
  return run(
      device,
      {.subject = library_name,
       .names = std::move(names),
       .launch =
           [&](std::size_t i) { library.launch(matmul, algorithms[i], operands, device.trial_stream()); },
       .set_back = [&] { samples.set_back(device); },
       .read = [&] { return samples.read(device); },
       .agrees = [&](const auto& made, const auto& right) { return agree(made, right, matmul.output); }},
      seconds);
}

RaceSubject MatmulChooser::subject_of(const TokenMatmul& product, std::int64_t most_workspace) {
  return {.text = fmt::format("{} workspace={}", product.bucket().key(), most_workspace),
          .maker = device_.matmuls().name(),
          .rows = product.matmul.*product.tokens,
          .bytes = product.matmul.bytes()};
}

const MatmulChooser::Chosen& MatmulChooser::chosen(const TokenMatmul& product, std::int64_t most_workspace) {
  const std::pair key(product.matmul, most_workspace);
  if (const auto found = chosen_.find(key); found != chosen_.end()) return found->second;
  runtime::MatmulLibrary& library = device_.matmuls();
  const RaceWinners::Known& known = winners_.of(subject_of(product, most_workspace));
  std::optional<runtime::MatmulAlgorithm> winner;
  if (!known.winner.empty()) winner = library.algorithm(product.matmul, known.winner, most_workspace);
  const bool is_open = known.open || (!known.winner.empty() && !winner);
  if (!winner) winner = library.algorithms(product.matmul, most_workspace, 1).front();
  return chosen_.emplace(key, Chosen{*std::move(winner), is_open}).first->second;
}

runtime::MatmulAlgorithm MatmulChooser::choose(const TokenMatmul& product, std::int64_t most_workspace) {
  const std::lock_guard lock(mutex_);
  return chosen(product, most_workspace).algorithm;
}

bool MatmulChooser::is_open(const TokenMatmul& product, std::int64_t most_workspace) {
  const std::lock_guard lock(mutex_);
  return chosen(product, most_workspace).is_open;
}

void MatmulChooser::tune(const TokenMatmul& product, const runtime::MatmulOperands& operands,
                         std::int64_t most_workspace, double seconds) {
  const RaceSubject subject = subject_of(product, most_workspace);
  const runtime::Matmul& matmul = product.matmul;
  runtime::MatmulLibrary& library = device_.matmuls();
  const auto start = std::chrono::steady_clock::now();
  const std::vector<runtime::MatmulAlgorithm> named = library.algorithms(matmul, most_workspace, most_named);
  RaceResult result = race(device_, matmul, operands, named, seconds);
  const double first_us = result.first_us;
  const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (seconds == 0 || taken < seconds) {
    const auto fastest = std::ranges::find(named, result.winner, &runtime::MatmulAlgorithm::text);
    std::vector<runtime::MatmulAlgorithm> alike =
        library.neighbours(matmul, *fastest, most_workspace, most_alike);
    alike.insert(alike.begin(), *fastest);
    append(result, race(device_, matmul, operands, alike, seconds == 0 ? 0 : seconds - taken));
  } else if (result.cut_short.empty()) {
    result.cut_short = fmt::format(
        "the {:g} s of a race were over before algorithms similar to the fastest had raced", seconds);
  }
  if (result.runners > 1)
    log(LogLevel::info,
        fmt::format(
            "tuned {} on {}: {} in {:.1f} us, the best of {}; the library's first choice took {:.1f} us",
            product.bucket().key(), device_.model().name, result.winner, result.winner_us, result.runners,
            first_us));
  const std::lock_guard lock(mutex_);
  winners_.keep(subject, result);
  // The entries of other numbers of tokens are dropped, too: they are looked up again.
  chosen_.clear();
}

}  // namespace ce::tuner
