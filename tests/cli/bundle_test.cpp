// Winners as an artefact: ce-tune bundle and pin, and programs that are given a bundle.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/cli/db_fixture.hpp"

namespace ce::cli {
namespace {

namespace fs = std::filesystem;
using test::read_file;
using testing::HasSubstr;
using testing::Not;

class BundleCommand : public test::DatabaseTest {
 protected:
  BundleCommand() {
    const std::vector<cache::Measurement> final{measurement(0, 60), measurement(1, 61), measurement(2, 70)};
    cache_.add(final);
  }
};

TEST_F(BundleCommand, WritesADecisionALineWithoutWhatIsOfOneMachine) {
  cache::Measurement other = measurement(0, 30);
  other.key.device = "Another GPU|cc=90|sm=114";
  cache_.add(other);
  ASSERT_EQ(text({"bundle", path("b.jsonl")}).status, 0);
  const std::string bundle = read_file(path("b.jsonl"));
  EXPECT_EQ(std::count(bundle.begin(), bundle.end(), '\n'), 4) << bundle;
  EXPECT_LT(bundle.find("Another GPU"), bundle.find("Some GPU"));
  for (const char* of_one_machine : {"GPU-1", "580.1", "samples_us", "created_at", "environment"})
    EXPECT_THAT(bundle, Not(HasSubstr(of_one_machine)));
  EXPECT_THAT(bundle, HasSubstr("ahead of"));
  EXPECT_THAT(bundle, Not(HasSubstr(folder().string())));
  ASSERT_EQ(text({"bundle", path("some.jsonl"), "--gpu", "some gpu"}).status, 0);
  EXPECT_THAT(read_file(path("some.jsonl")), Not(HasSubstr("Another GPU")));
  const test::Finished none = text({"bundle", path("none.jsonl"), "--gpu", "B300"});
  EXPECT_EQ(none.status, 8);
  EXPECT_THAT(none.err, HasSubstr("Another GPU, Some GPU"));
  EXPECT_FALSE(fs::exists(path("none.jsonl")));
}

TEST_F(BundleCommand, KernelsThatAreMissingAreAnErrorWhereTheyWereAskedFor) {
  const test::Finished missing = text({"bundle", path("b.jsonl"), "--cubins"});
  EXPECT_EQ(missing.status, 8);
  EXPECT_THAT(missing.err, HasSubstr(id()));
  EXPECT_FALSE(fs::exists(path("b.jsonl")));
}

TEST_F(BundleCommand, APinIsKeptAgainstTimesAndShownWhereverTheWinnerIs) {
  const std::string why = "the bits of the last run";
  const test::Finished pinned = text({"pin", id(), configs_[2], "--why", why});
  ASSERT_EQ(pinned.status, 0) << pinned.err;
  cache_.add(measurement(1, 20));  // times change; the decision does not
  EXPECT_THAT(text({"db", "list"}).out, HasSubstr(configs_[2] + " (pinned)"));
  EXPECT_THAT(text({"db", "show", id()}).out, HasSubstr("pinned: " + why));
  EXPECT_THAT(text({"explain", id()}).out, HasSubstr("pinned   " + configs_[2]));
  EXPECT_EQ(document({"db", "list"})["keys"][0]["winner"]["pinned"], why);
  const nlohmann::json shown = document({"db", "show", id()});
  EXPECT_EQ(shown["winner"], configs_[2]);
  EXPECT_EQ(shown["ranking"][0], configs_[2]);
  EXPECT_EQ(shown["ranking"].size(), 3U);
  const nlohmann::json written = document({"bundle", path("b.jsonl")});
  EXPECT_EQ(written["decisions"], 1);
  EXPECT_EQ(written["pinned"], 1);
  EXPECT_THAT(read_file(path("b.jsonl")), HasSubstr("\"why\":\"" + why + "\""));
  ASSERT_EQ(text({"pin", id(), "--remove"}).status, 0);
  EXPECT_EQ(document({"db", "show", id()})["winner"], configs_[1]);
  EXPECT_EQ(text({"pin", id(), "--remove"}).status, 8) << "nothing is pinned now";
}

TEST_F(BundleCommand, APinnedConfigThatWasFoundWrongDoesNotServe) {
  ASSERT_EQ(text({"pin", id(), configs_[2], "--why", "w"}).status, 0);
  cache::Measurement wrong = measurement(2, 70);
  wrong.outcome = cache::Outcome::quarantined;
  wrong.reason = "wrong answer: row 3";
  wrong.created_at = utc_now();
  cache_.add(wrong);
  EXPECT_EQ(document({"db", "show", id()})["winner"], configs_[0]);
  EXPECT_THAT(text({"db", "list"}).err, HasSubstr("is not used: in quarantine: wrong answer: row 3"));
  const test::Finished again = text({"pin", id(), configs_[2], "--why", "w"});
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.err, HasSubstr("wrong answer: row 3"));
}

TEST_F(BundleCommand, PinRefusesWhatItCannotKeep) {
  EXPECT_THAT(text({"pin", id(), configs_[0]}).err, HasSubstr("--why is missing"));
  EXPECT_THAT(text({"pin", id(), "--why", "w"}).err, HasSubstr("CONFIG is missing"));
  EXPECT_THAT(text({"pin", id(), configs_[0], "--remove"}).err, HasSubstr("no value together with --remove"));
  EXPECT_THAT(text({"pin", id(), "nonsense", "--why", "w"}).err, HasSubstr("CONFIG is \"nonsense\""));
  EXPECT_THAT(text({"pin", id(), "bandwidth/warps=8,vec=4,tile=4096,load=ca,store=wb", "--why", "w"}).err,
              HasSubstr("a config for softmax bf16"));
  EXPECT_THAT(text({"pin", id(), configs_[0], "--why", std::string(501, 'x')}).err, HasSubstr("500 at most"));
  EXPECT_EQ(text({"pin", "beef", configs_[0], "--why", "w"}).status, 8);
}

/// Problems that are tuned on the host device.
class Bundled : public test::CommandTest {
 protected:
  Bundled() {
    const test::Finished swept = ce_tune({"sweep", "--op", "softmax", "--dtype", "f32", "--rows", "8",
                                          "--cols", "64", "--device", "host", "--db", tuned_});
    EXPECT_EQ(swept.status, 0) << swept.err;
    std::ofstream(folder() / "x.bin", std::ios::binary) << std::string(std::size_t{8} * 64 * 4, '\0');
    // Says what it is, and compiles nothing.
    test::write_file(compiler_,
                     "#!/bin/sh\ncase \"$*\" in *-shared*|*-c\\ *) exit 1;; esac\nexec c++ \"$@\"\n");
    fs::permissions(compiler_, fs::perms(0700));
  }
  [[nodiscard]] std::string bundle(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"bundle", (folder() / "b.jsonl").string(), "--db", tuned_};
    words.insert(words.end(), more.begin(), more.end());
    const test::Finished finished = ce_tune(words);
    EXPECT_EQ(finished.status, 0) << finished.err;
    return (folder() / "b.jsonl").string();
  }
  /// A program that must not tune.
  [[nodiscard]] test::Finished run(test::Environment environment) const {
    environment["CE_SYSTEM_DB"] = "none";
    return ce_tune({"run", "--op", "softmax", "--dtype", "f32", "--rows", "8", "--cols", "64", "--device",
                    "host", "--policy", "frozen", "--db", database(),
                    "input=" + (folder() / "x.bin").string(), "output=" + (folder() / "y.bin").string()},
                   environment);
  }

