// A model drawn for people.

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/model/describe_graph.hpp"
#include "shardwise/model/model.hpp"
#include "support/skipped.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;

namespace {

struct Widen : ColumnParallelLinear<6, 10> {};
struct Narrow : RowParallelLinear<10, 6> {};
struct Whole : Linear<split::none, 6, 3> {};
struct Block : Residual<Sequential<Widen, Gelu, Narrow>> {};
struct Stack : Sequential<Repeat<3, Block>, Whole> {};

struct Odd : Linear<split::none, 6, 6> {};

struct Filter : Conv2d<split::height, 2, 4, 3> {};
struct Norm : BatchNorm<4> {};
struct Filters : Sequential<Filter, Norm, Relu> {};
struct Images : Sequential<Filters, Relu> {};

using Sequence = Sharded<Axis::sequence>;
const Shape text{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::feature, 6}};
const Shape rows{{Axis::batch, 2}, {Axis::feature, 6}};

/// Whether Graphviz reads it; it need not be installed.
bool parses(const std::string& graph) {
  if (std::system("command -v dot >/dev/null") != 0) {
    testing::skip("reading graphs by Graphviz: not installed: graphviz");
    return true;
  }
  const testing::TemporaryFolder folder("shardwise_graph");
  const std::string path = folder.write("model.dot", graph).string();
  return std::system(("dot -Tcanon '" + path + "' >/dev/null").c_str()) == 0;
}

}  // namespace

template <>
struct shardwise::NameOf<Odd> {
  static std::string name() { return "\"an\\odd\nname\"\t"; }
};

TEST_CASE("a stack on a stream that is split by sequence, as the last of four ranks sees it") {
  const std::string graph =
      describe_graph<Ends<Sequence, Invariant>, TrainWithInputGradient>(Stack{}, Place{3, 4}, text);
  CHECK(graph == R"(digraph model {
  label="Stack on [batch 2, sequence 5, feature 6] float32, rank 3 of 4\ngradients settle by all_reduce(21 x float32), 504 bytes\nin each step all ranks together send 4680 bytes forward, 4320 bytes backward, 504 bytes to settle"
  labelloc=t
  fontname="Helvetica"
  node [shape=box, style=rounded, fontname="Helvetica", fontsize=11]
  edge [fontname="Helvetica", fontsize=10, weight=10]
  n0 [label="input\n[batch 2, sequence 1, feature 6]", shape=ellipse]
  subgraph cluster_0 {
    label="0.0 Block: the first of 3 times"
    labeljust=l
    color=gray
    n1 [label="", shape=point]
    n2 [label="0.0.0 Widen\ngives [batch 2, sequence 5, feature 2]\n14 of 70 parameters here"]
    n3 [label="0.0.1 Gelu\ngives [batch 2, sequence 5, feature 2]"]
    n4 [label="0.0.2 Narrow\ngives [batch 2, sequence 5, feature 6]\n18 of 66 parameters here"]
    n5 [label="0.0 Sum", shape=circle]
  }
  subgraph cluster_1 {
    label="0.1 Block: the other 2 of 3 times"
    labeljust=l
    color=gray
    n6 [label="", shape=point]
    n7 [label="0.1.0 Widen\ngives [batch 2, sequence 5, feature 2]\n14 of 70 parameters here"]
    n8 [label="0.1.1 Gelu\ngives [batch 2, sequence 5, feature 2]"]
    n9 [label="0.1.2 Narrow\ngives [batch 2, sequence 5, feature 6]\n18 of 66 parameters here"]
    n10 [label="0.1 Sum", shape=circle]
  }
  n11 [label="1 Whole\ngives [batch 2, sequence 1, feature 3]\n21 of 21 parameters here"]
  n12 [label="output\n[batch 2, sequence 5, feature 3]", shape=ellipse]
  n0 -> n1 [label=" Sharded<sequence>\l"]
  n1 -> n2 [label=" Sharded<sequence> -> Replicated\l forward all_gather(60 x float32), 720 bytes\l backward reduce_scatter(60 x float32), 720 bytes\l", color="#b03060", penwidth=2]
  n2 -> n3 [label=" Sharded<feature>\l"]
  n3 -> n4 [label=" Sharded<feature>\l"]
  n1 -> n5 [label=" Sharded<sequence>\l", weight=1]
  n4 -> n5 [label=" Partial -> Sharded<sequence>\l forward reduce_scatter(60 x float32), 720 bytes\l backward all_gather(60 x float32), 720 bytes\l", color="#b03060", penwidth=2]
  n5 -> n6 [label=" Sharded<sequence>\l"]
  n6 -> n7 [label=" Sharded<sequence> -> Replicated\l forward all_gather(60 x float32), 720 bytes\l backward reduce_scatter(60 x float32), 720 bytes\l", color="#b03060", penwidth=2]
  n7 -> n8 [label=" Sharded<feature>\l"]
  n8 -> n9 [label=" Sharded<feature>\l"]
  n6 -> n10 [label=" Sharded<sequence>\l", weight=1]
  n9 -> n10 [label=" Partial -> Sharded<sequence>\l forward reduce_scatter(60 x float32), 720 bytes\l backward all_gather(60 x float32), 720 bytes\l", color="#b03060", penwidth=2]
  n10 -> n11 [label=" Sharded<sequence>\l"]
  n11 -> n12 [label=" Sharded<sequence> -> Invariant\l forward all_gather(30 x float32), 360 bytes\l", color="#b03060", penwidth=2]
}
)");
  CHECK(parses(graph));
}

