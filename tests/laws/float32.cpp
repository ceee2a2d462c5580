// The laws of redistribution in float.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<float, Alone>(); }
TEST_CASE("threads that read each other's memory") { check_laws<float, Threads>(); }
TEST_CASE("ranks that must pack") { check_laws<float, PlainThreads>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<float, CountedThreads>(); }
