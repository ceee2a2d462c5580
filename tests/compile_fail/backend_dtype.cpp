// A dtype that the backend of a model does not compute in.

#include <concepts>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

struct FloatOnly : Reference {
  template <std::same_as<float> T>
  using Linear = Reference::Linear<T>;
};

#if CASE == 1  // expect: the backend does not compute in this dtype: docs/backends.md says
using Asked = Context<double, FloatOnly, SingleRank>;
#else
using Asked = Context<float, FloatOnly, SingleRank>;
#endif

Model<Linear<split::none, 3, 2>, Asked>* make(SingleRank& alone) {
  return new Model<Linear<split::none, 3, 2>, Asked>(alone, Seed{1});
}
