#pragma once
/// \file
/// The floating-point environment that the library computes in.

#include <cfenv>

namespace ce {

/// While it lives this thread computes in the default environment: rounding to nearest, no traps, subnormal numbers as
/// they are. So do the threads that it starts meanwhile. Its end brings the caller's environment back, exception flags
/// included. It takes some 50 ns, too long for calls that only launch on a GPU, which compute nothing here.
class DefaultFloatingEnvironment {
 public:
  DefaultFloatingEnvironment() noexcept;
  DefaultFloatingEnvironment(const DefaultFloatingEnvironment&) = delete;
  DefaultFloatingEnvironment& operator=(const DefaultFloatingEnvironment&) = delete;
  ~DefaultFloatingEnvironment();

 private:
  std::fenv_t of_caller_;
};

}  // namespace ce