  const std::string tuned_ = (folder() / "tuned.db").string(), compiler_ = (folder() / "cc").string();
};

TEST_F(Bundled, AFrozenRunWithKernelsOfABundleNeedsNeitherCompilerNorSearch) {
  EXPECT_EQ(run({}).status, 8) << "nothing is known";
  const std::string file = bundle({"--cubins"});
  const test::Finished finished = run({{"CE_SITE_DB", file}, {"CE_HOST_COMPILER", compiler_}});
  EXPECT_EQ(finished.status, 0) << finished.err;
  EXPECT_THAT(finished.err + finished.out, HasSubstr("from the site layer"));
  EXPECT_EQ(run({{"CE_SITE_DB", bundle()}, {"CE_HOST_COMPILER", compiler_}}).status, 6)
      << "without them they must be compiled";
}

TEST_F(Bundled, APinOfALayerServesBeforeTheTimesOfTheUser) {
  const nlohmann::json keys =
      nlohmann::json::parse(ce_tune({"db", "list", "--db", tuned_, "--json"}).out)["keys"];
  std::string key;
  for (const auto& one : keys)
    if (one["problem"]["operation"] == "softmax") key = one["key"];
  const nlohmann::json shown =
      nlohmann::json::parse(ce_tune({"db", "show", key, "--db", tuned_, "--json"}).out);
  const std::string last = shown["ranking"].back();
  fs::copy_file(tuned_, database());
  EXPECT_THAT(run({}).out + run({}).err, Not(HasSubstr(last)));
  ASSERT_EQ(ce_tune({"pin", key, last, "--why", "of the fleet", "--db", tuned_}).status, 0);
  const test::Finished finished = run({{"CE_SITE_DB", bundle()}});
  EXPECT_THAT(finished.out + finished.err, HasSubstr(last));
  EXPECT_THAT(finished.out + finished.err, HasSubstr("pinned: of the fleet"));
}

