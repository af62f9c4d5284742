#include "cache/signature.hpp"

#include <fmt/format.h>

#include <chrono>
#include <sstream>
#include <system_error>
#include <utility>
#include <vector>

#include "base/program.hpp"
#include "cache/ownership.hpp"
#include "ce/error.hpp"

namespace ce::cache {
namespace {

namespace fs = std::filesystem;

constexpr const char* name_space = "ce";

ProgramEnd ssh_keygen(std::vector<std::string> words, std::string_view input) {
  using namespace std::chrono_literals;
  std::vector<std::string> arguments{"ssh-keygen", "-Y"};
  for (std::string& word : words) arguments.push_back(std::move(word));
  try {
    return run_program(arguments, input, {.time = 30s});
  } catch (const Unsupported& error) {
    throw Unsupported(fmt::format("signatures need ssh-keygen of OpenSSH 8.1 or later: {}", error.what()));
  }
}

/// A message on one line.
std::string said(const ProgramEnd& end) {
  if (!end.failure.empty()) return end.failure;
  std::istringstream lines(end.errors + end.output);
  std::string text;
  for (std::string line; std::getline(lines, line);) text += (text.empty() ? "" : "; ") + line;
  return text.empty() ? fmt::format("exit status {}", end.status) : text;
}

}  // namespace

fs::path signature_of(const fs::path& file) { return file.string() + ".sig"; }

std::string sign(std::string_view text, const fs::path& key) {
  std::error_code none;
  if (!fs::exists(key, none)) throw NotFound("there is no key file " + key.string());
  const ProgramEnd end = ssh_keygen({"sign", "-f", fs::absolute(key).string(), "-n", name_space}, text);
  if (!end.succeeded())
    throw DatabaseError(fmt::format("ssh-keygen cannot sign with {}: {}", key.string(), said(end)));
  return end.output;
}

std::string signer_of(std::string_view text, const fs::path& signature, const fs::path& allowed_signers) {
  std::error_code none;
  if (!fs::is_regular_file(allowed_signers, none))
    throw DatabaseError(
        fmt::format("{}, which must list the trusted signers, is not a file", allowed_signers.string()));
  if (const std::string writer = other_writer_of(allowed_signers); !writer.empty())
    throw DatabaseError(fmt::format("the list of trusted signers {} is not used, because {}",
                                    allowed_signers.string(), writer));
  if (!fs::is_regular_file(signature, none))
    throw DatabaseError(fmt::format("it has no signature: there is no file {}", signature.string()));
  const ProgramEnd found =
      ssh_keygen({"find-principals", "-s", signature.string(), "-f", allowed_signers.string()}, "");
  if (!found.succeeded())
    throw DatabaseError(fmt::format("its signature {} is not from a signer that {} lists ({})",
                                    signature.string(), allowed_signers.string(), said(found)));
  std::istringstream principals(found.output);
  std::string last;
  for (std::string principal; std::getline(principals, principal);) {
    const ProgramEnd verified = ssh_keygen({"verify", "-f", allowed_signers.string(), "-I", principal, "-n",
                                            name_space, "-s", signature.string()},
                                           text);
    if (verified.succeeded()) return principal;
    last = said(verified);
  }
  throw DatabaseError(
      fmt::format("its signature {} does not match this text ({})", signature.string(), last));
}

}  // namespace ce::cache
