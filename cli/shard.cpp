#include "cli/shard.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <system_error>
#include <utility>
#include <vector>

#include "base/digest.hpp"
#include "ce/error.hpp"
#include "cli/units.hpp"

namespace ce::cli {
namespace {

constexpr int most_shards = 1'000'000;
constexpr const char* shard_option = "--shard";
constexpr const char* count_variable = "CE_SHARDS";
constexpr const char* names_the_index =
    "SLURM_ARRAY_TASK_ID, SLURM_PROCID, JOB_COMPLETION_INDEX or RANK in the environment, or --shard I/N";

int shard_number(std::string_view argument, const std::string& text, int least, int most) {
  return static_cast<int>(parse_count(argument, text, least, most));
}

/// The variables of one launcher.
struct ShardFound {
  Shard shard;
  std::string words;  ///< "RANK=3 and WORLD_SIZE=8"
};

class Launchers {
 public:
  /// \param count  number of shards, if the option or CE_SHARDS gives it
  Launchers(const Variables& variables, std::optional<int> count, std::string count_words)
      : variables_(variables), count_(count), count_words_(std::move(count_words)) {}

  /// Each task of an array is a job of its own with equally many processes.
  [[nodiscard]] std::optional<ShardFound> slurm() const {
    auto array = slurm_array();
    if (!array) return indexed("SLURM_PROCID", "SLURM_NTASKS", count_);
    // A batch script is process 0, and only --ntasks sets the number of processes.
    if (!variables_("SLURM_NTASKS") && variables_("SLURM_PROCID").value_or("0") == "0") return array;
    const auto tasks = indexed("SLURM_PROCID", "SLURM_NTASKS", std::nullopt);
    if (!tasks) return array;
    const std::int64_t count = std::int64_t{array->shard.count} * tasks->shard.count;
    if (count > most_shards)
      throw InvalidArgument("SLURM_NTASKS", std::to_string(tasks->shard.count),
                            fmt::format("at most {} processes in all tasks of the array", most_shards));
    return ShardFound{{array->shard.index * tasks->shard.count + tasks->shard.index, static_cast<int>(count)},
                      array->words + ", " + tasks->words};
  }

  [[nodiscard]] std::optional<ShardFound> kubernetes() const {
    return indexed("JOB_COMPLETION_INDEX", nullptr, count_);
  }

  [[nodiscard]] std::optional<ShardFound> torchrun() const { return indexed("RANK", "WORLD_SIZE", count_); }

 private:
  [[nodiscard]] std::string required(const char* name, std::string_view because) const {
    if (auto value = variables_(name)) return *std::move(value);
    throw InvalidArgument(name, "unset", fmt::format("a number, because {} is set", because));
  }

  /// \param otherwise  the count if its variable is unset
  [[nodiscard]] std::optional<ShardFound> indexed(const char* index_name, const char* count_name,
                                                  std::optional<int> otherwise) const {
    const auto index = variables_(index_name);
    if (!index) return std::nullopt;
    int count = 0;
    std::string count_words;
    if (const auto text = count_name == nullptr ? std::nullopt : variables_(count_name)) {
      count = shard_number(count_name, *text, 1, most_shards);
      count_words = fmt::format("{}={}", count_name, *text);
    } else if (otherwise) {
      count = *otherwise;
      count_words = count_words_;
    } else if (count_name != nullptr) {
      throw InvalidArgument(count_name, "unset",
                            fmt::format("the number of processes, because {} is set", index_name));
    } else {
      throw InvalidArgument(
          count_variable, "unset",
          fmt::format("the number of indices, because {} is set; or --shard auto/N", index_name));
    }
    return ShardFound{{shard_number(index_name, *index, 0, count - 1), count},
                      fmt::format("{}={} of {}", index_name, *index, count_words)};
  }

