#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/process.hpp"
#include "tests/seed.hpp"
#include "tuner/verify/elements.hpp"
#include "tuner/verify/reference.hpp"

namespace ce::cli {
namespace {

using test::Finished;
using Values = std::vector<double>;

class Run : public test::CommandTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder() / name).string(); }

  /// Writes the file and rounds the values to what it holds. \returns "name=path"
  std::string file(const std::string& name, DType dtype, Values& values) const {
    std::string bytes(values.size() * static_cast<std::size_t>(size_of(dtype)), '\0');
    generator::write_elements(dtype, reinterpret_cast<std::byte*>(bytes.data()), 0, 1, values);
    test::write_file(path(name), bytes);
    return name + "=" + path(name);
  }
  [[nodiscard]] std::string to(const std::string& name) const { return name + "=" + path(name); }
  [[nodiscard]] Values read(const std::string& name, DType dtype, std::size_t count) const {
    const std::string bytes = test::read_file(path(name));
    EXPECT_EQ(bytes.size(), count * static_cast<std::size_t>(size_of(dtype))) << name;
    Values values(bytes.size() / static_cast<std::size_t>(size_of(dtype)));
    generator::read_elements(dtype, reinterpret_cast<const std::byte*>(bytes.data()), 0, 1, values);
    return values;
  }

  Values normal(std::size_t count, double deviation) {
    Values values(count);
    std::normal_distribution<double> distribution(0, deviation);
    for (double& value : values) value = distribution(random_);
    return values;
  }

  [[nodiscard]] Finished run(std::vector<std::string> words) const {
    words.insert(words.begin(), {"run", "--device", "host", "--rows", "5", "--cols", "40"});
    return ce_tune(words);
  }

  /// Writes "logits" and "target". \returns words for a shell that call cross entropy of them, but for the tensors
  /// other than the target
  [[nodiscard]] std::string cross_entropy() {
    Values values = normal(rows * columns, 1), target{0, 7, 39, 12, 3};
    static_cast<void>(file("logits", DType::f32, values));
    return fmt::format("{} run --device host --rows {} --cols {} --op cross_entropy --dtype f32 {}", CE_TUNE,
                       rows, columns, file("target", DType::i64, target));
  }
  [[nodiscard]] Finished shell(const std::string& command) const {
    return test::Child(folder(), {"-c", command}, surroundings(), "", "/bin/sh").wait();
  }

  static constexpr std::size_t rows = 5, columns = 40;
  std::mt19937_64 random_{ce::test::test_seed()};
};

void expect_near(const Values& got, const Values& want, double relative, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i]), absolute + relative * std::abs(want[i]))
        << "element " << i << ": " << got[i] << ", wanted " << want[i];
}

TEST_F(Run, ComputesWhatTheFileHolds) {
  Values x = normal(rows * columns, 3), y(x.size());
  const Finished finished =
      run({"--op", "softmax", "--dtype", "f32", file("input", DType::f32, x), to("output"), "--json"});
  ASSERT_EQ(finished.status, 0) << finished.err;
  for (std::size_t at = 0; at < x.size(); at += columns)
    generator::softmax_row(std::span(x).subspan(at, columns), std::span(y).subspan(at, columns));
  expect_near(read("output", DType::f32, y.size()), y, 1e-5, 0);
  const auto document = nlohmann::json::parse(finished.out);
  EXPECT_EQ(document.at("problem").at("title"), "softmax f32 5 x 40");
  EXPECT_EQ(document.at("device").at("device"), "host");
  EXPECT_EQ(document.at("tensors")[1].at("file"), path("output"));
}

TEST_F(Run, TakesTheConfigThatIsNamed) {
  Values dy = normal(rows * columns, 1), y = normal(rows * columns, 1), dx(dy.size());
  for (double& value : y) value -= 4;  // logarithms of probabilities
  const std::string config = "block/warps=1,vec=2,load=ca,store=wb";
  const Finished finished =
      run({"--op", "log_softmax_backward", "--dtype", "f16", "--in-place", "--config", config,
           file("output", DType::f16, y), file("output_grad", DType::f16, dy), to("input_grad")});
  ASSERT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.out.find(config + ", of --config"), std::string::npos) << finished.out;
  for (std::size_t at = 0; at < dy.size(); at += columns)
    generator::log_softmax_backward_row(std::span(dy).subspan(at, columns), std::span(y).subspan(at, columns),
                                        std::span(dx).subspan(at, columns));
  expect_near(read("input_grad", DType::f16, dx.size()), dx, 1e-3, 1e-5);
}

