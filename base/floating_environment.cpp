#include "base/floating_environment.hpp"

namespace ce {

DefaultFloatingEnvironment::DefaultFloatingEnvironment() noexcept {
  std::feholdexcept(&of_caller_);
  std::fesetenv(
      FE_DFL_ENV);  // the control word of SSE, with its flush-to-zero and denormals-are-zero, among it
}

DefaultFloatingEnvironment::~DefaultFloatingEnvironment() { std::fesetenv(&of_caller_); }

}  // namespace ce
