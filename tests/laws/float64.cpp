// The laws of redistribution in double.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<double, Alone>(); }
TEST_CASE("ranks as they are") { check_laws<double, AsTheyAre>(); }
TEST_CASE("ranks that must pack") { check_laws<double, PlainRanks>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<double, CountedRanks>(); }
