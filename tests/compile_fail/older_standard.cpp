// The library for an older standard: one sentence, ahead of all that the standard does not know.

#if CASE == 1  // std: c++17, expect: needs C..20: compile with -std=c..20 or newer
#include "shardwise/shardwise.hpp"
#elif CASE == 2  // std: c++14, expect: needs C..20
#include "shardwise/core/error.hpp"
#elif CASE == 3  // std: c++17, expect: needs C..20
#include "shardwise/layers/linear.hpp"
#elif CASE == 4  // std: c++17, expect: needs C..20
#include "shardwise/testing/testing.hpp"
#else
#include "shardwise/core/error.hpp"
#endif
