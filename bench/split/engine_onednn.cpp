// oneDNN, in float and bf16.

#include "shardwise/backend/onednn/onednn.hpp"
#include "split/measure.hpp"

namespace {
[[maybe_unused]] const bool added =
    split::add_engines<shardwise::OneDnn, float, shardwise::bf16>("onednn", 1);
}
