#pragma once
/// \file
/// The floating-point environment that the library computes in.

#include <cfenv>

namespace ce {

/// While this object lives, this thread computes in the default environment: rounding to nearest, no traps, subnormal
/// numbers kept. Threads that it starts meanwhile do so, too. The destructor restores the caller's environment, with
/// its exception flags. This takes some 50 ns: too long for calls that only launch on a GPU, which compute nothing on
/// the host.
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
