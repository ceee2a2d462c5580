// Attentions and heads that cannot be, each said where it is written.

#include "shardwise/layers/attend.hpp"
#include "shardwise/layers/head_linear.hpp"

using namespace shardwise;

#if CASE == 1  // expect: drops less than all of its weights
using Asked = Attend<AttentionForm{.dropped = 2, .of = 2}>;
#elif CASE == 2  // expect: needs `causal`
using Asked = Attend<AttentionForm{.causal = false, .window = 3}>;
#elif CASE == 3  // expect: and no `dynamic`
using Asked = HeadLinear<8, dynamic, 4>;
#else
using Asked = Attend<AttentionForm{.window = 3, .dropped = 1, .of = 2}>;
constexpr HeadLinear<8, 2, 4> heads{};
#endif

constexpr Asked asked{};
