#pragma once
/// \file
/// A database of made-up measurements of one problem.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/time.hpp"
#include "cache/cache.hpp"
#include "cache/store.hpp"
#include "generator/problem.hpp"
#include "generator/source.hpp"
#include "generator/variant.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli::test {

inline const generator::Problem softmax{
    .operation = generator::Operation::softmax, .dtype = DType::bf16, .rows = 8192, .columns = 4096};

/// Five configs of the problem; tests add what they need of them.
class DatabaseTest : public CommandTest {
 protected:
  DatabaseTest() : cache_(cache::Cache::open(database())) {
    const std::vector<generator::Config> space = generator::space(softmax, {.capability = 90});
    for (std::size_t i = 0; i < 5; ++i)
      configs_.push_back(generator::to_text(space.at(i * space.size() / 5)));
  }

  /// Of a final with today's templates, measured.
  [[nodiscard]] cache::Measurement measurement(std::size_t index, double median_us) const {
    const std::string& config = configs_.at(index);
    return {
        .key = {generator::key_text(softmax), "Some GPU|cc=90|sm=132"},
        .config = config,
        .template_digest = generator::template_digest(softmax.operation, config.substr(0, config.find('/'))),
        .compile_key = "of " + config,
        .stage = 1,
        .rows = 8192,
        .bytes = generator::traffic(softmax).total(),
        .samples_us = {60, 60, 60},
        .median_us = median_us,
        .spread = 0.01,
        .registers = 40,
        .environment = {{"uuid", "GPU-1"}, {"driver", "580.1"}, {"nvrtc", "13.0"}},
        .created_at = final_at_};
  }
  [[nodiscard]] std::string id() const { return measurement(0, 1).key.id(); }

  /// The command, on the database.
  [[nodiscard]] Finished text(std::vector<std::string> words) const {
    words.insert(words.end(), {"--db", database()});
    return ce_tune(words);
  }
  /// What it prints with --json.
  [[nodiscard]] nlohmann::json document(std::vector<std::string> words) const {
    words.emplace_back("--json");
    const Finished finished = text(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return nlohmann::json::parse(finished.out);
  }
  [[nodiscard]] std::string path(const std::string& name) const { return (folder() / name).string(); }

  cache::Cache cache_;
  std::vector<std::string> configs_;
  const std::string final_at_ = utc_now();  ///< all are of one final
};

}  // namespace ce::cli::test
