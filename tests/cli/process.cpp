#include "tests/cli/process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string_view>

namespace ce::cli::test {
namespace {

namespace fs = std::filesystem;

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// This process's variables, but for those in `changes`, which replace them.
std::vector<std::string> environment_with(const Environment& changes) {
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) variables.emplace_back(text);
  }
  for (const auto& [name, value] : changes) variables.push_back(name + "=" + value);
  return variables;
}

int exit_status(int status) { return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status); }

}  // namespace

std::string read_file(const fs::path& path) {
  if (!fs::is_regular_file(path)) return {};  // devices may have no end
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_file(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path.string());
}

Child::Child(const fs::path& folder, const std::vector<std::string>& arguments,
             const Environment& environment, const std::string& output, const std::string& program, int input)
    : out_(output.empty() ? folder / "stdout" : fs::path(output)), err_(folder / "stderr") {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<std::string> variables = environment_with(environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC;
  if (input < 0)
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  else
    posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, out_.c_str(), flags, 0600);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, err_.c_str(), flags, 0600);
  const int error = posix_spawnp(&child_, program.c_str(), &actions, nullptr, pointers(words).data(),
                                 pointers(variables).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) throw std::runtime_error("cannot start " + program);
}

Child::~Child() {
  if (!running()) return;
  signal(SIGKILL);
  ::waitpid(child_, &status_, 0);
}

void Child::signal(int number) const {
  if (child_ > 0) ::kill(child_, number);  // 0, once it has ended, would be everybody of this group
}

bool Child::running() {
  if (child_ == 0) return false;
  if (::waitpid(child_, &status_, WNOHANG) != 0) child_ = 0;
  return child_ != 0;
}

Finished Child::wait(std::chrono::seconds limit) {
  if (!until([this] { return !running(); }, limit)) {
    ADD_FAILURE() << "still running after " << limit.count() << " s; standard error: " << err();
    signal(SIGKILL);
    ::waitpid(child_, &status_, 0);
    child_ = 0;
  }
  return {exit_status(status_), read_file(out_), read_file(err_)};
}

CommandTest::CommandTest() {
  std::string pattern = (fs::temp_directory_path() / "ce-cli-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot create " + pattern);
  folder_ = pattern;
}

CommandTest::~CommandTest() {
  std::error_code ignored;  // litter in the temporary folder fails no test
  fs::remove_all(folder_, ignored);
}

Environment CommandTest::surroundings(Environment environment) const {
  environment.insert({{"HOME", folder_.string()},
                      {"XDG_DATA_HOME", (folder_ / "data").string()},
                      {"CE_DB", ""},
                      {"CE_DEVICE", ""},
                      {"CE_LOG", "info"},
                      {"COLUMNS", "1000"},  // tables in full
                      {"CE_HOST_SEED", ""},
                      {"CUDA_VISIBLE_DEVICES", "-1"}});
  return environment;
}

Finished CommandTest::ce_tune(const std::vector<std::string>& arguments, Environment environment,
                              const std::string& output) const {
  return Child(folder_, arguments, surroundings(std::move(environment)), output).wait();
}

}  // namespace ce::cli::test
