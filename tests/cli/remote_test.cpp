// A shared cache without a server: hooks that are asked before a search and told after it, whatever they do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cache/cache.hpp"
#include "tests/cli/process.hpp"

namespace ce::cli {
namespace {

namespace fs = std::filesystem;
using test::Environment;
using test::Finished;
using test::read_file;
using testing::HasSubstr;

class Remote : public test::CommandTest {
 protected:
  [[nodiscard]] std::string path(const std::string& name) const { return (folder() / name).string(); }
  [[nodiscard]] static std::string example(const std::string& name) {
    return std::string(CE_SOURCE_DIR) + "/examples/remote/" + name;
  }
  [[nodiscard]] Environment in_folder() const {
    return {{"CE_REMOTE_GET", example("directory") + " get '" + path("shared cache") + "'"},
            {"CE_REMOTE_PUT", example("directory") + " put '" + path("shared cache") + "'"}};
  }
  /// Of one problem, on the host device. \returns the document
  [[nodiscard]] nlohmann::json sweep(const std::string& name, const Environment& environment,
                                     std::string* said = nullptr) const {
    const Finished finished =
        ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "64", "--device",
                 "host", "--configs", "2", "--json", "--db", path(name)},
                environment);
    EXPECT_EQ(finished.status, 0) << finished.err;
    if (said != nullptr) *said = finished.err;
    return nlohmann::json::parse(finished.out)["problems"][0];
  }
  /// Of another machine, which has tuned and told. \returns its document
  [[nodiscard]] std::string told() const {
    static_cast<void>(sweep("first.db", in_folder()));
    for (const auto& entry : fs::directory_iterator(path("shared cache"))) return entry.path().string();
    ADD_FAILURE() << "nothing was told";
    return "";
  }
};

TEST_F(Remote, WhatOneMachineFoundAnotherDoesNotSearch) {
  const nlohmann::json first = sweep("first.db", in_folder());
  EXPECT_GT(first["measured"], 0);
  const nlohmann::json second = sweep("second.db", in_folder());
  EXPECT_EQ(second["measured"], 0);
  EXPECT_EQ(second["winner"], first["winner"]);
  // The same measurements, so a merge of both has them once.
  ASSERT_EQ(ce_tune({"db", "merge", path("second.db"), "--db", path("first.db")}).status, 0);
  EXPECT_THAT(ce_tune({"db", "merge", path("second.db"), "--db", path("first.db")}).out,
              HasSubstr("0 measurements added"));
}

TEST_F(Remote, AProgramVerifiesWhatItIsGivenBeforeItServes) {
  static_cast<void>(told());
  std::ofstream(path("x.bin"), std::ios::binary) << std::string(std::size_t{8} * 64 * 4, '\0');
  const Finished finished =
      ce_tune({"run", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "64", "--device", "host",
               "--policy", "tune", "--db", database(), "input=" + path("x.bin"), "output=" + path("y.bin")},
              in_folder());
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.out + finished.err, HasSubstr(", database: "));
}

TEST_F(Remote, NoHookIsAReasonToFail) {
  const std::string document = told();
  const std::string text = read_file(document);
  test::write_file(path("other"),
                   text.substr(0, text.find("softmax")) + "log_" + text.substr(text.find("softmax")));
  std::string late = text;
  for (std::size_t at = 0; (at = late.find("\"created_at\":\"20", at)) != std::string::npos; at += 16)
    late.replace(at + 14, 4, "2999");
  test::write_file(path("late"), late);
  test::write_file(path("long"), std::string(2 << 20, 'x'));
  int number = 0;
  for (const auto& [command, because] : std::vector<std::pair<std::string, std::string>>{
           {"echo nonsense #", "not the first line of an export"},
           {"head -c 300 '" + document + "' #", "the document"},
           {"cat '" + path("other") + "' #", "the document"},
           {"cat '" + path("late") + "' #", "the document"},
           {"cat '" + path("long") + "' #", "more than"},
           {"echo broken >&2; exit 7 #", "exit status 7: broken"},
           {"/no/such/program", "exit status 127"},
           {"exit 1 #", ""}}) {
    std::string said;
    const nlohmann::json swept = sweep(std::to_string(++number) + ".db", {{"CE_REMOTE_GET", command}}, &said);
    EXPECT_GT(swept["measured"], 0) << command;
    EXPECT_THAT(said, HasSubstr(because)) << command;
    if (because.empty()) {
      EXPECT_EQ(said.find("CE_REMOTE_GET"), std::string::npos) << said;
    }
  }
  std::string said;
  EXPECT_GT(sweep("put.db", {{"CE_REMOTE_PUT", "exit 3 #"}}, &said)["measured"], 0);
  EXPECT_THAT(said, HasSubstr("CE_REMOTE_PUT: exit status 3"));
}

