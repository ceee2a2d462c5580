// Flags with which the library does not work: one sentence, ahead of all errors that they bring.
// g++ defines __ASSOCIATIVE_MATH__ with -funsafe-math-optimizations, clang does not.

#if CASE == 1  // flag: -std=c++17, expect: needs C..20: compile with -std=c..20 or newer
#include "shardwise/shardwise.hpp"
#elif CASE == 2  // flag: -std=c++14, expect: needs C..20
#include "shardwise/core/error.hpp"
#elif CASE == 3  // flag: -std=c++17, expect: needs C..20
#include "shardwise/layers/linear.hpp"
#elif CASE == 4  // flag: -std=c++17, expect: needs C..20
#include "shardwise/testing/testing.hpp"
#elif CASE == 5  // flag: -fno-exceptions, expect: compile without -fno-exceptions
#include "shardwise/core/error.hpp"
#elif CASE == 6  // flag: -ffast-math, expect: looks for NaN: compile without -ffast-math
#include "shardwise/core/error.hpp"
#elif CASE == 7  // flag: -D__ASSOCIATIVE_MATH__, expect: compile without -funsafe-math
#include "shardwise/core/error.hpp"
#else
#include "shardwise/core/error.hpp"
#endif