TEST_F(Run, CrossEntropyWithEveryOptionAndItsGradientFromTheLogsumexp) {
  Values logits = normal(rows * columns, 3), target{0, 7, 39, 12, 3}, weight = normal(columns, 0.1),
         upstream = normal(rows, 1);
  for (double& value : weight) value = std::abs(value) + 0.5;
  const std::vector<std::string> options{"--dtype", "bf16",      "--reduction",    "none",      "--target",
                                         "i32",     "--weights", "--upstream",     "rows",      "--smoothing",
                                         "0.125",   "--z-loss",  "0.25",           "--softcap", "8",
                                         "--scale", "0.5",       "--ignore-index", "7"};
  const std::vector<std::string> files{file("logits", DType::bf16, logits),
                                       file("target", DType::i32, target), file("weight", DType::f32, weight),
                                       file("upstream", DType::f32, upstream), to("grad")};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), options.begin(), options.end());
    words.insert(words.end(), files.begin(), files.end());
    return run(words);
  };
  const Finished finished = with({"--op", "cross_entropy", "--z-loss-out", "--lse", "--argmax", "--hit",
                                  to("loss"), to("z_loss_out"), to("lse"), to("argmax"), to("hit")});
  ASSERT_EQ(finished.status, 0) << finished.err;

  const std::vector<std::int64_t> targets(target.begin(), target.end());
  generator::CrossEntropyAmounts<double> amounts;
  amounts[&generator::CrossEntropyFlags::smoothing] = 0.125;
  amounts[&generator::CrossEntropyFlags::z_loss] = 0.25;
  amounts[&generator::CrossEntropyFlags::softcap] = 8;
  amounts[&generator::CrossEntropyFlags::scale] = 0.5;
  const auto expected = generator::cross_entropy({.columns = columns,
                                                  .logits = logits,
                                                  .targets = targets,
                                                  .weights = weight,
                                                  .upstream = upstream,
                                                  .ignore_index = 7,
                                                  .amounts = amounts});
  const Values gradient = read("grad", DType::bf16, logits.size());
  expect_near(gradient, expected.gradient, 0.01, 1e-4);
  expect_near(read("loss", DType::f32, rows), expected.losses, 1e-4, 0);
  expect_near(read("z_loss_out", DType::f32, rows), expected.z_losses, 1e-4, 0);
  expect_near(read("lse", DType::f32, rows), expected[&generator::CrossEntropyFlags::lse_out], 1e-4, 0);
  expect_near(read("argmax", DType::i64, rows), expected[&generator::CrossEntropyFlags::argmax_out], 0, 0);
  expect_near(read("hit", DType::u8, rows), expected[&generator::CrossEntropyFlags::hit_out], 0, 0);
  EXPECT_EQ(read("loss", DType::f32, rows)[1], 0) << "the row that is ignored";

  const Finished backward = with({"--op", "cross_entropy_backward", to("lse")});
  ASSERT_EQ(backward.status, 0) << backward.err;
  expect_near(read("grad", DType::bf16, logits.size()), gradient, 0.01, 1e-4);
}

TEST_F(Run, APolicySaysWhatRunsWhereNothingIsKnownAndWhereAWinnerIs) {
  Values x = normal(rows * columns, 3);
  const std::vector<std::string> problem{"--op", "softmax", "--dtype", "f32", "--db", database()};
  const auto by_policy = [&](const std::string& policy) {
    std::vector<std::string> words = problem;
    words.insert(words.end(), {"--policy", policy, file("input", DType::f32, x), to("output")});
    return run(words);
  };
  const auto expect_origin = [&](const std::string& policy, const std::string& origin) {
    const Finished finished = by_policy(policy);
    EXPECT_EQ(finished.status, 0) << policy << ": " << finished.err;
    EXPECT_NE(finished.out.find(", " + origin + ": "), std::string::npos) << policy << ": " << finished.out;
  };
  const Finished frozen = by_policy("frozen");
  EXPECT_EQ(frozen.status, 8) << frozen.out;
  EXPECT_NE(frozen.err.find("no winner for softmax f32 5 x 40 (key "), std::string::npos) << frozen.err;
  EXPECT_NE(frozen.err.find("ce-tune sweep --op softmax --dtype f32 --rows 5 --cols 40\n"), std::string::npos)
      << frozen.err;
  EXPECT_FALSE(std::filesystem::exists(path("output")));
  expect_origin("lookup", "fallback");
  EXPECT_TRUE(std::filesystem::exists(path("output")));

  std::vector<std::string> sweep{"sweep",  "--device", "host",      "--rows", "5",
                                 "--cols", "40",       "--configs", "1"};
  sweep.insert(sweep.end(), problem.begin(), problem.end());
  const Finished tuned = ce_tune(sweep);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  for (const char* policy : {"tune", "lookup", "frozen", "background"}) expect_origin(policy, "database");

  EXPECT_EQ(by_policy("hope").status, 2);
  std::vector<std::string> both = problem;
  both.insert(both.end(), {"--policy", "tune", "--config", "block/warps=1,vec=2,load=ca,store=wb",
                           file("input", DType::f32, x), to("output")});
  EXPECT_EQ(run(both).status, 2);
}

