// Lists of parts that do not fit together.

#include "shardwise/model/composition.hpp"

#include <cstdint>

#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/scale_channels.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/sequential.hpp"
#include "shardwise/model/sum.hpp"

using namespace shardwise;

using Three = Linear<split::none, 4, 3>;
struct Ids : Identity {
  using input_element = std::int32_t;
};

using Threes = Graph<2, At<Three, 0>, At<Three, 1>, At<Sum, 2, 3>>;

#if CASE == 1  // expect: A part reads a slot that no part before it gives
using Asked = Composition<At<Three, 0>, At<Sum, 1, 2>>;
#elif CASE == 12  // expect: No part reads input UnreadInput of Inputs
using Asked = Graph<2, At<Three, 0>, At<Relu, 2>>;
#elif CASE == 18  // expect: No part reads input UnreadInput of Inputs
using Asked = Graph<2, At<Three, 1>, At<Relu, 2>>;
#elif CASE == 13  // expect: Part ReadOutput gives an output of the model, and another part reads it
using Asked = Graph<1, Output<Three, 0>, Output<Relu, 1>>;
#elif CASE == 14  // expect: L has several outputs, and stands within another composition
using Asked = Sequential<Graph<1, Output<Three, 0>, Output<Three, 0>>, Relu>;
#elif CASE == 16  // expect: L is a Graph, and reads another number of slots than it has inputs
using Asked = Sequential<Threes, Relu>;
#elif CASE == 17  // expect: Consumer takes Expected features, but Producer in front of it
using Asked = Graph<2, At<Three, 0>, At<Threes, 1, 2>>;
#elif CASE == 15  // expect: Layer reads elements of its own dtype
using Asked = Sequential<Three, Ids>;
#elif CASE == 2   // expect: Nobody reads what part Unread gives
using Asked = Composition<At<Three, 0>, At<Three, 0>, At<Relu, 2>>;
#elif CASE == 3   // expect: A part reads at least one slot
using Asked = Composition<At<Three>>;
#elif CASE == 4   // expect: L reads several slots and is no Merge
using Asked = Join<Relu, Three, Three>;
#elif CASE == 5   // expect: Merge is given values with First features and with Other features
using Asked = Join<Sum, Three, Linear<split::none, 4, 2>>;
#elif CASE == 6   // expect: Merge is given values with First features and with Other features
using Asked = Join<Sum, Identity, Three>;
#elif CASE == 7   // expect: another part that reads the same input takes Given
using Asked = Join<Sum, Three, Linear<split::none, 5, 3>>;
#elif CASE == 8   // expect: needs two branches or more
using Asked = Join<Sum, Three>;
#elif CASE == 9   // expect: Consumer takes Expected features, but Producer in front of it
using Asked = Sequential<Join<Concat<Axis::feature>, Three, Three>, Linear<split::none, 3, 2>>;
#elif CASE == 10  // expect: Merge is given values with First features and with Other features
using Asked = Join<ScaleChannels<>, Conv2d<split::none, 4, 3, kernel(1)>, Identity>;
#elif CASE == 11  // expect: Upsampling repeats every element at least once
using Asked = Upsample2d<0>;
#else
struct Asked : Graph<2, At<Three, 0>, Output<Identity, 2>, At<Sum, 2, 1>, Output<Relu, 4>> {};
using FourAndThree = Graph<2, At<Three, 0>, At<Linear<split::none, 3, 3>, 1>, At<Sum, 2, 3>>;
const Graph<2, At<Three, 0>, At<FourAndThree, 1, 2>> features_of_each;
const Join<Sum, Three, Composition<At<Three, 0>, At<Relu, 1>, At<Sum, 1, 2>>> one_output;
#endif

const Asked asked;
