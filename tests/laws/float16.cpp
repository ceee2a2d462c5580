// The laws of redistribution in fp16.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<shardwise::fp16, Alone>(); }
TEST_CASE("ranks as they are") { check_laws<shardwise::fp16, AsTheyAre>(); }
TEST_CASE("ranks that must pack") { check_laws<shardwise::fp16, PlainRanks>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<shardwise::fp16, CountedRanks>(); }
