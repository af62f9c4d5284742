#pragma once
/// \file
/// Waiting for what another thread or process does.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>

namespace ce::test {

/// Waits until the condition holds. \returns false when it has not within `limit`, which only what is broken takes
inline bool until(const std::function<bool()>& condition,
                  std::chrono::seconds limit = std::chrono::seconds(120)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

/// Whether a thread of this process waits for something, as the kernel tells.
inline bool waits(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name = text.rfind(") ");
  return name != std::string::npos && text[name + 2] == 'S';
}

/// Whether all threads of this process but the calling one wait for something.
inline bool others_wait() {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task"))
    if (const pid_t thread = std::stoi(entry.path().filename()); thread != ::gettid() && !waits(thread))
      return false;
  return true;
}

}  // namespace ce::test