TEST_F(Run, APolicyNeedsNoPlaceForADatabase) {
  Values x = normal(rows * columns, 3);
  const Finished finished = ce_tune({"run", "--op", "softmax", "--dtype", "f32", "--rows", "5", "--cols",
                                     "40", "--policy", "lookup", file("input", DType::f32, x), to("output")},
                                    {{"HOME", ""}, {"XDG_DATA_HOME", ""}});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_NE(finished.err.find("there is no path for the tuning database"), std::string::npos) << finished.err;
}

TEST_F(Run, WritesAPipeBesideAFile) {
  const std::string call = cross_entropy() + " " + to("logits");
  ASSERT_EQ(shell(fmt::format("{} {} {}", call, to("loss"), to("grad"))).status, 0);
  const Finished piped = shell(fmt::format("({} loss=/dev/stdout grad={} || echo failed >&2) | cat > {}",
                                           call, path("other_grad"), path("other_loss")));
  EXPECT_EQ(piped.err.find("failed"), std::string::npos) << piped.err;
  EXPECT_EQ(read("other_loss", DType::f32, 1), read("loss", DType::f32, 1));
  EXPECT_EQ(read("other_grad", DType::f32, rows * columns), read("grad", DType::f32, rows * columns));
}

TEST_F(Run, ReadsAPipeOfTheRightSize) {
  const std::string call = cross_entropy();
  ASSERT_EQ(shell(fmt::format("{} {} {}", call, to("logits"), to("grad"))).status, 0);
  const auto piped = [&](const std::string& files) {
    return shell(fmt::format("cat {} | {} logits=/dev/stdin grad={}", files, call, path("other_grad")));
  };
  for (const auto& [wrong, bytes] :
       {std::pair{path("target"), "40 bytes"}, {path("logits") + " " + path("target"), "840 bytes"}}) {
    const Finished refused = piped(wrong);
    EXPECT_EQ(refused.status, 2) << refused.out;
    EXPECT_NE(refused.err.find(fmt::format("logits is \"/dev/stdin\", {}; expected 800 bytes", bytes)),
              std::string::npos)
        << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(path("other_grad")));
  const Finished right = piped(path("logits"));
  EXPECT_EQ(right.status, 0) << right.err;
  EXPECT_EQ(read("other_grad", DType::f32, rows * columns), read("grad", DType::f32, rows * columns));
}

TEST_F(Run, FindsWhatASweepWithTheSameOptionsTuned) {
  const std::vector<std::pair<std::vector<std::string>, std::size_t>> cases{
      {{"--op", "cross_entropy_backward", "--reduction", "sum"}, 5},
      {{"--op", "cross_entropy_backward", "--upstream", "rows"}, 1},
      {{"--op", "cross_entropy", "--upstream", "rows"}, 1}};
  for (const auto& [options, its_rows] : cases) {
    SCOPED_TRACE(fmt::format("{} {}", options[1], options[2]));
    Values logits = normal(its_rows * columns, 1), targets(its_rows, 7), lse(its_rows, 4),
           upstream(its_rows, 1);
    std::vector<std::string> problem{"--device", "host", "--rows", fmt::to_string(its_rows),
                                     "--cols",   "40",   "--db",   database(),
                                     "--dtype",  "f32"};
    problem.insert(problem.end(), options.begin(), options.end());
    std::vector<std::string> sweep = problem, run = problem;
    sweep.insert(sweep.begin(), {"sweep", "--configs", "1"});
    run.insert(run.begin(), {"run", "--policy", "frozen", file("logits", DType::f32, logits),
                             file("target", DType::i64, targets), to("grad")});
    if (options[1] == "cross_entropy_backward") run.push_back(file("lse", DType::f32, lse));
    if (options[2] == "--upstream") run.push_back(file("upstream", DType::f32, upstream));
    const Finished tuned = ce_tune(sweep);
    ASSERT_EQ(tuned.status, 0) << tuned.err;
    const Finished found = ce_tune(run);
    EXPECT_EQ(found.status, 0) << found.err;
    EXPECT_NE(found.out.find(", database: "), std::string::npos) << found.out;
  }
}

