// Layers that lack a member, each named, with the layer's number.

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/mesh_ranks.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/layer.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"

using namespace shardwise;

namespace {

/// A layer all of whose members can be taken away.
struct Halve {
#if CASE != 1
  template <Layout Offered, Layout Wanted>
  using input_layout = KeepsLayout::input_layout<Offered, Wanted>;
#endif
#if CASE != 2
  template <Layout Wanted>
  using desired_input_layout = KeepsLayout::desired_input_layout<Wanted>;
#endif
#if CASE != 3
  template <Layout In>
  using output_layout = In;
#endif
#if CASE != 4
  static constexpr Saves saves = Saves::nothing;
#endif
#if CASE != 5
  constexpr Shape output_shape(const Shape& in) const { return in; }
#endif
#if CASE != 6
  template <class Frame, class X, class Y>
  void forward(Frame&, X x, Y y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] / 2;
  }
#endif
#if CASE != 7
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY dy, DX dx) const {
    for (std::size_t i = 0; i < dy.size(); ++i) dx[i] = dy[i] / 2;
  }
#endif
};

/// A layer whose backward has two parts.
struct InParts : KeepsLayout {
#if CASE != 9
  static constexpr Saves saves = Saves::input;
#else
  static constexpr Saves saves = Saves::nothing;
#endif
  static constexpr bool backward_in_parts = true;
  template <class Frame, class X, class Y>
  void forward(Frame&, X, Y) const {}
  template <class Frame, class X, class DY, class DX>
  void backward(Frame&, X, DY, DX) const {}
#if CASE != 10
  template <class Frame, class DY, class DX>
  void backward_input(Frame&, DY, DX) const {}
#endif
#if CASE != 11
  template <class Frame, class X, class DY>
  void backward_parameters(Frame&, X, DY) const {}
#endif
};

struct Whole : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;
  template <class Frame, class X, class Y>
  void forward(Frame&, X, Y) const {}
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, DY, DX) const {}
};

/// A merge of two values.
struct Mean : KeepsStream {
  static constexpr Saves saves = Saves::nothing;
  constexpr Shape output_shape(const std::array<Shape, 2>& in) const { return in[0]; }
#if CASE != 12
  template <class Frame, class X, class Y>
  void forward(Frame&, const X&, const Y&) const {}
#endif
#if CASE != 13
  template <class Frame, class DY, class DX>
  void backward(Frame&, Nothing, const DY&, const DX&) const {}
#endif
};

}  // namespace

#if CASE == \
    1  // expect: The layer L lacks `template <Layout Offered, Layout Wanted> using input_layout`
#elif CASE == 2   // expect: The layer L lacks `template <Layout Wanted> using desired_input_layout`
#elif CASE == 3   // expect: The layer L lacks `template <Layout In> using output_layout`
#elif CASE == 4   // expect: The layer L lacks `static constexpr Saves saves`
#elif CASE == 5   // expect: The layer L lacks `Shape output_shape
#elif CASE == 6   // expect: The layer L lacks .*void forward\(Frame&, X x, Y y\) const
#elif CASE == 7   // expect: The layer L lacks .*void backward\(Frame&, Saved, DY dy, DX dx\) const
#elif CASE == 9   // expect: The layer L says `backward_in_parts`, and so it has Saves::input
#elif CASE == 10  // expect: The layer L says `backward_in_parts`, .*void backward_input
#elif CASE == 11  // expect: The layer L says `backward_in_parts`, .*void backward_parameters
#elif CASE == \
    12  // expect: The merge Op lacks .*void forward\(Frame&, const X& x, const Y& y\) const
#elif CASE == 13  // expect: The merge Op lacks .*void backward\(Frame&, const Saved&,
#elif CASE == 14  // expect: On a mesh ranks along `data` have different samples, and L computes
struct Mixing : Whole {
  using along_other_axes = KeepsOneOf<Invariant>;
};
using OnMesh = Context<float, Reference, MeshRanks<SingleRank>>;
Model<Mixing, OnMesh> mixing(MeshRanks<SingleRank>& ranks) { return {ranks, Seed{1}}; }
#elif CASE == 15  // expect: exchanges something for Sharded<Axis::batch> that it does not exchange
struct SumsSamples : Whole {
  template <Layout In>
  using exchanges =
      std::conditional_t<std::same_as<In, Sharded<Axis::batch>>,
                         std::tuple<Exchange<Redistribute<Partial, Replicated>>>, std::tuple<>>;
};
using OnMesh = Context<float, Reference, MeshRanks<SingleRank>>;
Model<SumsSamples, OnMesh> summing(MeshRanks<SingleRank>& ranks) { return {ranks, Seed{1}}; }
#endif

#if CASE == 8  // expect: L is no layer: a model is made of types like Relu
using Second = int;
#else
using Second = Halve;
#endif

struct Net : Sequential<Whole, Second, InParts, Join<Mean, Identity, Identity>> {};

using Ctx = Context<float, Reference, SingleRank>;
using Asked = Model<Net, Ctx, Ends<Invariant, Invariant>, TrainWithInputGradient>;

void run(Asked& model, Asked::input_view x) { model.backward(model.forward(x)); }
