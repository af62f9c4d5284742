#include "base/floating_environment.hpp"

namespace ce {

DefaultFloatingEnvironment::DefaultFloatingEnvironment() noexcept {
  std::feholdexcept(&of_caller_);
  std::fesetenv(FE_DFL_ENV);  // includes the control word of SSE, with flush-to-zero and denormals-are-zero
}

DefaultFloatingEnvironment::~DefaultFloatingEnvironment() { std::fesetenv(&of_caller_); }

}  // namespace ce