TEST_CASE("a model of one layer draws itself, whatever its name") {
  SingleRank alone;
  Model<Odd, Context<float, Reference, SingleRank>> model(alone, Seed{1});
  const std::string graph = describe_graph(model, rows);
  CHECK(graph == R"(digraph model {
  label="\"an\\odd\nname\"  on [batch 2, feature 6] float32, rank 0 of 1\ngradients settle by nothing\nin each step all ranks together send 0 bytes forward, 0 bytes backward, 0 bytes to settle"
  labelloc=t
  fontname="Helvetica"
  node [shape=box, style=rounded, fontname="Helvetica", fontsize=11]
  edge [fontname="Helvetica", fontsize=10, weight=10]
  n0 [label="input\n[batch 2, feature 6]", shape=ellipse]
  n1 [label="\"an\\odd\nname\" \ngives [batch 2, feature 6]\n42 of 42 parameters here"]
  n2 [label="output\n[batch 2, feature 6]", shape=ellipse]
  n0 -> n1 [label=" Invariant\l"]
  n1 -> n2 [label=" Invariant\l"]
}
)");
  CHECK(parses(graph));
}

TEST_CASE("layers that send inside, in a composition with a name") {
  using Height = Sharded<Axis::height>;
  const Shape images{{Axis::batch, 2}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 4}};
  const std::string graph =
      describe_graph<Ends<Height, Height>, Train>(Images{}, Place{0, 2}, images);
  CHECK(graph == R"(digraph model {
  label="Images on [batch 2, channel 2, height 5, width 4] float32, rank 0 of 2\ngradients settle by all_reduce(84 x float32), 672 bytes\nin each step all ranks together send 256 bytes forward, 128 bytes backward, 672 bytes to settle"
  labelloc=t
  fontname="Helvetica"
  node [shape=box, style=rounded, fontname="Helvetica", fontsize=11]
  edge [fontname="Helvetica", fontsize=10, weight=10]
  n0 [label="input\n[batch 2, channel 2, height 3, width 4]", shape=ellipse]
  subgraph cluster_0 {
    label="0 Filters"
    labeljust=l
    color=gray
    n1 [label="0.0 Filter\ngives [batch 2, channel 4, height 2, width 2]\n76 of 76 parameters here"]
    n2 [label="0.1 Norm\ngives [batch 2, channel 4, height 2, width 2]\n8 of 8 parameters here\n forward all_reduce(8 x float64), 128 bytes\n backward all_reduce(8 x float64), 128 bytes", color="#b03060", penwidth=2]
    n3 [label="0.2 Relu\ngives [batch 2, channel 4, height 2, width 2]"]
  }
  n4 [label="1 Relu\ngives [batch 2, channel 4, height 2, width 2]"]
  n5 [label="output\n[batch 2, channel 4, height 2, width 2]", shape=ellipse]
  n0 -> n1 [label=" Sharded<height> -> Haloed<height, kernel 3 stride 1 dilation 1 padding 0+0>\l forward halo_exchange(80 x float32), 128 bytes\l", color="#b03060", penwidth=2]
  n1 -> n2 [label=" Sharded<height>\l"]
  n2 -> n3 [label=" Sharded<height>\l"]
  n3 -> n4 [label=" Sharded<height>\l"]
  n4 -> n5 [label=" Sharded<height>\l"]
}
)");
  CHECK(parses(graph));
}

TEST_CASE("a Repeat of once and of twice") {
  const auto holds = [](const std::string& graph, const char* what) {
    return graph.find(what) != std::string::npos;
  };
  const std::string once =
      describe_graph<Ends<Invariant, Invariant>, Train>(Repeat<1, Odd>{}, Place{0, 2}, rows);
  CHECK(holds(once, "label=\"0 \\\"an\\\\odd\\nname\\\" \"\n"));
  CHECK_FALSE(holds(once, "cluster_1"));
  const std::string twice = describe_graph<Ends<Invariant, Invariant>, ForwardOnly>(
      Sequential<Odd, Repeat<2, Block>>{}, Place{0, 2}, rows);
  CHECK(holds(twice, "label=\"1.0 Block: the first of 2 times\""));
  CHECK(holds(twice, "label=\"1.1 Block: the other 1 of 2 times\""));
  CHECK_FALSE(holds(twice, "backward all"));
  CHECK(parses(once));
  CHECK(parses(twice));
}

TEST_CASE("shapes that do not meet cannot be drawn") {
  CHECK_THROWS_AS((describe_graph<Ends<Invariant, Invariant>, Train>(
                      Stack{}, Place{0, 2}, {{Axis::batch, 2}, {Axis::feature, 7}})),
                  shape_error);
}
