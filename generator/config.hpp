#pragma once
/// \file
/// One point of a Variant's space.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ce::generator {

/// Values of the axes of a Variant; axes that it does not have stay 0. `load` and `store` index load_names and
/// store_names.
struct Config {
  std::string variant;
  int warps = 0;     ///< per block
  int reducers = 0;  ///< warps of a block that reduce; the others write
  int vec = 0;       ///< elements moved by one instruction
  int lanes = 0;     ///< lanes of a warp that share a row
  int rows = 0;      ///< rows that a group of lanes processes at once
  int tile = 0;      ///< elements that a block processes in one step
  int unroll = 0;    ///< vectors of each input that a thread processes in one step
  int split = 0;     ///< blocks that share a row in two launches
  int cluster = 0;   ///< blocks of a cluster that share a row
  int stages = 0;    ///< chunks that are loaded ahead of a row
  int hold = 0;      ///< vectors of a row, of each input, in the registers of a thread
  int load = 0;      ///< PTX cache operator of loads, or L2 policy
  int store = 0;     ///< PTX cache operator of stores

  friend bool operator==(const Config&, const Config&) = default;
};

inline constexpr std::array<std::string_view, 4> load_names{"ca", "cg", "cs", "evict_last"};
inline constexpr std::array<std::string_view, 4> store_names{"wb", "cg", "cs", "wt"};

/// The name of a value in a Config's text form, in a template's space and in its constants.
struct Axis {
  std::string_view name;
  int Config::*value;
  int most;                                 ///< largest value that any device could run
  std::span<const std::string_view> words;  ///< names of the values 0, 1, ...; empty for plain numbers
};

/// All axes, in the order of the text form.
[[nodiscard]] std::span<const Axis> axes() noexcept;
[[nodiscard]] const Axis* find_axis(std::string_view name) noexcept;

/// Formats and parses a value of this axis.
[[nodiscard]] std::string value_text(const Axis& axis, int value);
[[nodiscard]] std::optional<int> parse_value(const Axis& axis, std::string_view text) noexcept;

/// "block/warps=16,vec=8,load=cs,store=cs": lists the axes of its variant only.
[[nodiscard]] std::string to_text(const Config& config);
/// \throws InvalidArgument naming the wrong part of the text; to_text() is the inverse
[[nodiscard]] Config parse_config(std::string_view text);

}  // namespace ce::generator
