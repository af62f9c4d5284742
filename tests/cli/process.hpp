#pragma once
/// \file
/// Runs the real ce-tune, and other programs.

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/until.hpp"

namespace ce::cli::test {

/// What a finished command left.
struct Finished {
  int status = -1;  ///< the exit status; 128 + the signal where one ended it
  std::string out, err;
};

using Environment = std::map<std::string, std::string>;

[[nodiscard]] std::string read_file(const std::filesystem::path& path);
void write_file(const std::filesystem::path& path, const std::string& text);

/// A running program. One that is still running at its end is killed.
class Child {
 public:
  /// \param input  descriptor of its standard input; -1 for an empty one
  Child(const std::filesystem::path& folder, const std::vector<std::string>& arguments,
        const Environment& environment, const std::string& output = "", const std::string& program = CE_TUNE,
        int input = -1);
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child();

  void signal(int number) const;
  [[nodiscard]] bool running();
  /// What it has written to standard error so far.
  [[nodiscard]] std::string err() const { return read_file(err_); }
  /// Fails the test and kills the child when it takes longer than `limit`.
  [[nodiscard]] Finished wait(std::chrono::seconds limit = std::chrono::seconds(240));

 private:
  std::filesystem::path out_, err_;
  pid_t child_ = 0;
  int status_ = -1;
};

using ce::test::until;

/// A folder of its own, which is also the home of the commands that it runs. They see neither the user's
/// database, choice of device nor GPUs.
class CommandTest : public testing::Test {
 protected:
  CommandTest();
  ~CommandTest() override;
  CommandTest(const CommandTest&) = delete;
  CommandTest& operator=(const CommandTest&) = delete;

  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }
  [[nodiscard]] std::string database() const { return (folder_ / "my.db").string(); }
  /// \param output  a file for standard output in place of the one that is read into Finished::out
  [[nodiscard]] Finished ce_tune(const std::vector<std::string>& arguments, Environment environment = {},
                                 const std::string& output = "") const;
  [[nodiscard]] Environment surroundings(Environment environment = {}) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace ce::cli::test