TEST_F(Run, WithAmountsThatChangeNothingIsThePlainProblem) {
  Values logits = normal(rows * columns, 1), target{0, 7, 39, 12, 3};
  const std::vector<std::string> problem{"--op", "cross_entropy", "--dtype", "f32", "--db", database()};
  std::vector<std::string> sweep{"sweep",  "--device", "host",      "--rows", "5",
                                 "--cols", "40",       "--configs", "1"};
  sweep.insert(sweep.end(), problem.begin(), problem.end());
  const Finished tuned = ce_tune(sweep);
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  for (const auto& [option, amount] :
       {std::pair{"--smoothing", "0"}, {"--z-loss", "0"}, {"--softcap", "-0"}, {"--scale", "1"}}) {
    std::vector<std::string> words = problem;
    words.insert(words.end(), {option, amount, "--json", file("logits", DType::f32, logits),
                               file("target", DType::i64, target), to("loss")});
    const Finished finished = run(words);
    ASSERT_EQ(finished.status, 0) << finished.err;
    const auto document = nlohmann::json::parse(finished.out);
    EXPECT_EQ(document.at("problem").at("title"), "cross_entropy f32 5 x 40 loss+grad mean in place");
    EXPECT_TRUE(document.at("origin").get<std::string>().starts_with("the known winner on"))
        << document.at("origin");
  }
}

TEST_F(Run, WritesNothingWhenATargetIsOutOfRange) {
  Values logits = normal(rows * columns, 1), target{0, 40, 1, -3, 2};
  const Finished finished =
      run({"--op", "cross_entropy", "--dtype", "f32", "--loss-only", file("logits", DType::f32, logits),
           file("target", DType::i64, target), to("loss")});
  EXPECT_EQ(finished.status, 10) << finished.out;
  EXPECT_NE(finished.err.find("row 1"), std::string::npos) << finished.err;
  EXPECT_FALSE(std::filesystem::exists(path("loss")));
}

