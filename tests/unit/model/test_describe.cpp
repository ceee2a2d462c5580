// A model described to people.
// Compiled alone: names of types are compared.

#include <doctest/doctest.h>

#include <string>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/describe.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

struct Widen : ColumnParallelLinear<6, 10> {};
struct Narrow : RowParallelLinear<10, 6> {};
struct Whole : Linear<split::none, 6, 3> {};
struct Block : Residual<Sequential<Widen, Gelu, Narrow>> {};
struct Net : Sequential<Repeat<2, Block>, Whole> {};

using Sequence = Sharded<Axis::sequence>;
const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};

}  // namespace

TEST_CASE("a stack on a stream that is split by sequence, as the last of four ranks sees it") {
  const std::string table =
      describe<Ends<Sequence, Invariant>, TrainWithInputGradient>(Net{}, Place{3, 4}, text);
  CHECK(table == R"(Net on [batch 2, sequence 5, feature 6] float32, rank 3 of 4
layer         layout                           output here                       parameters  here  forward sends                            backward sends
              Sharded<sequence> -> Replicated  [batch 2, sequence 5, feature 6]                    all_gather(60 x float32), 720 bytes      reduce_scatter(60 x float32), 720 bytes
0.0.0 Widen   Replicated -> Sharded<feature>   [batch 2, sequence 5, feature 2]          70    14
0.0.1 Gelu    Sharded<feature>                 [batch 2, sequence 5, feature 2]
0.0.2 Narrow  Sharded<feature> -> Partial      [batch 2, sequence 5, feature 6]          66    18
              Partial -> Sharded<sequence>     [batch 2, sequence 1, feature 6]                    reduce_scatter(60 x float32), 720 bytes  all_gather(60 x float32), 720 bytes
0.0 Sum       Sharded<sequence>                [batch 2, sequence 1, feature 6]
              Sharded<sequence> -> Replicated  [batch 2, sequence 5, feature 6]                    all_gather(60 x float32), 720 bytes      reduce_scatter(60 x float32), 720 bytes
0.1.0 Widen   Replicated -> Sharded<feature>   [batch 2, sequence 5, feature 2]          70    14
0.1.1 Gelu    Sharded<feature>                 [batch 2, sequence 5, feature 2]
0.1.2 Narrow  Sharded<feature> -> Partial      [batch 2, sequence 5, feature 6]          66    18
              Partial -> Sharded<sequence>     [batch 2, sequence 1, feature 6]                    reduce_scatter(60 x float32), 720 bytes  all_gather(60 x float32), 720 bytes
0.1 Sum       Sharded<sequence>                [batch 2, sequence 1, feature 6]
1 Whole       Sharded<sequence>                [batch 2, sequence 1, feature 3]          21    21
              Sharded<sequence> -> Invariant   [batch 2, sequence 5, feature 3]                    all_gather(30 x float32), 360 bytes
gradients settle by all_reduce(21 x float32), 504 bytes
in each step all ranks together send 3240 bytes forward, 2880 bytes backward, 504 bytes to settle
)");
}

TEST_CASE("a model describes itself, alone and without an input gradient") {
  SingleRank alone;
  Model<Block, Context<double, Reference, SingleRank>> model(alone, Seed{1});
  CHECK(describe(model, {{Axis::batch, 2}, {Axis::feature, 6}}) ==
        R"(Block on [batch 2, feature 6] float64, rank 0 of 1
layer     layout                          output here            parameters  here  forward sends                      backward sends
          Invariant -> Replicated         [batch 2, feature 6]
0 Widen   Replicated -> Sharded<feature>  [batch 2, feature 10]          70    70
1 Gelu    Sharded<feature>                [batch 2, feature 10]
2 Narrow  Sharded<feature> -> Partial     [batch 2, feature 6]           66    66
          Partial -> Invariant            [batch 2, feature 6]                     all_reduce(12 x float64), 0 bytes
Sum       Invariant                       [batch 2, feature 6]
this rank holds 1216 bytes of parameters and 1216 bytes of gradients, and an optimizer keeps the moments of 136 parameters
gradients settle by nothing
in each step all ranks together send 0 bytes forward, 0 bytes backward, 0 bytes to settle
)");
  CHECK(model.values().size_bytes() == 1216);
  CHECK(model.gradients().size_bytes() == 1216);
}

TEST_CASE("the calls that a recomputed block makes again have a row") {
  struct Twice : Sequential<Recompute<Block>, Whole> {};
  const std::string table = describe<Ends<Invariant, Invariant>, TrainWithInputGradient>(
      Twice{}, Place{0, 2}, {{Axis::batch, 2}, {Axis::feature, 6}});
  const std::size_t row = table.find("\n0 Recompute: again  ");
  REQUIRE(row != std::string::npos);
  CHECK(row > table.find("\n0 Sum  "));
  CHECK(row < table.find("\n1 Whole  "));
  const std::string sum = "all_reduce(12 x float32), 96 bytes";
  const std::string line = table.substr(row + 1, table.find('\n', row + 1) - row - 1);
  CHECK(line.ends_with("  " + sum));
  CHECK(line.find(sum) == line.rfind(sum));
  CHECK(table.find("send 96 bytes forward, 192 bytes backward") != std::string::npos);
}

TEST_CASE("shapes that do not meet") {
  CHECK_THROWS_AS((describe<Ends<Invariant, Invariant>, Train>(
                      Net{}, Place{0, 2}, {{Axis::batch, 2}, {Axis::feature, 7}})),
                  shape_error);
}
