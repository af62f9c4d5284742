// Which part of a sweep a process does.
#include "cli/shard.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "ce/error.hpp"

namespace ce::cli {
namespace {

using Values = std::map<std::string, std::string>;

Shard shard(const std::string& text, const Values& values = {}) {
  return parse_shard(text, [&](const char* name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

/// The text of the error.
std::string refusal(const std::string& text, const Values& values = {}) {
  try {
    return "none: " + shard(text, values).text();
  } catch (const InvalidArgument& error) {
    return fmt::format("{} is {}; expected {}", error.argument(), error.value(), error.expected());
  }
}

TEST(Shard, IsWrittenAsIOfN) {
  EXPECT_EQ(shard("0/1"), (Shard{0, 1}));
  EXPECT_EQ(shard("7/8"), (Shard{7, 8}));
  EXPECT_EQ(shard("7/8").text(), "7/8");
  for (const char* text : {"8/8", "-1/8", "1/0", "1", "/", "1/", "/2", "a/2", "1/b", "1/2/3", "autos",
                           "auto/0", "auto/", "01x/2", " 1/2"})
    EXPECT_TRUE(refusal(text).starts_with(fmt::format("--shard is \"{}\"; expected ", text)))
        << refusal(text);
  EXPECT_EQ(refusal("8/8"), "--shard is \"8/8\"; expected I/8 with an I from 0 to 7");
}

TEST(Shard, EveryProblemIsInExactlyOneAndThatHangsOnItsTextAlone) {
  constexpr int count = 4, problems = 4000;
  int sizes[count] = {};
  for (int i = 0; i < problems; ++i) {
    const std::string problem = fmt::format("softmax bf16 cols={}", i);
    int shards = 0;
    for (int index = 0; index < count; ++index)
      if (Shard{index, count}.has(problem)) ++shards, ++sizes[index];
    EXPECT_EQ(shards, 1) << problem;
    EXPECT_TRUE((Shard{0, 1}.has(problem)));
  }
  for (const int size : sizes) EXPECT_NEAR(size, problems / count, 150);  // 5 standard deviations
  // Written down: a version that cuts differently would leave out problems where it meets this one.
  std::string shards;
  for (int i = 0; i < 16; ++i)
    for (int index = 0; index < 8; ++index)
      if (Shard{index, 8}.has(fmt::format("softmax bf16 cols={}", i))) shards += fmt::to_string(index);
  EXPECT_EQ(shards, "4217462225445713");
}

TEST(Shard, AutoReadsWhatSlurmSetsForProcesses) {
  EXPECT_EQ(shard("auto", {{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}}), (Shard{3, 8}));
  EXPECT_EQ(refusal("auto", {{"SLURM_PROCID", "3"}}),
            "SLURM_NTASKS is unset; expected the number of processes, because SLURM_PROCID is set");
  EXPECT_EQ(refusal("auto", {{"SLURM_PROCID", "8"}, {"SLURM_NTASKS", "8"}}),
            "SLURM_PROCID is \"8\"; expected a whole number from 0 to 7");
  EXPECT_EQ(refusal("auto", {{"SLURM_PROCID", "8"}, {"SLURM_NTASKS", "8 (x2)"}}),
            "SLURM_NTASKS is \"8 (x2)\"; expected a whole number from 1 to 1000000");
}

TEST(Shard, AutoReadsWhatSlurmSetsForArrays) {
  Values array{{"SLURM_ARRAY_TASK_ID", "14"},
               {"SLURM_ARRAY_TASK_MIN", "10"},
               {"SLURM_ARRAY_TASK_MAX", "16"},
               {"SLURM_ARRAY_TASK_STEP", "2"},
               {"SLURM_ARRAY_TASK_COUNT", "4"}};
  EXPECT_EQ(shard("auto", array), (Shard{2, 4}));
  array["SLURM_PROCID"] = "0";  // a batch script without --ntasks
  EXPECT_EQ(shard("auto", array), (Shard{2, 4}));
  array["SLURM_NTASKS"] = "3";  // each task of the array starts three processes
  array["SLURM_PROCID"] = "1";
  EXPECT_EQ(shard("auto", array), (Shard{7, 12}));

  Values uneven{{"SLURM_ARRAY_TASK_ID", "3"},
                {"SLURM_ARRAY_TASK_MIN", "1"},
                {"SLURM_ARRAY_TASK_MAX", "7"},
                {"SLURM_ARRAY_TASK_STEP", "1"},
                {"SLURM_ARRAY_TASK_COUNT", "3"}};
  EXPECT_TRUE(refusal("auto", uneven).starts_with("SLURM_ARRAY_TASK_MAX is \"7\"; expected 3, "))
      << refusal("auto", uneven);
  uneven["SLURM_ARRAY_TASK_ID"] = "7";
  EXPECT_TRUE(refusal("auto", uneven).starts_with("SLURM_ARRAY_TASK_ID is \"7\"; expected one of 3 from 1 "))
      << refusal("auto", uneven);
  EXPECT_EQ(refusal("auto", {{"SLURM_ARRAY_TASK_ID", "3"}}),
            "SLURM_ARRAY_TASK_COUNT is unset; expected a number, because SLURM_ARRAY_TASK_ID is set");
}

TEST(Shard, AutoReadsWhatAnIndexedJobOfKubernetesSets) {
  EXPECT_EQ(shard("auto/5", {{"JOB_COMPLETION_INDEX", "4"}}), (Shard{4, 5}));
  EXPECT_EQ(shard("auto", {{"JOB_COMPLETION_INDEX", "4"}, {"CE_SHARDS", "6"}}), (Shard{4, 6}));
  EXPECT_EQ(
      refusal("auto", {{"JOB_COMPLETION_INDEX", "4"}}),
      "CE_SHARDS is unset; expected the number of indices, because JOB_COMPLETION_INDEX is set; or --shard "
      "auto/N");
  EXPECT_EQ(refusal("auto/4", {{"JOB_COMPLETION_INDEX", "4"}}),
            "JOB_COMPLETION_INDEX is \"4\"; expected a whole number from 0 to 3");
  EXPECT_EQ(refusal("auto/5", {{"JOB_COMPLETION_INDEX", "4"}, {"CE_SHARDS", "6"}}),
            "CE_SHARDS is \"6\"; expected 5, as --shard auto/5 says");
}

TEST(Shard, AutoReadsWhatTorchrunSets) {
  EXPECT_EQ(shard("auto", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), (Shard{1, 2}));
  EXPECT_EQ(refusal("auto", {{"RANK", "1"}}),
            "WORLD_SIZE is unset; expected the number of processes, because RANK is set");
}

TEST(Shard, WhatContradictsItselfIsRefused) {
  const Values slurm{{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "8"}};
  Values both = slurm;
  both.insert({{"RANK", "3"}, {"WORLD_SIZE", "8"}});
  EXPECT_EQ(shard("auto", both), (Shard{3, 8})) << "one launcher, told twice";
  both["RANK"] = "4";
  EXPECT_EQ(refusal("auto", both),
            "--shard is \"auto\"; expected variables that agree, but there are SLURM_PROCID=3 of "
            "SLURM_NTASKS=8 and RANK=4 of "
            "WORLD_SIZE=8; or --shard I/N");
  both["RANK"] = "0", both["WORLD_SIZE"] = "1";
  EXPECT_EQ(shard("auto", both), (Shard{3, 8})) << "a launcher of one process in a job of eight";
  EXPECT_EQ(shard("auto", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}}),
            (Shard{1, 2}));
  EXPECT_EQ(refusal("auto/4", slurm),
            "--shard is \"auto/4\"; expected auto/8, the number of shards in the environment (SLURM_PROCID=3 "
            "of SLURM_NTASKS=8)");
  EXPECT_TRUE(refusal("auto").starts_with("--shard is \"auto\"; expected SLURM_ARRAY_TASK_ID, "))
      << refusal("auto");
}

}  // namespace
}  // namespace ce::cli
