// sweep --isolate: configs that kill the process that launches them, or never end.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

using nlohmann::json;
using test::Finished;

class Isolate : public test::CommandTest {
 protected:
  /// The host compiler, but for kernels of two warps, which kill whoever loads them, and of four, which hang.
  std::string faulty_compiler() const {
    test::write_file(folder() / "kill.hpp",
                     "#include <csignal>\n[[gnu::constructor]] static void f() { std::raise(SIGKILL); }\n");
    test::write_file(folder() / "hang.hpp",
                     "#include <unistd.h>\n[[gnu::constructor]] static void f() { for (;;) ::pause(); }\n");
    const std::filesystem::path script = folder() / "compiler";
    test::write_file(script,
                     "#!/bin/sh\n"
                     "for source; do :; done\n"
                     "has() { [ -f \"$source\" ] && grep -q \"int warps = $1;\" \"$source\"; }\n"
                     "if has 2; then set -- \"$@\" -include " +
                         (folder() / "kill.hpp").string() +
                         "; fi\n"
                         "if has 4; then set -- \"$@\" -include " +
                         (folder() / "hang.hpp").string() +
                         "; fi\n"
                         "exec c++ \"$@\"\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    return script.string();
  }

  Finished sweep(std::vector<std::string> more) const {
    more.insert(more.begin(), {"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "1000",
                               "--device", "host", "--db", database(), "--configs", "8", "--samples", "2"});
    return ce_tune(more, {{"CE_HOST_COMPILER", faulty_compiler()}});
  }
};

TEST_F(Isolate, ConfigsThatKillTheirProcessOrHangAreRejectedAndTheRestIsTuned) {
  const Finished isolated = sweep({"--isolate=3s", "--json"});
  ASSERT_EQ(isolated.status, 0) << isolated.err;
  const json problem = json::parse(isolated.out).at("problems").at(0);
  EXPECT_EQ(problem.at("tried"), 8);
  int killed = 0, hung = 0;
  for (const auto& [reason, count] : problem.at("rejected").items()) {
    if (reason.find("ended by signal 9") != std::string::npos) killed += count.get<int>();
    if (reason == "did not end within 3 s") hung += count.get<int>();
  }
  EXPECT_GT(killed, 0) << problem.dump(2);
  EXPECT_GT(hung, 0) << problem.dump(2);
  const std::string winner = problem.at("winner");
  EXPECT_EQ(winner.find("warps=2,"), std::string::npos) << winner;
  EXPECT_EQ(winner.find("warps=4,"), std::string::npos) << winner;

  // What is known is not tried again, in this process or another.
  const Finished again = sweep({"--isolate", "--json"});
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(json::parse(again.out).at("problems").at(0).at("winner"), winner);
  EXPECT_EQ(json::parse(again.out).at("problems").at(0).at("known"), 8);
}

TEST_F(Isolate, TheLimitIsATime) {
  const Finished finished = sweep({"--isolate=soon"});
  EXPECT_EQ(finished.status, 2);
  EXPECT_NE(finished.err.find("--isolate is \"soon\"; expected a time"), std::string::npos) << finished.err;
}

}  // namespace
}  // namespace ce::cli