  [[nodiscard]] std::optional<ShardFound> slurm_array() const {
    constexpr const char* id_name = "SLURM_ARRAY_TASK_ID";
    constexpr const char* count_name = "SLURM_ARRAY_TASK_COUNT";
    constexpr int most_id = 2'000'000'000;
    const auto id_text = variables_(id_name);
    if (!id_text) return std::nullopt;
    const int count = shard_number(count_name, required(count_name, id_name), 1, most_shards);
    const int first =
        shard_number("SLURM_ARRAY_TASK_MIN", required("SLURM_ARRAY_TASK_MIN", id_name), 0, most_id);
    const int step =
        shard_number("SLURM_ARRAY_TASK_STEP", variables_("SLURM_ARRAY_TASK_STEP").value_or("1"), 1, most_id);
    const int id = shard_number(id_name, *id_text, 0, most_id);
    const std::int64_t last = first + std::int64_t{count - 1} * step;
    // An array such as 1,3,7 has no constant step.
    if (id < first || id > last || (id - first) % step != 0)
      throw InvalidArgument(
          id_name, in_quotes(*id_text),
          fmt::format(
              "one of {} from {} in steps of {}, as SLURM_ARRAY_TASK_COUNT, _MIN and _STEP say; for an "
              "array without a step, --shard I/N",
              count, first, step));
    if (const auto text = variables_("SLURM_ARRAY_TASK_MAX"))
      if (shard_number("SLURM_ARRAY_TASK_MAX", *text, 0, most_id) != last)
        throw InvalidArgument("SLURM_ARRAY_TASK_MAX", in_quotes(*text),
                              fmt::format("{}, the last of {} from {} in steps of {}; for an array without a "
                                          "step, --shard I/N",
                                          last, count, first, step));
    return ShardFound{{(id - first) / step, count},
                      fmt::format("{}={} of {}={}", id_name, *id_text, count_name, count)};
  }

  const Variables& variables_;
  std::optional<int> count_;
  std::string count_words_;
};

/// \param count  number of shards, if the option gives it
Shard shard_of(const Variables& variables, std::optional<int> count) {
  std::string count_words = count ? fmt::format("--shard auto/{}", *count) : "";
  if (const auto text = variables(count_variable)) {
    const int given = shard_number(count_variable, *text, 1, most_shards);
    if (count && given != *count)
      throw InvalidArgument(count_variable, in_quotes(*text),
                            fmt::format("{}, as {} says", *count, count_words));
    count = given;
    if (count_words.empty()) count_words = fmt::format("{}={}", count_variable, *text);
  }
  const Launchers launchers(variables, count, count_words);
  std::optional<ShardFound> chosen;
  for (const auto& found : {launchers.slurm(), launchers.kubernetes(), launchers.torchrun()}) {
    if (!found) continue;
    // A launcher of a single process, inside of another launcher, has nothing to divide.
    if (!chosen || chosen->shard.count == 1) {
      chosen = found;
    } else if (found->shard.count > 1 && found->shard != chosen->shard) {
      throw InvalidArgument(shard_option, "\"auto\"",
                            fmt::format("variables that agree, but there are {} and {}; or --shard I/N",
                                        chosen->words, found->words));
    }
  }
  if (!chosen) throw InvalidArgument(shard_option, "\"auto\"", names_the_index);
  if (count && chosen->shard.count != *count)
    throw InvalidArgument(shard_option, in_quotes(fmt::format("auto/{}", *count)),
                          fmt::format("auto/{}, the number of shards in the environment ({})",
                                      chosen->shard.count, chosen->words));
  return chosen->shard;
}

}  // namespace

bool Shard::has(std::string_view problem) const {
  if (count == 1) return true;
  const std::string name = digest({"shard", problem});
  std::uint64_t number = 0;
  std::from_chars(name.data(), name.data() + 16, number, 16);
  return number % static_cast<std::uint64_t>(count) == static_cast<std::uint64_t>(index);
}

std::string Shard::text() const { return fmt::format("{}/{}", index, count); }

Shard parse_shard(const std::string& text, const Variables& variables) {
  const std::size_t slash = text.find('/');
  const std::string before = text.substr(0, slash);
  const bool is_auto = before == "auto";
  if (slash == std::string::npos) {
    if (is_auto) return shard_of(variables, std::nullopt);
    throw InvalidArgument(shard_option, in_quotes(text), "I/N, such as 0/4, or auto or auto/N");
  }
  const auto part = [&](const std::string& digits, int least, int most, const std::string& expected) {
    int number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size() || number < least || number > most)
      throw InvalidArgument(shard_option, in_quotes(text), expected);
    return number;
  };
  const int count = part(text.substr(slash + 1), 1, most_shards,
                         fmt::format("I/N, such as 0/4, or auto/N, with an N from 1 to {}", most_shards));
  if (is_auto) return shard_of(variables, count);
  return {part(before, 0, count - 1, fmt::format("I/{} with an I from 0 to {}", count, count - 1)), count};
}

}  // namespace ce::cli