TEST_F(Remote, OneThatHangsIsCutOffWithWhatItStarted) {
  const Environment hangs{{"CE_REMOTE_GET", "sleep 600 & echo $! > '" + path("pid") + "'; wait #"},
                          {"CE_REMOTE_PUT", "sleep 600 #"},
                          {"CE_REMOTE_SECONDS", "1"}};
  std::string said;
  EXPECT_GT(sweep("a.db", hangs, &said)["measured"], 0);
  EXPECT_THAT(said, HasSubstr("CE_REMOTE_GET: stopped because it ran for more than 1000 ms"));
  EXPECT_EQ(said.find("CE_REMOTE_PUT"), std::string::npos) << "it rests after that";
  const pid_t left = std::stoi(read_file(path("pid")));
  EXPECT_TRUE(test::until([&] { return ::kill(left, 0) != 0; }));
}

TEST_F(Remote, WhereSignaturesAreAskedForItIsNotBelieved) {
  static_cast<void>(told());
  Environment environment = in_folder();
  environment["CE_TRUST"] = path("trusted");
  std::string said;
  EXPECT_GT(sweep("a.db", environment, &said)["measured"], 0);
  EXPECT_THAT(said, HasSubstr("CE_TRUST is set"));
}

constexpr const char* server = R"(
import http.server, os, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_PUT(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open(os.path.join(sys.argv[1], os.path.basename(self.path)), "wb") as file:
            file.write(body)
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
    def log_message(self, *_): pass
os.chdir(sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[2] + ".draft", "w") as file:
    file.write(str(server.server_port))
os.rename(sys.argv[2] + ".draft", sys.argv[2])
server.serve_forever()
)";

TEST_F(Remote, TheHttpExampleSharesThroughAServer) {
  if (std::system("command -v curl > /dev/null && command -v python3 > /dev/null") != 0)
    GTEST_SKIP() << "no curl or python3 here";
  fs::create_directory(path("served"));
  const test::Child python(path("served"), {"python3", "-c", server, path("served"), path("port")},
                           surroundings(), "", "/usr/bin/env");
  ASSERT_TRUE(test::until([&] { return fs::exists(path("port")); }));
  const std::string address = "http://127.0.0.1:" + read_file(path("port"));
  const std::string options = " --noproxy '*' --header 'X-Of: a test'";
  const Environment hooks{{"CE_REMOTE_GET", example("http") + " get " + address + options},
                          {"CE_REMOTE_PUT", example("http") + " put " + address + options}};
  std::string said;
  EXPECT_GT(sweep("first.db", hooks, &said)["measured"], 0);
  EXPECT_EQ(said.find("CE_REMOTE"), std::string::npos) << said;
  EXPECT_EQ(sweep("second.db", hooks, &said)["measured"], 0);
  EXPECT_EQ(said.find("CE_REMOTE"), std::string::npos) << said;
  std::string of_none;
  EXPECT_GT(sweep("third.db", {{"CE_REMOTE_GET", example("http") + " get http://127.0.0.1:9" + options}},
                  &of_none)["measured"],
            0);
  EXPECT_THAT(of_none, HasSubstr("CE_REMOTE_GET: exit status 2"));
}

TEST_F(Remote, TheNightlyMergeRenamesTheNewDatabaseOverTheSites) {
  const auto add = [&](const std::string& name, const std::string& problem) {
    cache::Cache::open(path(name))
        .add({.key = {problem, "Some GPU"},
              .config = "a/b=1",
              .template_digest = "d",
              .stage = 1,
              .rows = 8,
              .bytes = 4096,
              .samples_us = {1},
              .median_us = 1,
              .created_at = "2030-01-01T00:00:00.000Z"});
  };
  const auto keys = [&] { return cache::Cache::open_to_read(path("site.db")).keys().size(); };
  const auto merge = [&](const std::string& nodes) {
    const std::string command = "CE_TUNE='" + std::string(CE_TUNE) + "' '" + example("nightly-merge") +
                                "' '" + path("site.db") + "' " + nodes + " > '" + path("said") + "' 2>&1";
    return std::system(command.c_str());
  };
  add("node1.db", "one");
  add("node2.db", "two");
  ASSERT_EQ(merge("'" + path("node1.db") + "'"), 0) << read_file(path("said"));
  const cache::Cache open = cache::Cache::open_to_read(path("site.db"));
  EXPECT_EQ(open.keys().size(), 1U);
  ASSERT_EQ(merge("'" + path("node1.db") + "' '" + path("node2.db") + "'"), 0) << read_file(path("said"));
  EXPECT_EQ(open.keys().size(), 2U) << "a program that has the old one open";
  EXPECT_EQ(keys(), 2U);
  test::write_file(path("node3.db"), "no database");
  EXPECT_NE(merge("'" + path("node3.db") + "'"), 0);
  EXPECT_EQ(keys(), 2U);
  for (const auto& entry : fs::directory_iterator(folder()))
    EXPECT_EQ(entry.path().filename().string().find(".merge-"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace ce::cli
