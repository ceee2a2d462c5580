// Cuts that a model does not have.

#include <array>

#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/pipeline/stage.hpp"
#include "shardwise/shardwise.hpp"

using namespace shardwise;

struct Block : Residual<Sequential<LayerNorm<8>, Linear<split::none, 8, 8>>> {};
struct Net : Sequential<ColumnParallelLinear<6, 8>, Relu, Repeat<3, Block>> {};
struct Fork : Composition<At<Relu, 0>, At<Relu, 0>, At<Sum, 1, 2>> {};

struct Outputs : Graph<1, Output<Relu, 0>, At<Relu, 0>> {};

using Ranks = MeshRanks<ThreadCommunicator>;

template <class Layers, CutPlace... Places>
void make(Ranks& ranks) {
  constexpr std::array cut{Places...};
  on_pipeline_stage<Context<float, Reference, Ranks>, cut>(
      Layers{}, ranks, Seed{1}, {{Axis::batch, 1}, {Axis::feature, 6}}, [](auto&) {});
}

void cuts(Ranks& ranks) {
#if CASE == 0
  make<Net, CutPlace{2}, CutPlace{2, 2}>(ranks);
#elif CASE == 1  // expect: A pipeline cuts a Sequential or a Graph. Put the layers into one
  make<Relu, CutPlace{1}>(ranks);
#elif CASE == 2  // expect: Only one value goes from the parts before a cut to those behind it
  make<Fork, CutPlace{2}>(ranks);
#elif CASE == 3  // expect: The places of a cut are in the order of the layers
  make<Net, CutPlace{2, 1}, CutPlace{2}>(ranks);
#elif CASE == 4  // expect: A cut inside a part needs a Repeat with more blocks
  make<Net, CutPlace{2, 3}>(ranks);
#elif CASE == 5  // expect: A cut lies between a layer and the activation that this layer applies
  make<Net, CutPlace{1}>(ranks);
#elif CASE == 6  // expect: A pipeline cuts a model of one output
  make<Outputs, CutPlace{1}>(ranks);
#endif
}
