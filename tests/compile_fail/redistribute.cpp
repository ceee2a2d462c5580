// Pairs of layouts without a redistribution, and ranks without the axes of a layout.

#include <utility>

#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layout/tensor.hpp"
#if CASE == 6  // flag: -std=c++20, expect: these ranks have axes
#include "shardwise/redistribute/run.hpp"
#else
#include "shardwise/redistribute/mesh.hpp"
#endif

using namespace shardwise;

using Rows = Sharded<Axis::batch>;
template <Layout L>
using OnData = Over<On<MeshAxis::data, L>, On<MeshAxis::tensor, Rows>>;

#if CASE == 1  // expect: there is no redistribution from From to To
using Asked = Redistribute<Replicated, Partial>;
#elif CASE == 2  // expect: Go through Invariant \(Replicated -> Invariant -> Partial\)
using Asked = adjoint_t<Redistribute<Replicated, Partial>>;
#elif CASE == 3  // expect: no inner one \(see MeshAxis\) cuts the same axis. Take the inner cut
using Asked = Redistribute<OnData<Rows>, OnData<Invariant>>;
#elif CASE == 4  // expect: Over names a mesh axis twice
using Asked = Redistribute<Over<On<MeshAxis::data, Rows>, On<MeshAxis::data, Partial>>, Invariant>;
#else
#if CASE == 5  // expect: these ranks have no axes. Give MeshRanks of this communicator
using Ranks = SingleRank;
#else
using Ranks = MeshRanks<SingleRank>;
#endif
inline void sum(Ranks& ranks, Pool& pool, Tensor<float, Over<On<MeshAxis::data, Partial>>>& in,
                Tensor<float, Invariant>& out) {
  redistribute(ranks, pool, std::as_const(in).view(), out.view());
}
using Asked = Redistribute<Replicated, Invariant>;
#endif

constexpr Movement movement = Asked::movement;
