// What a Model cannot be made of, and what it cannot take.

#include <deque>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/comm/thread_communicator.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/key_value_cache.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

#if CASE == 12  // expect: the collectives of this communicator take no memory of this backend
/// Ranks of a device, beside a backend that computes on the host.
struct DeviceRanks : ThreadCommunicator {
  static constexpr bool takes_device_memory = true;
  DeviceRanks split(int, int) { return *this; }
};
using Ctx = Context<float, Reference, DeviceRanks>;
#else
using Ctx = Context<float, Reference, SingleRank>;
#endif
using Both = Ends<Invariant, Invariant>;

#if CASE == 1  // expect: the type Architecture leaves sizes open that are `dynamic`
using Net = Linear<split::none, dynamic, 4>;
#else
using Net = Linear<split::none, 8, 4>;
#endif

#if CASE == 2  // expect: takes a Context second, which names dtype, backend and communicator
using Asked = Model<Net, Reference>;
#elif CASE == 3   // expect: takes the layouts of its two ends third
using Asked = Model<Net, Ctx, Train>;
#elif CASE == 14  // expect: name layouts of another number of inputs or outputs
using Asked = Model<Net, Ctx, Ends<Layouts<Invariant, Invariant>, Invariant>>;
#elif CASE == 18  // expect: name plain layouts in the Ends of the Model
using Asked = Model<Net, Ctx, Ends<Over<On<MeshAxis::data, Sharded<Axis::batch>>>, Invariant>>;
#elif CASE == 15  // expect: gradient of an input with a dtype of its own, like token ids
struct Ids : Net {
  using input_element = std::int32_t;
};
using Asked = Model<Ids, Ctx, Both, TrainWithInputGradient>;
#elif CASE == 4   // expect: takes what it is used for fourth
using Asked = Model<Net, Ctx, Both, Both>;
#else
using Asked = Model<Net, Ctx>;
#endif

#if CASE == 5  // expect: the model takes a View<const T, L>, and Given is none
using Input = View<const float, Sharded<Axis::batch>>;
#elif CASE == 6  // expect: T is the dtype of its Context and L the first of its Ends
using Input = View<const double, Invariant>;
#elif CASE == 7  // expect: the model takes a View<const T, L>, and Given is none
using Input = std::vector<float>;
#else
using Input = View<float, Invariant>;
#endif

#if CASE == 8  // expect: the Model is given a Start in place of the Seed of its random numbers
Asked make(SingleRank& alone) { return {alone, 1}; }
#elif CASE == 9  // expect: the Model is given Ranks first, but its Context names the communicator C
Asked make(ThreadCommunicator& ranks) { return {ranks, Seed{1}}; }
#elif CASE == 10  // expect: the Model is given a Start in place of the Seed of its random numbers
Asked make(SingleRank& alone) { return {alone, Both{}, {{Axis::batch, 2}, {Axis::feature, 8}}}; }
#elif CASE == 20  // expect: the Model is given a Start in place of the Seed of its random numbers
Asked make(SingleRank& alone) { return {Net{}, alone, 1, {{Axis::feature, 8}}, Keep::whole}; }
#else
Asked make(SingleRank& alone) { return {alone, Seed{1}}; }
#endif

#if CASE == \
    11  // expect: a model whose use is ForwardOnly keeps nothing for a backward: call evaluate
using Use = ForwardOnly;
#else
using Use = Train;
#endif

#if CASE == 16  // expect: a Model stays where it is made: optimizers and its own parts refer to it
void fill(std::vector<Asked>& models, SingleRank& alone) { models.emplace_back(alone, Seed{1}); }
#else
void fill(std::deque<Asked>& models, SingleRank& alone) { models.emplace_back(alone, Seed{1}); }
#endif

#if CASE == 19  // expect: the model takes a View<const T, L>, and Given is none
using InFlight = std::vector<float>;
#else
using InFlight = Input;
#endif

#if CASE == 21  // expect: the model takes a View<const T, L>, and Given is none
using Next = std::vector<float>;
#else
using Next = Input;
#endif

#if CASE == 22  // expect: a reader of another model's weights only goes forward
void read(Asked& model) { Model<Net, Ctx, Both, Train> reader(model); }
#elif CASE == 23  // expect: weights are shared by models on SingleRank or ThreadCommunicator
void read(Model<Net, Context<float, Reference, MeshRanks<SingleRank>>>& model) {
  Model reader(model);
}
#else
void read(Asked& model) { Model reader(model); }
#endif

void run(SingleRank& alone, const Input& x, const InFlight& in_flight, const Next& next) {
  Model<Net, Ctx, Both, Use> model(alone, Seed{1});
  model.forward(x);
  model.forward(in_flight, {.flight = Flight{}});
  model.evaluate(x);
  KeyValueCache cache({.tokens = 4});
  model.evaluate(next, {.cache = &cache});
}