TEST_F(Run, ErrorsNameTensorFileAndWhatWasExpected) {
  Values x = normal(rows * columns, 1), few(3), target(rows);
  const std::string input = file("input", DType::f32, x), logits = file("logits", DType::f32, x);
  const auto expect = [&](const std::vector<std::string>& words, int status, const std::string& message,
                          const std::string& operation = "softmax") {
    std::vector<std::string> all{"--op", operation, "--dtype", "f32"};
    all.insert(all.end(), words.begin(), words.end());
    const Finished finished = run(all);
    EXPECT_EQ(finished.status, status) << finished.out;
    EXPECT_NE(finished.err.find(message), std::string::npos) << finished.err << "lacks " << message;
  };
  expect({}, 2, "TENSORS is required");
  expect({input}, 2, "without an output");
  expect({to("output")}, 2, "input is missing; expected input=FILE");
  expect({input, "output"}, 2, "\"output\"; expected a tensor of the problem and a file");
  expect({input, "output="}, 2, "its tensors are input, output");
  expect({input, to("grad")}, 2, "its tensors are input, output");
  expect({input, to("output"), to("output")}, 2, "one file for output");
  expect({input, "output=-"}, 2, "output is \"-\"; expected a file; /dev/stdin and /dev/stdout are streams");
  expect({"input=-", to("output")}, 2, "input is \"-\"; expected a file");
  expect({"input=" + path("absent"), to("output")}, 8, "there is no file " + path("absent") + " for input");
  expect({"input=" + folder().string(), to("output")}, 2, "input is \"" + folder().string() + "\"");
  file("few", DType::f32, few);
  expect({"input=" + path("few"), to("output")}, 2, "12 bytes; expected 800 bytes: 5 x 40 elements of f32");
  expect({input, "output=" + path("no/such/folder")}, 2,
         "output is \"" + path("no/such/folder") + "\"; expected a file that can be written");
  expect({input, "output=" + path("input")}, 2, "expected a different file from that of input");
  expect({input, to("output"), "--config", "block"}, 2, "config is");
  expect({input, to("output"), "--config", "block/warps=1,vec=8,load=ca,store=wb"}, 2,
         "--config is block/warps=1,vec=8,load=ca,store=wb; expected a config for softmax f32 5 x 40");
  expect({input, to("output"), "--dtype", "f16"}, 2, "2 problems; expected one problem");
  expect({input, to("output"), "--db", path("absent.db")}, 8, "absent.db");
  expect({input, to("output"), "--smoothing", "0.1"}, 2, "--smoothing");
  expect({input, to("output"), "--ignore-index", "5"}, 2, "--ignore-index is \"5\"; expected only with");
  expect({logits, "target=" + path("logits"), to("loss"), "--probabilities", "--ignore-index", "5"}, 2,
         "--ignore-index is \"5\"; expected only with class indices", "cross_entropy");
  for (const char* operation : {"copy", "cross_entropy_shard", "softmin"})
    expect({input, to("output")}, 2,
           fmt::format("--op is \"{}\"; expected one of softmax, log_softmax, softmax_backward, "
                       "log_softmax_backward, cross_entropy, cross_entropy_backward\n",
                       operation),
           operation);
  const std::vector<std::string> loss{logits, file("target", DType::i64, target), to("loss")};
  const auto loss_with = [&](const std::string& option, const std::string& value) {
    std::vector<std::string> words = loss;
    words.insert(words.end(), {option, value});
    return words;
  };
  expect(loss_with("--smoothing", "1.5"), 2, "--smoothing is \"1.5\"; expected 0 to 1", "cross_entropy");
  expect(loss_with("--softcap", "-1"), 2, "--softcap is \"-1\"; expected", "cross_entropy");
  expect(loss_with("--z-loss", "-1"), 2, "--z-loss is \"-1\"; expected", "cross_entropy");
  expect(loss_with("--scale", "0"), 2, "--scale is \"0\"; expected", "cross_entropy");
  std::vector<std::string> no_z_loss = loss_with("--z-loss", "0");
  no_z_loss.emplace_back("--z-loss-out");
  expect(no_z_loss, 2, "--z-loss is \"0\"; expected more than 0 with --z-loss-out", "cross_entropy");
  expect(loss_with("--scale", "much"), 2, "--scale is \"much\"; expected a number", "cross_entropy");
  expect(loss_with("--z-loss", "1e50"), 2, "--z-loss is \"1e50\"; expected a number", "cross_entropy");
  expect(loss_with("--ignore-index", "99999999999999999999"), 2, "--ignore-index is", "cross_entropy");
  // A tensor of another problem names the flag that adds it.
  const auto beside_loss = [&](const std::string& word) {
    std::vector<std::string> words = loss;
    words.push_back(word);
    return words;
  };
  expect(beside_loss(to("logprob")), 2,
         "its tensors are logits, target, loss, grad, and logprob with --logprob\n", "cross_entropy");
  expect(beside_loss(to("row_scale")), 2, "loss, grad, and row_scale with --row-scales\n", "cross_entropy");
  expect(beside_loss(to("input")), 2, "its tensors are logits, target, loss, grad\n", "cross_entropy");
  const std::vector<std::string> backward{logits, file("target", DType::i64, target),
                                          file("lse", DType::f32, target), to("grad")};
  std::vector<std::string> scaled = backward, with_logprob = backward;
  scaled.insert(scaled.end(), {"--token-scaling", "1"});
  expect(scaled, 2, "--saved-logprob is missing; expected with --token-scaling of cross_entropy_backward\n",
         "cross_entropy_backward");
  with_logprob.push_back(to("logprob"));
  expect(with_logprob, 2, "its tensors are logits, target, lse, grad, and logprob with --saved-logprob\n",
         "cross_entropy_backward");
  std::vector<std::string> one_file = loss;
  one_file.push_back("grad=" + (folder() / "." / "loss").string());
  expect(one_file, 2, "expected a different file from that of", "cross_entropy");
  EXPECT_FALSE(std::filesystem::exists(path("loss")));
  EXPECT_FALSE(std::filesystem::exists(path("output")));
}

}  // namespace
}  // namespace ce::cli
