// Networks that are no chain, at 1 to 8 ranks and in every split of their convolutions, against
// PyTorch: outputs, all gradients, and the losses of 20 steps.

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>

#include "shardwise/shardwise.hpp"
#include "support/filled.hpp"
#include "unit/layers/against_witness.hpp"

using namespace shardwise;
using testing::Data;

namespace {

/// How the layers of a network are split: convolutions in turn by First and Second, and layers on
/// what has no space left by Third and Fourth.
template <class First, class Second, class Third, class Fourth>
struct Splits {
  using first = First;
  using second = Second;
  using third = Third;
  using fourth = Fourth;
};
using Channels = Splits<split::output, split::input, split::output, split::input>;
using Unsplit = Splits<split::none, split::none, split::none, split::none>;
template <class Along>
using Space = Splits<Along, Along, split::none, split::none>;

constexpr Kernel three = kernel(3, {.padding = 1});
constexpr Kernel half = kernel(3, {.stride = 2, .padding = 1});

template <class S, std::size_t In, std::size_t Out, Kernel First = three>
using Block = Sequential<Conv2d<typename S::first, In, Out, First>, BatchNorm<Out>, Relu,
                         Conv2d<typename S::second, Out, Out, three>, BatchNorm<Out>>;

template <class S, std::size_t In, std::size_t Out>
using Wider =
    Join<Sum,
         Sequential<Conv2d<typename S::first, In, Out, kernel(1, {.stride = 2})>, BatchNorm<Out>>,
         Block<S, In, Out, half>>;

template <class S>
struct ResNet : Sequential<Conv2d<typename S::first, 3, 8, three>, BatchNorm<8>, Relu,
                           Residual<Block<S, 8, 8>>, Relu, Wider<S, 8, 16>, Relu, Wider<S, 16, 32>,
                           Relu, GlobalAveragePool, Flatten, Linear<typename S::fourth, 32, 10>> {};

template <class S>
using Inception = Join<Concat<Axis::channel>, Conv2d<typename S::first, 8, 5, kernel(1)>,
                       Conv2d<typename S::first, 8, 4, three>,
                       Sequential<Conv2d<typename S::first, 8, 3, kernel(1)>, Relu,
                                  Conv2d<typename S::second, 3, 7, kernel(5, {.padding = 2})>>>;

template <class S>
using Squeezed = Join<ScaleChannels<activations::Sigmoid>, Identity,
                      Sequential<GlobalAveragePool, Conv2d<typename S::third, 16, 2, kernel(1)>,
                                 Relu, Conv2d<typename S::fourth, 2, 16, kernel(1)>>>;

template <class S>
using Deep = Sequential<MaxPool2d<2>, Inception<S>, BatchNorm<16>, Relu, Squeezed<S>,
                        Conv2d<typename S::first, 16, 8, three>, Upsample2d<2>>;

template <class S>
struct UNet : Sequential<Conv2d<typename S::first, 3, 8, three>, BatchNorm<8>, Relu,
                         Join<Concat<Axis::channel>, Identity, Deep<S>>,
                         Conv2d<typename S::second, 16, 8, three>, BatchNorm<8>, Relu,
                         Conv2d<typename S::first, 8, 2, kernel(1)>> {};

template <class S>
using Trunk = Sequential<Conv2d<typename S::first, 3, 8, three>, BatchNorm<8>, Relu,
                         Residual<Block<S, 8, 8>>, Relu>;

template <class S>
struct TwoHeads
    : Graph<1, At<Trunk<S>, 0>,
            Output<Sequential<GlobalAveragePool, Flatten, Linear<typename S::fourth, 8, 10>>, 1>,
            Output<Sequential<Conv2d<typename S::first, 8, 4, three>, Relu,
                              Conv2d<typename S::second, 4, 2, kernel(1)>>,
                   1>> {};

// begin: two-inputs
template <class S>
struct TwoInputs
    : Graph<2,
            At<Sequential<Conv2d<typename S::first, 3, 8, half>, BatchNorm<8>, Relu,
                          GlobalAveragePool, Flatten>,
               0>,
            At<Sequential<Linear<typename S::third, 6, 9>, Relu, Linear<typename S::fourth, 9, 7>>,
               1>,
            At<Concat<Axis::feature>, 2, 3>, At<Linear<typename S::fourth, 15, 10>, 4>> {};
// end: two-inputs

const Shape images{{Axis::batch, 3}, {Axis::channel, 3}, {Axis::height, 16}, {Axis::width, 16}};
const Shape records{images[0], {Axis::feature, 6}};

const testing::Workload work{images, Data::reals, 1, 1, {records}};

/// What one step does, and nothing else that was observed.
testing::Observed only_step(testing::Observed seen) {
  std::erase_if(seen.tensors, [](const auto& tensor) {
    const std::string_view name = tensor.first;
    return !name.ends_with(" gradient") && !name.starts_with("output 0") &&
           !name.starts_with("input gradient 0");
  });
  return seen;
}

template <Layout L>
auto images_of(Place place, std::uint64_t number, const Shape& shape = images) {
  return testing::part_of<double, L>(testing::elements(Data::reals, number, shape.elements()),
                                     shape, place);
}

/// For predictions that lie as L.
template <Layout L>
auto labels_of(Place place) {
  using Batch = Sharded<Axis::batch>;
  using Labels = std::conditional_t<std::same_as<L, Batch>, Batch, Invariant>;
  return testing::filled<std::int32_t, Labels>({images[0]}, place, [](std::size_t i) {
    return witness::made_label(static_cast<std::int64_t>(i), 10);
  });
}

template <Layout L>
auto masks_of(Place place) {
  Shape shape = images;
  shape[1].units = 2;
  return images_of<L>(place, 21, shape);
}

/// The losses of 20 steps; step(model, x, optimizer) trains with the target that fits the loss.
template <class Network, class E, class Use, class Step>
void check_losses(int ranks, const witness::Values& theirs, Step step) {
  testing::on_ranks<testing::Counted>(ranks, [&](testing::Counted& c) {
    using M = Model<Network, Context<double, Reference, testing::Counted>, E, Use>;
    const auto shapes = testing::input_shapes<typename E::offered>(work);
    M model(Network{}, c, Seed{1}, testing::for_model(shapes));
    testing::set_parameters(model, Data::reals);
    Optimizer optimizer(model, Sgd{.learning_rate = 0.01, .momentum = 0.9});
    const auto x =
        testing::parts_of<double, typename E::offered>(Data::reals, 10, shapes, place_of(c));
    for (const double loss : theirs["losses"])
      CHECK(step(model, testing::views_of(x), optimizer) == doctest::Approx(loss).epsilon(1e-9));
  });
}

/// Sums of up to 400 products in another order than PyTorch's, through up to 12 layers: 1e-10 of
/// the largest element is a thousand times the rounding of one of them.
template <class Network, class E, class Use = TrainWithInputGradient, class Step>
void check(const std::string& name, Step step) {
  const witness::Values theirs("networks/" + name);
  for (const int ranks : testing::rank_counts({1, 2, 3, 4, 5, 6, 7, 8})) {
    CAPTURE(ranks);
    const testing::Observed seen =
        testing::observe<Network, double, testing::Counted, E, TrainWithInputGradient>(Network{},
                                                                                       ranks, work);
    CHECK(difference_from_plan(seen) == "");
    CHECK(seen.copies_are_equal);
    testing::check_agrees(only_step(seen), theirs.group("step"), 1e-10, testing::Relative{});
    check_losses<Network, E, Use>(ranks, theirs, step);
  }
}

template <class S, class E>
void check_resnet() {
  check<ResNet<S>, E>("resnet", [](auto& model, const auto& x, auto& optimizer) {
    const auto labels = labels_of<typename E::wanted>(place_of(model.ranks()));
    return train_step(model, x, labels.view(), CrossEntropy{}, optimizer);
  });
}

template <class S, class E>
void check_two_heads() {
  check<TwoHeads<S>, E>("two_heads", [](auto& model, const auto& x, auto& optimizer) {
    const auto labels =
        labels_of<detail::nth_layout_t<typename E::wanted, 0>>(place_of(model.ranks()));
    const auto masks =
        masks_of<detail::nth_layout_t<typename E::wanted, 1>>(place_of(model.ranks()));
    return train_step(model, x, std::tuple{labels.view(), masks.view()},
                      std::tuple{CrossEntropy{}, Weighted{MeanSquaredError{}, 0.5}}, optimizer);
  });
}

template <class S, class E, class Use = TrainWithInputGradient>
void check_two_inputs() {
  check<TwoInputs<S>, E, Use>("two_inputs", [](auto& model, const auto& x, auto& optimizer) {
    const auto labels = labels_of<typename E::wanted>(place_of(model.ranks()));
    return train_step(model, x, labels.view(), CrossEntropy{}, optimizer);
  });
}

template <class S, class E>
void check_unet() {
  check<UNet<S>, E>("unet", [](auto& model, const auto& x, auto& optimizer) {
    const auto target = masks_of<typename E::wanted>(place_of(model.ranks()));
    return train_step(model, x, target.view(), MeanSquaredError{}, optimizer);
  });
}

using Stream = Ends<Invariant, Invariant>;
template <Axis A>
using Both = Ends<Sharded<A>, Sharded<A>>;
template <Layout In, Layout... Outs>
using OneToTwo = Ends<In, Layouts<Outs...>>;
template <Layout Out, Layout... Ins>
using TwoToOne = Ends<Layouts<Ins...>, Out>;

}  // namespace

