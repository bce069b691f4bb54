// Arithmetic as IEEE 754 has it by default, whatever the thread had been told before.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace regard {

// While one lives, its thread rounds to nearest, keeps subnormal numbers and traps nothing; then all
// is as it was. Other libraries change these settings for whole threads, and a new thread inherits
// those of its maker: without this a row's bits would depend on them.
class Arithmetic {
  public:
    Arithmetic(const Arithmetic &) = delete;
    Arithmetic &operator=(const Arithmetic &) = delete;
#if defined(__x86_64__)
    Arithmetic() : before_(_mm_getcsr()) { _mm_setcsr(0x1f80); }
    ~Arithmetic() { _mm_setcsr(before_); }

  private:
    unsigned before_;
#else
    Arithmetic() { std::fegetenv(&before_), std::fesetenv(FE_DFL_ENV); }
    ~Arithmetic() { std::fesetenv(&before_); }

  private:
    std::fenv_t before_;
#endif
};

}  // namespace regard
