// One step of a model, checked or not: what off_costs_nothing.sh compares.

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/check_level.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

#ifdef UNCHECKED
using Ranks = Unchecked<ThreadCommunicator>;
#else
using Ranks = ThreadCommunicator;
#endif

using Asked = Model<RowParallelLinear<64, 32>, Context<float, Reference, Ranks>>;

void forward(Asked& model, Asked::input_view x) { model.forward(x); }
void backward(Asked& model, Asked::output_gradient_view dy) { model.backward(dy); }

void redistribution(Ranks& ranks, Pool& pool, View<const float, Partial> in,
                    View<float, Invariant> out) {
  redistribute(ranks, pool, in, out);
}