TEST_CASE("a ResNet with projection shortcuts, its channels split") {
  check_resnet<Channels, Stream>();
}
TEST_CASE("a ResNet with projection shortcuts, its images split") {
  check_resnet<Unsplit, Both<Axis::batch>>();
}
TEST_CASE("a ResNet with projection shortcuts, the rows of its images split") {
  check_resnet<Space<split::height>, Ends<Sharded<Axis::height>, Invariant>>();
}
TEST_CASE("a U-Net with a skip, branches and squeezed channels, its channels split") {
  check_unet<Channels, Stream>();
}
TEST_CASE("a U-Net with a skip, branches and squeezed channels, its images split") {
  check_unet<Unsplit, Both<Axis::batch>>();
}
TEST_CASE("a U-Net with a skip, branches and squeezed channels, the columns of its images split") {
  check_unet<Space<split::width>, Both<Axis::width>>();
}
TEST_CASE("a network with two heads, its channels split") {
  check_two_heads<Channels, OneToTwo<Invariant, Sharded<Axis::feature>, Sharded<Axis::channel>>>();
}
TEST_CASE("a network with two heads, its images split") {
  using Batch = Sharded<Axis::batch>;
  check_two_heads<Unsplit, OneToTwo<Batch, Batch, Batch>>();
}
TEST_CASE("a network with two heads, the rows of its images split") {
  using Height = Sharded<Axis::height>;
  check_two_heads<Space<split::height>, OneToTwo<Height, Invariant, Height>>();
}
TEST_CASE("a network of an image and a record, its channels split") {
  // Without a gradient of the input, a model is another type. One network shows that.
  check_two_inputs<Channels, TwoToOne<Invariant, Invariant, Invariant>, Train>();
}
TEST_CASE("a network of an image and a record, its images split") {
  using Batch = Sharded<Axis::batch>;
  check_two_inputs<Unsplit, TwoToOne<Batch, Batch, Batch>>();
}
TEST_CASE("a network of an image and a record, the columns of its images split") {
  using Feature = Sharded<Axis::feature>;
  check_two_inputs<Space<split::width>, TwoToOne<Invariant, Sharded<Axis::width>, Feature>>();
}
