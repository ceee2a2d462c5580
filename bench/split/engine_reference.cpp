// The library's own plain loops, in every dtype.

#include "shardwise/backend/reference.hpp"
#include "split/measure.hpp"

namespace {
[[maybe_unused]] const bool added =
    split::add_engines<shardwise::Reference, float, shardwise::bf16, double>("reference", 3);
}
