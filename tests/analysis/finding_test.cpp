// Measurements of one key by hand: which populations they are, and what is found of these.
#include "cli/analysis/finding.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "generator/variant.hpp"
#include "tests/tuner/fixture.hpp"

namespace ce::tuner {
namespace {

using cache::Measurement;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The n-th config of `block`.
std::string block(std::size_t n) {
  static const std::vector<generator::Config> all = [] {
    std::vector<generator::Config> space =
        generator::space(test::small_problem(), {.shared_bytes_per_block = 100 << 10});
    std::erase_if(space, [](const generator::Config& config) { return config.variant != "block"; });
    return space;
  }();
  return to_text(all.at(n));
}

/// A final of day `day`.
Measurement final_of(int day, const std::string& config, double us) {
  return {.config = config,
          .template_digest = "11111111aa",
          .compile_key = "key of " + config,
          .stage = cache::stage_of_finals,
          .rows = 40,
          .samples_us = std::vector<float>(15, static_cast<float>(us)),
          .median_us = us,
          .spread = 0.001,
          .environment = {{"driver", "580"}, {"nvrtc", "13.0"}, {"ce", "0.1.0"}, {"uuid", "GPU-1"}},
          .created_at = fmt::format("2030-01-{:02}T12:00:00.000Z", day)};
}

Measurement with(Measurement measurement, const std::map<std::string, std::string>& environment) {
  for (const auto& [name, value] : environment) measurement.environment[name] = value;
  return measurement;
}

/// As `measurement` would be after a change of the compiler.
Measurement compiled_anew(Measurement measurement) {
  measurement.compile_key += ", new";
  return measurement;
}

/// Of the first population and the last.
Finding finding_of(const std::vector<Measurement>& measurements) {
  const std::vector<Population> populations = populations_of(measurements);
  EXPECT_GE(populations.size(), 2U);
  return compare(populations.front(), populations.back(), {});
}

TEST(Populations, AreOfTheSameSoftwareAndRows) {
  Measurement screened = final_of(1, block(0), 90), wrong = final_of(1, block(1), 0),
              few_rows = final_of(5, block(0), 50), other_variant = final_of(6, "warp/warps=1", 90);
  screened.stage = cache::stage_of_screenings;
  wrong.outcome = cache::Outcome::quarantined;
  few_rows.rows = 20;
  other_variant.template_digest = "22222222bb";
  const std::vector<Measurement> measurements{screened,
                                              wrong,
                                              final_of(1, block(0), 100),
                                              with(final_of(2, block(0), 100), {{"driver", "590"}}),
                                              with(final_of(3, block(0), 500), {{"throttle", "thermal"}}),
                                              final_of(4, block(0), 101),
                                              few_rows,
                                              other_variant};
  const std::vector<Population> populations = populations_of(measurements);
  ASSERT_EQ(populations.size(), 3U);
  EXPECT_EQ(populations[0].software.driver, "590");
  EXPECT_EQ(populations[1].rows, 20);
  EXPECT_EQ(populations[2].software.driver, "580") << "the newest run is of these";
  EXPECT_THAT(populations[2].runs, ElementsAre(&measurements[2], &measurements[5], &measurements[7]));
  EXPECT_EQ(populations[2].software.templates.size(), 2U);
  EXPECT_EQ(populations[2].last_at(), other_variant.created_at);
}

TEST(Populations, AreOfOneDriverOneCompilerAndOneLibrary) {
  for (const char* name : {"driver", "nvrtc", "ce"})
    EXPECT_EQ(populations_of(std::vector{final_of(1, block(0), 100),
                                         with(final_of(2, block(0), 100), {{name, "another"}})})
                  .size(),
              2U)
        << name;
  // What a host device has in their place.
  Measurement host = final_of(1, block(0), 100);
  host.environment = {{"kernel", "6.1"}, {"compiler", "g++ 11"}, {"ce", "0.1.0"}};
  const Software software = software_of(host);
  EXPECT_EQ(software.driver, "6.1");
  EXPECT_EQ(software.toolkit, "g++ 11");
}

TEST(Populations, RepeatsAreOfOneConfigOnOneGpuWithOneSoftware) {
  const std::vector<Measurement> one{final_of(1, block(0), 100), final_of(2, block(0), 101),
                                     final_of(3, block(1), 300),
                                     with(final_of(4, block(0), 200), {{"uuid", "GPU-2"}})},
      other{with(final_of(1, block(0), 60), {{"driver", "590"}}), final_of(2, block(0), 50),
            final_of(3, block(0), 50.1)};
  NoisePool pool;
  EXPECT_EQ(pool.noise().scale, 1);
  for (const std::vector<Measurement>* problem : {&one, &other}) pool.add(populations_of(*problem));
  const std::vector repeats{to_runs(std::vector{&one[0], &one[1]}),
                            to_runs(std::vector{&other[1], &other[2]})};
  EXPECT_EQ(pool.noise().scale, pooled_noise(repeats).scale);
  EXPECT_GT(pool.noise().scale, 1) << "1% of 100 us";
}

TEST(Populations, WinnersAreWhatWasServed) {
  Measurement check = with(final_of(3, block(1), 120), {{"driver", "590"}});
  check.stage = cache::stage_of_checks;
  Measurement later = final_of(4, block(2), 10);
  later.template_digest = "33333333cc";
  const std::vector<Measurement> measurements{final_of(1, block(0), 100), final_of(1, block(1), 90),
                                              with(final_of(2, block(2), 50), {{"nvrtc", "14"}}), check,
                                              later};
  const std::vector<Population> populations = populations_of(measurements);
  ASSERT_EQ(populations.size(), 4U);
  EXPECT_EQ(populations[0].winner, block(1));
  EXPECT_EQ(populations[2].winner, block(1)) << "a check decides nothing, and its population has no other";
  EXPECT_EQ(populations[3].winner, block(2));
}

TEST(Populations, ReferencesAreOfOneKernel) {
  const Measurement one = with(final_of(1, block(0), 100),
                               {{"reference", "read"}, {"reference_us", "27.5"}, {"launch_us", "2.5"}});
  const Measurement other = with(one, {{"reference", "copy"}});
  EXPECT_EQ(to_runs(std::vector{&one, &one})[1].reference_us, 27.5);
  EXPECT_EQ(to_runs(std::vector{&one, &one})[1].launch_us, 2.5);
  EXPECT_EQ(to_runs(std::vector{&one, &other})[1].reference_us, 0);
  EXPECT_EQ(to_runs(std::vector{&one, &other})[1].launch_us, 0);
  for (const char* no_time : {"", "-", "fast", "-27.5", "inf", "nan", "1e999"}) {
    const Measurement edited = with(one, {{"reference_us", no_time}});
    EXPECT_EQ(to_runs(std::vector{&one, &edited})[1].reference_us, 0) << no_time;
  }
  const Measurement none = final_of(1, block(0), 100);
  EXPECT_EQ(to_runs(std::vector{&none})[0].reference_us, 0);
  EXPECT_NEAR(to_runs(std::vector{&none})[0].error, 0.001 * 0.929 / std::sqrt(15), 1e-5);
}

/// Of kernels that do not fill the device, what processes have to themselves is more than what runs differ by.
TEST(Populations, ProcessesCountWhereBlocksAreFew) {
  const auto run_of = [](int day, double us, const char* problem, std::int64_t rows, const char* process) {
    Measurement run = with(final_of(day, "block/warps=8,vec=8,load=ca,store=wb", us), {{"process", process}});
    run.key = {
        .problem = problem,
        .device = "NVIDIA H200|cc=90|sm=132|l2=62914560|smem=232448/233472|regs=65536|threads=2048|mig=none"};
    run.rows = rows;
    return run;
  };
  const char* few = "softmax bf16 cols=4096 align=vector rows<=256 l2=cold";
  const char* many = "softmax bf16 cols=4096 align=vector rows<=1024 l2=cold";
  const std::vector<Measurement> one{run_of(1, 5.25, few, 256, "a"), run_of(1, 5.26, few, 256, "a"),
                                     run_of(1, 5.65, few, 256, "b"), run_of(1, 5.66, few, 256, "b")},
      other{run_of(1, 8.4, many, 1024, "a"), run_of(1, 8.4, many, 1024, "b")};
  const std::vector<tuner::Run> runs = to_runs(std::vector{&one[0], &one[2], &one[1], &one[3]});
  ASSERT_EQ(runs.size(), 2U) << "one for each process";
  EXPECT_NEAR(runs[0].median_us, 5.255, 1e-5);
  EXPECT_NEAR(runs[1].median_us, 5.655, 1e-5);
  EXPECT_EQ(runs[0].process_us, usual_process_us);
  const std::vector<tuner::Run> of_many = to_runs(std::vector{&other[0], &other[1], &other[1]});
  ASSERT_EQ(of_many.size(), 3U) << "1024 blocks";
  EXPECT_EQ(of_many[2].process_us, 0);
  EXPECT_TRUE(fills_device(run_of(1, 8.4, many, 4 * 132, "a"))) << "four blocks on each multiprocessor";
  EXPECT_FALSE(fills_device(run_of(1, 8.4, many, 4 * 132 - 1, "a"))) << "of the rows that were timed";

  NoisePool pool;
  for (const std::vector<Measurement>* problem : {&one, &other}) pool.add(populations_of(*problem));
  const std::vector<std::vector<tuner::Run>> repeats{to_runs(std::vector{&other[0], &other[1]})};
  EXPECT_EQ(pool.noise().scale, pooled_noise(repeats).scale) << "of kernels that fill the device";
}

/// Whose clock also runs while the processor does something else.
TEST(Populations, OfAHostDeviceNoRunIsKnownWell) {
  const auto verdict_on = [](const char* device) {
    Measurement before = final_of(1, block(0), 100), after = final_of(2, block(0), 143);
    before.key.device = after.key.device = device;
    return compare(to_runs(std::vector<const Measurement*>{&before}),
                   to_runs(std::vector<const Measurement*>{&after}), Noise{})
        .verdict;
  };
  EXPECT_EQ(verdict_on("host:x86_64 2 cores|cc=0"), Verdict::unsure);
  EXPECT_EQ(verdict_on("NVIDIA H200|cc=90"), Verdict::slower);
}

TEST(Finding, TheSameBinaryAcquitsTheCompiler) {
  const Finding slower = finding_of(
      {final_of(1, block(0), 100), with(final_of(2, block(0), 110), {{"driver", "590"}, {"ce", "0.2.0"}})});
  EXPECT_EQ(slower.winner.verdict, Verdict::slower);
  EXPECT_EQ(slower.before_us, 100);
  EXPECT_EQ(slower.after_us, 110);
  EXPECT_EQ(slower.runs_needed, runs_needed(slower.winner.deviation, 1, Noise{}.degrees));
  EXPECT_THAT(slower.changes,
              ElementsAre(Change{"driver", "580", "590"}, Change{"library", "0.1.0", "0.2.0"}));
  EXPECT_THAT(slower.suspects, ElementsAre("driver"));
  EXPECT_THAT(slower.why, HasSubstr("the same binary"));
  EXPECT_EQ(slower.kernel_config, block(0));
}

TEST(Finding, NotAllSuspectsAreInnocent) {
  const Finding slower =
      finding_of({final_of(1, block(0), 100), with(final_of(2, block(0), 110), {{"nvrtc", "13.1"}})});
  EXPECT_THAT(slower.suspects, ElementsAre("toolkit")) << "though both sides ran the same binary";
  EXPECT_EQ(slower.why, "");
}

TEST(Finding, BinariesThatAreNotKnownAreNotTheSame) {
  Measurement before = final_of(1, block(0), 100),
              after = with(final_of(2, block(0), 110), {{"driver", "590"}, {"nvrtc", "13.1"}});
  before.compile_key = after.compile_key = "";
  EXPECT_THAT(finding_of({before, after}).suspects, ElementsAre("driver", "toolkit"));
}

TEST(Finding, RunsAreNeededBesideThoseBefore) {
  const std::map<std::string, std::string> driver{{"driver", "590"}};
  const Finding finding =
      finding_of({final_of(1, block(0), 14), with(final_of(2, block(0), 14.1), driver),
                  with(final_of(3, block(0), 14.2), driver), with(final_of(4, block(0), 14.1), driver)});
  EXPECT_EQ(finding.winner.before, 1);
  EXPECT_EQ(finding.winner.after, 3);
  EXPECT_EQ(finding.runs_needed, runs_needed(finding.winner.deviation, 1, Noise{}.degrees));
  EXPECT_NE(finding.runs_needed, runs_needed(finding.winner.deviation, 3, Noise{}.degrees));
}

TEST(Finding, ReferencesOfAnotherKernelShowNoDrift) {
  const Finding slower = finding_of(
      {with(final_of(1, block(0), 100), {{"reference", "read"}, {"reference_us", "27"}}),
       with(final_of(2, block(0), 110), {{"reference", "copy"}, {"reference_us", "40"}, {"driver", "590"}})});
  EXPECT_EQ(slower.winner.drift, std::nullopt);
  EXPECT_EQ(slower.winner.verdict, Verdict::slower);
}

TEST(Finding, ATemplateThatIsTheSameIsNotSuspect) {
  Measurement other_before = final_of(1, "warp/warps=1", 300), other_after = final_of(2, "warp/warps=1", 300);
  other_after.template_digest = "22222222bb";
  const Finding slower = finding_of({final_of(1, block(0), 100), other_before,
                                     compiled_anew(with(final_of(2, block(0), 110), {{"nvrtc", "13.1"}})),
                                     with(other_after, {{"nvrtc", "13.1"}})});
  EXPECT_THAT(slower.changes, ElementsAre(Change{"toolkit", "13.0", "13.1"},
                                          Change{"templates", "warp 11111111", "warp 22222222"}));
  EXPECT_THAT(slower.suspects, ElementsAre("toolkit"));
  // Another winner may be one because of templates that it does not have.
  const Finding other_winner = finding_of({final_of(1, block(0), 100), other_before,
                                           with(final_of(2, block(1), 110), {{"nvrtc", "13.1"}}),
                                           with(other_after, {{"nvrtc", "13.1"}})});
  EXPECT_EQ(other_winner.config_after, block(1));
  EXPECT_THAT(other_winner.suspects, ElementsAre("toolkit", "templates"));
}

TEST(Finding, OthersShowWhatDoesNoHarm) {
  const std::map<std::string, std::string> driver{{"driver", "590"}},
      both{{"driver", "590"}, {"nvrtc", "13.1"}};
  std::vector<Finding> findings{
      finding_of({final_of(1, block(0), 100), compiled_anew(with(final_of(2, block(0), 110), both))}),
      finding_of({final_of(1, block(0), 50), with(final_of(2, block(0), 50), driver)})};
  EXPECT_THAT(findings[0].suspects, ElementsAre("driver", "toolkit"));
  EXPECT_THAT(findings[1].suspects, IsEmpty()) << "nothing happened";
  narrow_suspects(std::vector{&findings[0], &findings[1]});
  EXPECT_THAT(findings[0].suspects, ElementsAre("toolkit"));
  EXPECT_THAT(findings[0].why,
              HasSubstr("driver was the only change of 1 other problem, without a slowdown"));

  // What is unsure says nothing, either way.
  findings[0].suspects = {"driver", "toolkit"};
  findings.push_back(finding_of({final_of(1, block(0), 5), with(final_of(2, block(0), 5.1), driver)}));
  EXPECT_EQ(findings[2].winner.verdict, Verdict::unsure);
  narrow_suspects(std::vector{&findings[0], &findings[1], &findings[2]});
  EXPECT_THAT(findings[0].suspects, ElementsAre("toolkit"));

  // Nor does what changed together with something else.
  findings[0].suspects = {"driver", "toolkit"};
  findings[1] = finding_of({final_of(1, block(0), 50), compiled_anew(with(final_of(2, block(0), 50), both))});
  EXPECT_EQ(findings[1].winner.verdict, Verdict::same);
  narrow_suspects(std::vector{&findings[0], &findings[1]});
  EXPECT_THAT(findings[0].suspects, ElementsAre("driver", "toolkit"));

  findings[1] = finding_of({final_of(1, block(0), 50), with(final_of(2, block(0), 60), driver)});
  findings[0].suspects = {"driver", "toolkit"};
  narrow_suspects(std::vector{&findings[0], &findings[1]});
  EXPECT_THAT(findings[0].suspects, ElementsAre("driver", "toolkit"));

  // What did harm to one is not harmless because another one bore it, whichever comes first.
  findings[2] = finding_of({final_of(1, block(0), 50), with(final_of(2, block(0), 50), driver)});
  for (const auto& order : {std::array{1, 2}, std::array{2, 1}}) {
    findings[0].suspects = {"driver", "toolkit"};
    narrow_suspects(std::vector{&findings[0], &findings[order[0]], &findings[order[1]]});
    EXPECT_THAT(findings[0].suspects, ElementsAre("driver", "toolkit"));
  }
}

TEST(Finding, TheMachineIsSuspectWhereTheReferenceMovedWithTheWinner) {
  const auto moved = [](double winner_us, double reference_us) {
    const auto reference = [](double us) {
      return std::map<std::string, std::string>{{"reference", "read"}, {"reference_us", std::to_string(us)}};
    };
    std::map<std::string, std::string> now = reference(reference_us);
    now["driver"] = "590";
    return finding_of(
        {with(final_of(1, block(0), 100), reference(50)), with(final_of(2, block(0), 100.1), reference(50)),
         with(final_of(3, block(0), winner_us), now), with(final_of(4, block(0), winner_us), now)});
  };
  const auto asked = [](Finding finding) {
    suspect_machine(std::vector{&finding});
    return finding;
  };
  const Finding both = asked(moved(104, 52));
  EXPECT_EQ(both.winner.verdict, Verdict::slower);
  EXPECT_THAT(both.suspects, ElementsAre("machine", "driver"));
  EXPECT_EQ(both.why, "the time of the reference kernel also changed by +4.0%");
  EXPECT_THAT(asked(moved(104, 50.1)).suspects, ElementsAre("driver")) << "it did not move";
  EXPECT_THAT(asked(moved(104, 48)).suspects, ElementsAre("driver")) << "it became faster";
  EXPECT_THAT(asked(moved(112, 52)).suspects, ElementsAre("driver")) << "by far less";
  EXPECT_THAT(asked(moved(96, 48)).suspects, ElementsAre("machine", "driver"));
  EXPECT_THAT(asked(moved(100, 52)).suspects, IsEmpty()) << "the winner is the same";

  // Many references together know better than the one beside the winner.
  std::vector<Finding> many(40, moved(103, 51.5));
  many.push_back(moved(103, 50));
  std::vector<Finding*> all;
  for (Finding& finding : many) all.push_back(&finding);
  suspect_machine(all);
  EXPECT_THAT(many.back().suspects, ElementsAre("machine", "driver"));
  EXPECT_EQ(many.back().why,
            "the time of the reference kernel also changed by +3.0% in the median of 41 problems");

  // One that is off by itself says nothing of the machine.
  const Finding still = moved(100, 50), off = moved(100, 52);
  std::vector<const Finding*> few(20, &still);
  few.push_back(&off);
  EXPECT_FALSE(machine_move(few).is_sure);
  EXPECT_FALSE(machine_move(std::vector{&off}).is_sure);
  EXPECT_EQ(machine_move({}).problems, 0);
}

TEST(Finding, TellsTheKernelFromTheChoice) {
  // The old winner is as fast as ever, but another config is served.
  const std::map<std::string, std::string> driver{{"driver", "590"}};
  const Finding choice = finding_of(
      {final_of(1, block(0), 100), final_of(1, block(1), 120), with(final_of(3, block(0), 100), driver),
       with(final_of(4, block(0), 115), driver), with(final_of(4, block(1), 111), driver)});
  EXPECT_EQ(choice.config_before, block(0));
  EXPECT_EQ(choice.config_after, block(1));
  EXPECT_EQ(choice.winner.verdict, Verdict::slower);
  EXPECT_EQ(choice.kernel_config, block(0));
  ASSERT_TRUE(choice.kernel);
  EXPECT_EQ(choice.kernel->after, 2);
  EXPECT_THAT(choice.suspects, ElementsAre("driver"));
}

TEST(Finding, TheKernelMayBeTheOneThatIsServedNow) {
  const std::map<std::string, std::string> driver{{"driver", "590"}};
  const Finding choice = finding_of(
      {final_of(1, block(0), 100), final_of(1, block(1), 120), with(final_of(2, block(1), 115), driver)});
  EXPECT_EQ(choice.kernel_config, choice.config_after);
  ASSERT_TRUE(choice.kernel);
  EXPECT_NEAR(choice.kernel->ratio, 115. / 120, 1e-3);
}

TEST(Finding, AnotherGpuIsAChange) {
  const Finding finding = finding_of(
      {final_of(1, block(0), 100), with(final_of(2, block(0), 110), {{"driver", "590"}, {"uuid", "GPU-2"}})});
  EXPECT_THAT(finding.changes, ElementsAre(Change{"driver", "580", "590"}, Change{"gpu", "GPU-1", "GPU-2"}));
  EXPECT_THAT(finding.suspects, ElementsAre("driver", "gpu"));
}

}  // namespace
}  // namespace ce::tuner
