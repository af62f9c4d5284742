// The recipes of docs/fleet.md, as they stand there, in the environment of their launchers.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

/// The blocks of a language in the page.
std::vector<std::string> blocks(const std::string& language) {
  const std::string text = test::read_file(std::filesystem::path(CE_SOURCE_DIR) / "docs/fleet.md");
  const std::string begin = "\n```" + language + "\n", end = "\n```\n";
  std::vector<std::string> found;
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    found.push_back(text.substr(at, text.find(end, at) + 1 - at));
  }
  return found;
}

class FleetRecipes : public test::CommandTest {
 protected:
  FleetRecipes() {
    std::filesystem::create_directory(folder() / "bin");
    std::filesystem::create_symlink(CE_TUNE, folder() / "bin/ce-tune");
    script("bin/scontrol", "#!/bin/sh\necho \"$@\" >> \"$TUNE/scontrol\"\n");
    test::write_file(folder() / "shapes.csv", "op,dtype,rows,cols\nsoftmax,f32,8,\"90,91,92,93\"\n");
  }

  void script(const std::string& name, const std::string& text) const {
    test::write_file(folder() / name, text);
    std::filesystem::permissions(folder() / name, std::filesystem::perms::owner_all);
  }

  Finished run(const std::string& program, const std::vector<std::string>& words,
               test::Environment more) const {
    more.insert({{"PATH", (folder() / "bin").string() + ":/usr/bin:/bin"},
                 {"TUNE", folder().string()},
                 {"CE_DEVICE", "host"}});
    return test::Child(folder(), words, surroundings(more), "", program).wait();
  }

  [[nodiscard]] std::vector<std::string> few(std::vector<std::string> words) const {
    words.insert(words.end(),
                 {"--from", (folder() / "shapes.csv").string(), "--configs", "1", "--samples", "1"});
    return words;
  }
};

TEST_F(FleetRecipes, AJobArrayOfSlurmTunesIsRequeuedMergedAndShipped) {
  const std::vector<std::string> recipes = blocks("bash");
  ASSERT_EQ(recipes.size(), 2U);
  script("tune.sh", recipes[0]);
  script("merge.sh", recipes[1]);
  const auto task = [&](int index, const std::string& time) {
    return run((folder() / "tune.sh").string(), few({}),
               {{"SLURM_ARRAY_JOB_ID", "4711"},
                {"SLURM_ARRAY_TASK_ID", std::to_string(index)},
                {"SLURM_ARRAY_TASK_MIN", "0"},
                {"SLURM_ARRAY_TASK_MAX", "1"},
                {"SLURM_ARRAY_TASK_STEP", "1"},
                {"SLURM_ARRAY_TASK_COUNT", "2"},
                {"SLURM_PROCID", "0"},
                {"TUNE_TIME", time}});
  };
  EXPECT_EQ(task(0, "0.000001s").status, 11);
  EXPECT_EQ(test::read_file(folder() / "scontrol"), "requeue 4711_0\n") << "the budget ended";
  for (const int index : {0, 1}) {
    const Finished finished = task(index, "50m");
    EXPECT_EQ(finished.status, 0) << finished.err;
  }
  EXPECT_EQ(test::read_file(folder() / "scontrol"), "requeue 4711_0\n") << "all is done";

  const Finished merged = run((folder() / "merge.sh").string(), {}, {});
  ASSERT_EQ(merged.status, 0) << merged.err;
  EXPECT_FALSE(std::filesystem::exists(folder() / "site.db.new"));
  const Finished listed =
      ce_tune({"db", "list", "--db", (folder() / "site.db").string(), "--json", "--tag", "job=4711"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  int problems = 0;
  const json document_of_listed = json::parse(listed.out);
  for (const json& key : document_of_listed.at("keys"))
    problems += key.at("problem").at("operation") == "softmax";
  EXPECT_EQ(problems, 4);
  EXPECT_NE(test::read_file(folder() / "winners.jsonl").find("\"tag.job\":\"4711\""), std::string::npos);
}

TEST_F(FleetRecipes, AnIndexedJobOfKubernetesTunesTheWholeList) {
  const std::vector<std::string> recipes = blocks("yaml");
  ASSERT_EQ(recipes.size(), 1U);
  const std::string& text = recipes[0];
  const auto value_of = [&](const std::string& field) {
    const std::size_t at = text.find(field) + field.size();
    return text.substr(at, text.find('\n', at) - at);
  };
  EXPECT_EQ(value_of("completions: ") + "\"}", value_of("{name: CE_SHARDS, value: \""))
      << "the count is said twice";
  EXPECT_NE(text.find("values: [11, 130]"), std::string::npos);
  std::string command;
  const std::size_t begin = text.find("            - |\n") + 16,
                    end = text.find("          resources:", begin);
  ASSERT_LT(begin, end);
  command = text.substr(begin, end - begin);
  command.insert(command.rfind('\n'), " --configs 1 --samples 1");
  std::size_t problems = 0;
  for (const int index : {0, 1, 2}) {
    const Finished finished = run("/bin/sh", {"-c", command},
                                  {{"JOB_COMPLETION_INDEX", std::to_string(index)}, {"CE_SHARDS", "3"}});
    EXPECT_EQ(finished.status, 0) << finished.err;
    const Finished listed = ce_tune(
        {"db", "list", "--db", (folder() / ("shard-" + std::to_string(index) + ".db")).string(), "--json"});
    if (listed.status != 0) continue;  // an empty shard
    const json document_of_listed = json::parse(listed.out);
    for (const json& key : document_of_listed.at("keys"))
      problems += key.at("problem").at("operation") == "softmax" ? 1 : 0;
  }
  EXPECT_EQ(problems, 4U);
  EXPECT_EQ(run("/bin/sh", {"-c", command},
                {{"JOB_COMPLETION_INDEX", "0"}, {"CE_SHARDS", "3"}, {"TUNE_TIME", "0.000001s"}})
                .status,
            0)
      << "nothing is left to do";
}

}  // namespace
}  // namespace ce::cli
