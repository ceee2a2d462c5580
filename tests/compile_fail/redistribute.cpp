// The one pair of layouts without a redistribution.

#include "shardwise/redistribute/redistribute.hpp"

using namespace shardwise;

#if CASE == 1  // expect: there is no redistribution from From to To
using Asked = Redistribute<Replicated, Partial>;
#elif CASE == 2  // expect: Go through Invariant \(Replicated -> Invariant -> Partial\)
using Asked = adjoint_t<Redistribute<Replicated, Partial> >;
#else
using Asked = Redistribute<Replicated, Invariant>;
#endif

constexpr Movement movement = Asked::movement;