/// Bundles that are signed with keys of ssh-keygen.
class Signed : public BundleCommand {
 protected:
  void SetUp() override {
    if (std::system("command -v ssh-keygen > /dev/null") != 0) GTEST_SKIP() << "no ssh-keygen here";
    for (const char* name : {"key", "stranger"}) {
      const std::string make =
          "ssh-keygen -q -t ed25519 -N '' -C " + std::string(name) + " -f '" + path(name) + "'";
      ASSERT_EQ(std::system(make.c_str()), 0);
    }
    test::write_file(path("trusted"), "fleet@example.org namespaces=\"ce\" " + read_file(path("key.pub")));
    fs::permissions(path("trusted"), fs::perms(0600));
  }
  void sign(const std::string& key) {
    const test::Finished finished = text({"bundle", path("b.jsonl"), "--sign", path(key)});
    ASSERT_EQ(finished.status, 0) << finished.err;
  }
  /// Of a program that reads the file as its site's layer.
  [[nodiscard]] test::Finished read(const std::string& file, test::Environment more = {}) const {
    more.insert({{"CE_SITE_DB", file}, {"CE_SYSTEM_DB", "none"}, {"CE_TRUST", path("trusted")}});
    return ce_tune({"db", "list", "--layers", "--db", path("empty.db")}, more);
  }
  [[nodiscard]] bool serves(const test::Finished& finished) const {
    return finished.out.find(configs_[0]) != std::string::npos;
  }
};

TEST_F(Signed, OneOfSomeoneWhoIsTrustedServes) {
  { cache::Cache::open(path("empty.db")).checkpoint(); }
  sign("key");
  const test::Finished finished = read(path("b.jsonl"));
  EXPECT_TRUE(serves(finished)) << finished.out << finished.err;
}

TEST_F(Signed, OneThatIsUnsignedOrOfAStrangerOrChangedNeverServes) {
  { cache::Cache::open(path("empty.db")).checkpoint(); }
  const auto expect_refused = [&](const std::string& because) {
    const test::Finished finished = read(path("b.jsonl"));
    EXPECT_FALSE(serves(finished)) << finished.out;
    EXPECT_THAT(finished.err, HasSubstr("the database of CE_SITE_DB is not used"));
    EXPECT_THAT(finished.err, HasSubstr(because));
    EXPECT_EQ(ce_tune({"doctor", "--db", path("empty.db")},
                      {{"CE_SITE_DB", path("b.jsonl")}, {"CE_TRUST", path("trusted")}})
                  .status,
              7);
  };
  ASSERT_EQ(text({"bundle", path("b.jsonl")}).status, 0);
  expect_refused("it has no signature");
  sign("stranger");
  expect_refused("is not from a signer");
  sign("key");
  const std::string whole = read_file(path("b.jsonl"));
  std::string changed = whole;
  const std::size_t at = changed.find("\"rows\":8192");
  ASSERT_NE(at, std::string::npos);
  changed[at + 7] = '4';
  test::write_file(path("b.jsonl"), changed);
  expect_refused("does not match this text");
  test::write_file(path("b.jsonl"), whole);
  EXPECT_TRUE(serves(read(path("b.jsonl"))));
  fs::permissions(path("trusted"), fs::perms(0666));
  expect_refused("other users can write");
  fs::remove(path("trusted"));
  expect_refused("is not a file");
}

TEST_F(Signed, ASignatureOfAnotherNamespaceIsNone) {
  { cache::Cache::open(path("empty.db")).checkpoint(); }
  ASSERT_EQ(text({"bundle", path("b.jsonl")}).status, 0);
  test::write_file(path("trusted"), "fleet@example.org " + read_file(path("key.pub")));
  const std::string sign = "ssh-keygen -q -Y sign -n file -f '" + path("key") + "' '" + path("b.jsonl") + "'";
  ASSERT_EQ(std::system(sign.c_str()), 0);
  EXPECT_FALSE(serves(read(path("b.jsonl"))));
}

TEST_F(Signed, ADatabaseHasNoSignature) {
  { cache::Cache::open(path("empty.db")).checkpoint(); }
  const test::Finished finished = read(database());
  EXPECT_FALSE(serves(finished));
  EXPECT_THAT(finished.err, HasSubstr("is not a bundle; expected a bundle with a signature"));
}

TEST_F(Signed, WithoutSshKeygenThatIsSaid) {
  { cache::Cache::open(path("empty.db")).checkpoint(); }
  sign("key");
  const test::Finished finished = read(path("b.jsonl"), {{"PATH", folder().string()}});
  EXPECT_FALSE(serves(finished));
  EXPECT_THAT(finished.err, HasSubstr("signatures need ssh-keygen"));
  const test::Finished unsigned_ = ce_tune(
      {"bundle", path("c.jsonl"), "--sign", path("key"), "--db", database()}, {{"PATH", folder().string()}});
  EXPECT_EQ(unsigned_.status, 9) << unsigned_.err;
  EXPECT_FALSE(fs::exists(path("c.jsonl")));
}

TEST_F(Signed, WhatCannotBeSignedIsNotWritten) {
  EXPECT_EQ(text({"bundle", path("c.jsonl"), "--sign", path("none")}).status, 8);
  test::write_file(path("nonsense"), "no key\n");
  fs::permissions(path("nonsense"), fs::perms(0600));
  const test::Finished finished = text({"bundle", path("c.jsonl"), "--sign", path("nonsense")});
  EXPECT_EQ(finished.status, 7) << finished.err;
  EXPECT_FALSE(fs::exists(path("c.jsonl")));
  EXPECT_EQ(text({"bundle", "-", "--sign", path("key")}).status, 2);
}

}  // namespace
}  // namespace ce::cli
