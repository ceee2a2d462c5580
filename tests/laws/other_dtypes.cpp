// The laws of redistribution in dtypes other than float.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("double: ranks as they are") { check_laws<double, AsTheyAre>(); }
TEST_CASE("double: ranks that must pack") { check_laws<double, PlainRanks>(); }
TEST_CASE("bf16: ranks as they are") { check_laws<shardwise::bf16, AsTheyAre>(); }
TEST_CASE("bf16: ranks that must pack") { check_laws<shardwise::bf16, PlainRanks>(); }
TEST_CASE("fp16: ranks as they are") { check_laws<shardwise::fp16, AsTheyAre>(); }
TEST_CASE("fp16: ranks that must pack") { check_laws<shardwise::fp16, PlainRanks>(); }
