// The laws of redistribution in float.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<float, Alone>(); }
TEST_CASE("ranks as they are") { check_laws<float, AsTheyAre>(); }
TEST_CASE("ranks that must pack") { check_laws<float, PlainRanks>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<float, CountedRanks>(); }
