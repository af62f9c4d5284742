#pragma once
/// \file
/// A floating-point environment such as a caller may have.

#include <cfenv>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ce::test {

/// Until its end: rounding of its own, traps for what is invalid, infinite or too large, and, where the processor is one of
/// x86, no subnormal numbers.
class OddFloatingEnvironment {
 public:
  static constexpr int traps = FE_INVALID | FE_DIVBYZERO | FE_OVERFLOW;

  explicit OddFloatingEnvironment(int rounding) {
    std::fegetenv(&before_);
    std::feclearexcept(FE_ALL_EXCEPT);
    std::fesetround(rounding);
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
#endif
    ::feenableexcept(traps);
  }
  OddFloatingEnvironment(const OddFloatingEnvironment&) = delete;
  OddFloatingEnvironment& operator=(const OddFloatingEnvironment&) = delete;
  ~OddFloatingEnvironment() { std::fesetenv(&before_); }

 private:
  std::fenv_t before_;
};

}  // namespace ce::test
