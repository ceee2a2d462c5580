// The laws of redistribution in bf16.

#include "laws/redistribution.hpp"

using namespace testing;

TEST_CASE("one rank, known to the compiler") { check_laws<shardwise::bf16, Alone>(); }
TEST_CASE("threads that read each other's memory") { check_laws<shardwise::bf16, Threads>(); }
TEST_CASE("ranks that must pack") { check_laws<shardwise::bf16, PlainThreads>(); }
TEST_CASE("ranks whose calls are counted") { check_laws<shardwise::bf16, CountedThreads>(); }
