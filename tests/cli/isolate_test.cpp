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
  /// The host compiler, but for the first kernel, which kills whoever loads it, and the second, which hangs.
  std::string faulty_compiler() const {
    test::write_file(folder() / "kill.hpp",
                     "#include <csignal>\n[[gnu::constructor]] static void f() { std::raise(SIGKILL); }\n");
    test::write_file(folder() / "hang.hpp",
                     "#include <unistd.h>\n[[gnu::constructor]] static void f() { for (;;) ::pause(); }\n");
    const std::filesystem::path script = folder() / "compiler";
    test::write_file(script,
                     "#!/bin/sh\n"
                     "for source; do :; done\n"
                     "if [ -f \"$source\" ] && grep -q 'int warps = ' \"$source\"; then\n"
                     "  sum=$(cksum < \"$source\")\n"
                     "  for fault in kill hang; do\n"
                     "    header=" +
                         folder().string() +
                         "/$fault.hpp\n"
                         "    mkdir \"$header.of\" 2> /dev/null && echo \"$sum\" > \"$header.of/sum\"\n"
                         "    if [ \"$(cat \"$header.of/sum\")\" = \"$sum\" ]; then\n"
                         "      set -- \"$@\" -include \"$header\"\n"
                         "      break\n"
                         "    fi\n"
                         "  done\n"
                         "fi\n"
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
  EXPECT_EQ(killed, 1) << problem.dump(2);
  EXPECT_EQ(hung, 1) << problem.dump(2);
  const std::string winner = problem.at("winner");

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
