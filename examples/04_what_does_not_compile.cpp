// What does not compile, and the compiler's error.
//
//     784 ──column──> 512 ──relu──> 512   ✗   500 ──row──> 10
//
// With -DCASE=0 this file is a program. Every other case is a mistake, for which the compiler must
// report the sentence after `expect:`; a test checks this.

#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

#if CASE == 0  // the control: features match
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<784, 512>, sw::Relu, sw::RowParallelLinear<512, 10>> {
};
#endif

// begin: extents
#if CASE == \
    1  // expect: Consumer takes Expected features, but Producer in front of it gives Produced
struct Mlp
    : sw::Sequential<sw::ColumnParallelLinear<784, 512>, sw::Relu, sw::RowParallelLinear<500, 10>> {
};
#endif
// end: extents

int main() {
  const Mlp model;
  return model.in() == 784 ? 0 : 1;
}
