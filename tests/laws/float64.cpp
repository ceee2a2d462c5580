// The laws of redistribution in double.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<double, Alone>(); }
TEST_CASE("threads that read each other's memory") { check_laws<double, Threads>(); }
TEST_CASE("ranks that must pack") { check_laws<double, PlainThreads>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<double, CountedThreads>(); }
