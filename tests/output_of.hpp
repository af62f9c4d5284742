#pragma once
/// \file
/// What a command of the shell prints.

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>

namespace ce::test {

/// The standard output of the command. \throws std::runtime_error where no shell starts
[[nodiscard]] inline std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  if (pipe == nullptr) throw std::runtime_error(command);
  std::string text;
  for (int c = std::fgetc(pipe.get()); c != EOF; c = std::fgetc(pipe.get())) text += static_cast<char>(c);
  return text;
}

}  // namespace ce::test
