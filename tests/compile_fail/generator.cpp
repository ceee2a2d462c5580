// Generators of models that write no tokens, or not whole ones on each rank.

#include "shardwise/generate/generator.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/embedding.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/model/sequential.hpp"

using namespace shardwise;

#if CASE == 1  // expect: a Generator writes with a model whose only input are token ids
using First = Linear<split::none, 8, 8>;
#else
using First = Embedding<17, 8>;
#endif

#if CASE == 2  // expect: a Generator writes with a model .* on ranks that are no mesh
using Ranks = MeshRanks<SingleRank>;
#else
using Ranks = SingleRank;
#endif

#if CASE == 3  // expect: a Generator writes with a model .* Ends<Invariant, Invariant>
using Offered = Sharded<Axis::sequence>;
#else
using Offered = Invariant;
#endif

using Net = Sequential<First, Linear<split::none, 8, 17>>;
using Writer = Model<Net, Context<float, Reference, Ranks>, Ends<Offered, Invariant>, ForwardOnly>;

std::size_t write(Writer& model, const std::vector<std::int32_t>& prompt) {
  Generator generator(model, {.sequences = 1, .tokens = 64});
  return generator.add(prompt);
}
