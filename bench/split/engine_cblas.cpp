// Whatever CBLAS the build found, in float and double.

#include "shardwise/backend/cblas/cblas.hpp"
#include "split/measure.hpp"

namespace {
[[maybe_unused]] const bool added = split::add_engines<shardwise::Cblas, float, double>("cblas", 2);
}
