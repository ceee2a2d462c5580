// Models on meshes whose ranks along `context` have different rows of each image, while channels or
// columns are split along `tensor`. Everything is as on one rank.

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include "ranks/model_mesh.hpp"
#include "shardwise/checkpoint/training.hpp"
#include "shardwise/data/row_batch.hpp"
#include "shardwise/data/sampler.hpp"
#include "shardwise/model/describe.hpp"
#include "shardwise/model/describe_graph.hpp"
#include "shardwise/shardwise.hpp"
#include "shardwise/train/accuracy.hpp"
#include "shardwise/train/adamw.hpp"
#include "shardwise/train/evaluate_loss.hpp"
#include "support/largest_difference.hpp"
#include "support/messages.hpp"
#include "support/temporary_folder.hpp"

using namespace shardwise;

namespace {

using testing::check_mentions;
using testing::largest_difference;
using testing::message_of;
using namespace testing::on_meshes;

using Images = SamplesOverMesh<Invariant, Axis::height>;

/// The network of tests/witness/make_mesh.py.
// begin: rows
struct Classifier
    : Sequential<Conv2d<split::output, 2, 6, padded>, BatchNorm<6>, Relu,
                 Conv2d<split::input, 6, 4, 2>, Relu, Conv2d<split::output, 4, 3, padded>, Flatten,
                 RowParallelLinear<3 * 4 * 3, 7>, Relu, ColumnParallelLinear<7, 5>> {};
using OfImages =
    Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::batch>>;

template <class Ctx>
double learn(Model<Classifier, Ctx, OfImages>& model, auto& optimizer) {
  const MeshPlace& place = model.ranks().place();
  const auto x =
      made<SamplesOverMesh<Invariant, Axis::height>, typename Ctx::dtype>(30, images, place);
  return train_step(model, x.view(), labels(7, 0, place).view(), CrossEntropy{}, optimizer);
}
// end: rows

/// Of 5 rows, which 6 ranks along `context` cut so that one has none.
const std::vector<mesh> meshes_of_rows{{},
                                       {.context = 2, .tensor = 2},
                                       {.context = 3, .tensor = 2},
                                       {.context = 6},
                                       {.context = 4, .tensor = 3},
                                       {.data = 2, .context = 2, .tensor = 2}};

struct Excited : Sequential<Conv2d<split::output, 2, 6, padded>, Silu,
                            Join<ScaleChannels<activations::Sigmoid>, Identity,
                                 Sequential<GlobalAveragePool, Conv2d<split::output, 6, 4, 1>, Relu,
                                            Conv2d<split::input, 4, 6, 1>>>,
                            Conv2d<split::input, 6, 4, padded>, GlobalMaxPool, Flatten,
                            Linear<split::none, 4, 5>> {};

/// Over 2 ranks along `context` the 4 rows of patches are blocks of the 12 tokens.
struct Seen
    : Sequential<
          Conv2d<split::output, 2, 6, 2>, PlanesToTokens, ClassToken<6>, PositionEmbedding<13, 6>,
          Residual<Sequential<LayerNorm<6>,
                              Join<Attend<AttentionForm{.causal = false}>, HeadLinear<6, 2, 3>,
                                   HeadLinear<6, 2, 3>, HeadLinear<6, 2, 3>>,
                              RowParallelLinear<6, 6>>>,
          FirstRows, ColumnParallelLinear<6, 5>> {};

/// Each rank has a tile of each image: some of its rows, and of these some columns. Behind the
/// pooling these are 3 rows and 2 columns, so that on 4 x 3 ranks some have none of them.
// begin: tiles
struct OfTiles
    : Sequential<Conv2d<split::width, 2, 6, padded>, BatchNorm<6>, Relu,
                 MaxPool2d<pool(3, {.stride = 2, .padding = 1})>,
                 Conv2d<split::width, 6, 4, kernel(3, {.padding = 2, .dilation = 2})>,
                 AveragePool2d<pool(2, {.stride = 1, .padding = 1, .counts_padding = false})>,
                 Conv2d<split::width, 4, 3, 2>, Flatten, RowParallelLinear<18, 5>> {};
using TilesToSamples = Ends<SamplesOverMesh<Sharded<Axis::width>, Axis::height>,
                            SamplesOverMesh<Invariant, Axis::batch>>;
using Tiles = SamplesOverMesh<Sharded<Axis::width>, Axis::height>;  // of the views of images
// end: tiles

template <class Net, class E = OfImages, class X = Images>
void check_learns_on_rows(const Learned& learned) {
  for (const mesh& sizes : meshes_of_rows) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      Model<Net, OnMesh, E> model(Net{}, ranks, Seed{1}, images);
      check_learns_as_pytorch<X>(model, learned);
      CHECK(replicas_are_equal(model, ranks));
    });
  }
}

}  // namespace

TEST_CASE("a convolutional network learns from rows of images what PyTorch learns on one rank") {
  check_learns_on_rows<Classifier>({});
}

TEST_CASE("factors of channels and largest elements are those of PyTorch where rows are cut") {
  check_learns_on_rows<Excited>({{2.432401523310284, 1.8662590150293217, 1.8205225335296682},
                                 {2.0674595838013752, 1.0988252956021787, 1.2770143063127872}});
}

TEST_CASE("a vision transformer learns from rows of images what PyTorch learns") {
  check_learns_on_rows<Seen>({{2.108357291763773, 2.4860127488175867, 1.9576036292794385},
                              {1.6580104189247917, 2.1744251494227265, 1.3878255808230162}});
}

TEST_CASE("windows that are split along both axes of images learn what PyTorch learns") {
  check_learns_on_rows<OfTiles, TilesToSamples, Tiles>(
      {{1.9633674549930289, 1.6992883801820524, 2.1459125938660186},
       {3.4300345309194826, 2.093125781236354, 2.9358292929165639}});
}

namespace {

/// Saves halos, factors of channels and keys of all tokens. Sizes are those of blocks of a Pool.
struct Held
    : Sequential<
          Conv2d<split::output, 4, 8, padded>, Silu,
          Join<ScaleChannels<>, Identity, GlobalAveragePool>, Conv2d<split::input, 8, 8, padded>,
          PlanesToTokens,
          Recompute<
              Residual<Sequential<ColumnParallelLinear<8, 8>, Relu, RowParallelLinear<8, 8>>>>,
          Residual<Sequential<Join<Attend<AttentionForm{.causal = false}>, HeadLinear<8, 4, 2>,
                                   HeadLinear<8, 4, 2>, HeadLinear<8, 4, 2>>,
                              RowParallelLinear<8, 8>>>> {};

// Of 7 images of 2 channels with 5 rows of 4 pixels, rank 0 of 3 has 2 rows, and reads 3 of them;
// SiLU saves its input, 3 channels of those rows on 2 ranks along `tensor`. If these have 2 columns
// each, a rank reads 3 of them.
template <class S>
constexpr RankMemory memory_of_few =
    memory_of<Sequential<Conv2d<S, 2, 6, padded>, Silu>, mesh{.context = 3, .tensor = 2},
              SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::height>>(
        Shape{{Axis::batch, 7}, {Axis::channel, 2}, {Axis::height, 5}, {Axis::width, 4}})[0];
static_assert(memory_of_few<split::output> ==
              RankMemory{3 * 18 + 3, 7 * 2 * 3 * 4 + 7 * 3 * 2 * 4});
static_assert(memory_of_few<split::width> == RankMemory{6 * 18 + 6, 7 * 2 * 3 * 3 + 7 * 6 * 2 * 2});

// Windows of 3 x 3 on 512 x 512 pixels: 16 ranks with other rows exchange 30 of 512 pixels, and
// with tiles 6 columns and then 6 rows of 512 + 6 pixels.
template <class S, Layout Cut>
constexpr std::size_t floats_sent(const mesh& sizes) {
  const Shape square{{Axis::batch, 1}, {Axis::channel, 1}, {Axis::height, 512}, {Axis::width, 512}};
  const Plan sent = plan_of<Ends<Cut, Cut>, Train>(Conv2d<S, 1, 1, padded>{}, sizes, square);
  return sent.forward.bytes_sent(sizes) / sizeof(float);
}
static_assert(floats_sent<split::none, SamplesOverMesh<Invariant, Axis::height>>({.context = 16}) ==
              30 * 512);
static_assert(floats_sent<split::width, SamplesOverMesh<Sharded<Axis::width>, Axis::height>>(
                  {.context = 4, .tensor = 4}) == 6 * 512 + 6 * 518);

}  // namespace

TEST_CASE("the pool holds what memory_of says that a forward saves of rows and tokens") {
  using ToTokens =
      Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::sequence>>;
  const Shape blocks{{Axis::batch, 32}, {Axis::channel, 4}, {Axis::height, 5}, {Axis::width, 4}};
  for (const mesh& sizes : {mesh{}, mesh{.context = 2, .tensor = 2}, mesh{.context = 3},
                            mesh{.context = 5}, mesh{.data = 2, .context = 2, .tensor = 2}}) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      Model<Held, OnMesh, ToTokens> model(Held{}, ranks, Seed{1}, blocks);
      const auto x = made<Images>(1, blocks, ranks.place());
      const Pool& pool = model.run().pool;
      const std::size_t before = pool.lent();
      const auto y = model.forward(x.view());
      const RankMemory memory = memory_of_rank<ToTokens>(Held{}, ranks.place(), blocks);
      CHECK(pool.lent() - before == (memory.saved + y.size()) * sizeof(double));
      model.discard_step();
    });
  }
}

namespace {

struct Largest : Sequential<To<Sharded<Axis::width>>, GlobalMaxPool> {};
struct Scaled : Graph<2, At<ScaleChannels<>, 0, 1>> {};
inline const Shape nine_rows{
    {Axis::batch, 2}, {Axis::channel, 3}, {Axis::height, 9}, {Axis::width, 2}};

}  // namespace

TEST_CASE("of largest elements that are equal the first of the whole plane gets the gradient") {
  using Cut = SamplesOverMesh<Invariant, Axis::height>;
  for (const mesh& sizes : {mesh{.context = 3, .tensor = 2}, mesh{.data = 2, .context = 4}}) {
    on_mesh(sizes, [&](Ranks& ranks) {
      const MeshPlace& place = ranks.place();
      Model<Largest, OnMesh, Ends<Cut, Cut>, TrainWithInputGradient> model(Largest{}, ranks,
                                                                           Seed{1}, nine_rows);
      // plane p is largest at its elements 3 + 2 p, and in all behind them in the same column
      const auto x = filled<double, Images>(nine_rows, place, [](std::size_t i) {
        const std::size_t at = i % 18, first = 3 + 2 * (i / 18);
        return at >= first && at % 2 == 1 ? -2.0 : -3.0;
      });
      clear_calls(ranks);
      const auto y = model.forward(x.view());
      const auto dy = filled<double, Images>(
          y.global(), place, [](std::size_t p) { return 1.0 + static_cast<double>(p); });
      const auto dx = model.backward(dy.view());
      Plan sent = plan_of<Ends<Cut, Cut>, TrainWithInputGradient>(Largest{}, sizes, nine_rows,
                                                                  {Dtype::float64});
      sent.settle = {};
      check_counts(ranks, sent);
      CHECK(whole(ranks, y) == Numbers(6, -2.0));
      Numbers expected(6 * 18);
      for (std::size_t p = 0; p < 6; ++p)
        expected[p * 18 + 3 + 2 * p] = 1.0 + static_cast<double>(p);
      CHECK(whole(ranks, dx) == expected);
      model.discard_step();
    });
  }
}

TEST_CASE("factors of samples that other ranks have reach the rows of all of them") {
  using Cut = SamplesOverMesh<Invariant, Axis::height>;
  const Shape factors{{Axis::batch, 2}, {Axis::channel, 3}};
  for (const mesh& sizes : {mesh{.context = 4}, mesh{.data = 2, .context = 3, .tensor = 2}}) {
    on_mesh(sizes, [&](Ranks& ranks) {
      const MeshPlace& place = ranks.place();
      using OfSamples = SamplesOverMesh<Invariant, Axis::batch>;
      Model<Scaled, OnMesh, Ends<Layouts<Cut, OfSamples>, Cut>, TrainWithInputGradient> model(
          Scaled{}, ranks, Seed{1}, std::array{nine_rows, factors});
      const auto x = made<Images>(1, nine_rows, place);
      const auto s = made<SamplesOverMesh<Invariant, Axis::batch>>(2, factors, place);
      const auto dy = made<Images>(3, nine_rows, place);
      const auto element = [](std::int64_t number, std::size_t i) {
        return witness::made(number, static_cast<std::int64_t>(i));
      };
      Numbers y(6 * 18), dx(6 * 18), ds(6);
      for (std::size_t i = 0; i < y.size(); ++i) {
        y[i] = element(1, i) * element(2, i / 18);
        dx[i] = element(3, i) * element(2, i / 18);
        ds[i / 18] += element(1, i) * element(3, i);
      }
      CHECK(whole(ranks, model.forward({x.view(), s.view()})) == y);
      const auto [of_x, of_s] = model.backward(dy.view());
      CHECK(whole(ranks, of_x) == dx);
      CHECK(largest_difference(whole(ranks, of_s), ds) < 1e-15);
      model.discard_step();
    });
  }
}

namespace {

/// Windows of several strides and reaches over 7, 4, 8, 4 and 5 rows, branches, an average of all,
/// and a mask of features.
struct Windows
    : Sequential<Conv2d<split::output, 2, 6, kernel(3, {.stride = 2, .padding = 2, .dilation = 2})>,
                 Silu,
                 Repeat<2, Recompute<Residual<
                               Sequential<Conv2d<split::output, 6, 4, 1>, BatchNorm<4>, Relu,
                                          Conv2d<split::input, 4, 6, kernel(5, {.padding = 2})>>>>>,
                 Join<Concat<Axis::channel>, Upsample2d<2>,
                      ConvTranspose2d<split::output, 6, 2, kernel(4, {.stride = 2, .padding = 1})>>,
                 PRelu<8>, MaxPool2d<pool(3, {.stride = 2, .padding = 1})>,
                 AveragePool2d<pool(2, {.stride = 1, .padding = 1, .counts_padding = false})>,
                 GlobalAveragePool, Flatten, Dropout<1, 4>, Linear<split::none, 8, 5>> {};

inline const Shape seven_rows{
    {Axis::batch, 5}, {Axis::channel, 2}, {Axis::height, 7}, {Axis::width, 5}};

/// Steps of two batches of 5 and 2 images.
Trained trained(Ranks& ranks, Keep keep = Keep::whole) {
  const MeshPlace& place = ranks.place();
  using Net = Model<Windows, OnMesh, OfImages, TrainWithInputGradient>;
  Net model(Windows{}, ranks, Seed{5}, seven_rows,
            {.keep = cuts_gradients(keep) ? keep : Keep::whole});
  Optimizer optimizer(model, Sgd{.learning_rate = 0.05, .momentum = 0.9}, keep);
  Shape few = seven_rows;
  few[0].units = 2;
  Trained result;
  for (std::int64_t n = 0; n < 3; ++n) {
    Step step(optimizer, 7, {.clip_norm = 0.3});
    result.losses.push_back(step.add(made<Images>(30 + n, seven_rows, place).view(),
                                     labels(5, n, place).view(), CrossEntropy{}));
    result.losses.push_back(step.add(made<Images>(40 + n, few, place).view(),
                                     labels(2, n, place).view(), CrossEntropy{}));
    result.norms.push_back(*step.finish().norm);
  }
  if (!cuts_parameters(keep)) CHECK(replicas_are_equal(model, ranks));
  result.weights = weights_of(model);
  const auto x = made<Images>(50, seven_rows, place);
  result.evaluated = evaluate_loss(model, x.view(), labels(5, 0, place).view(), CrossEntropy{});
  result.correct = count_correct(model, x.view(), labels(5, 0, place).view());
  CHECK(model.forward(x.view()).global() == Shape{{Axis::batch, 5}, {Axis::feature, 5}});
  const auto dy = made<Net::output_layout>(60, {{Axis::batch, 5}, {Axis::feature, 5}}, place);
  const auto dx = model.backward(dy.view());
  result.slopes = whole(ranks, dx);
  model.discard_step();
  clear_calls(ranks);
  train_step(model, x.view(), labels(5, 0, place).view(), CrossEntropy{}, optimizer);
  check_counts(ranks, plan_step(model, seven_rows, CrossEntropy{}, {}, keep));
  return result;
}

}  // namespace

TEST_CASE("windows, branches, means and masks are those of one rank where rows are cut") {
  const Trained one = on_one_rank([](Ranks& ranks) { return trained(ranks); });
  CHECK(one.losses.back() > 0.1);
  for (const mesh& sizes : meshes_of_rows) {
    CAPTURE(to_string(sizes));
    on_mesh(sizes, [&](Ranks& ranks) {
      const Trained many = trained(ranks);
      check_alike(many, one);
      if (sizes.data == 1) return;
      CHECK(trained(ranks, Keep::state_over_data).weights == many.weights);
      const Numbers all = trained(ranks, Keep::all_over_data).weights;
      CHECK(largest_difference(all, one.weights) < 1e-13);
      CHECK(trained(ranks, Keep::gradients_over_data).weights == all);
    });
  }
}

namespace {

/// Gives images of half as many rows.
struct Pixels
    : Sequential<Dropout<1, 5>, Conv2d<split::output, 2, 6, kernel(3, {.padding = 1, .grain = 2})>,
                 GroupNorm<3, 6>, Gelu, Dropout<1, 4>, ChannelDropout<1, 6>,
                 Conv2d<split::input, 6, 3, kernel(3, {.stride = 2, .padding = 1})>> {};
/// Gives tokens, one more than there are pixels.
struct Tokens : Sequential<Conv2d<split::output, 2, 6, padded>, Dropout<1, 5>, PlanesToTokens,
                           Dropout<1, 4>, ClassToken<6>, Dropout<1, 3>, RowParallelLinear<6, 3>> {};
struct Volumes : Sequential<Conv3d<split::output, 1, 4, padded>, Relu, Dropout<1, 4>, MaxPool3d<2>,
                            Conv3d<split::input, 4, 2, padded>> {};
struct Voxels : Sequential<Conv3d<split::output, 1, 4, padded>, PlanesToTokens, LayerNorm<4>> {};

/// Losses of three steps, and the weights behind them, if ranks have different rows of the output.
template <class Net, class Output, class Target>
Numbers losses_of_pixels(Ranks& ranks, const Shape& in) {
  Model<Net, OnMesh, Ends<SamplesOverMesh<Invariant, Axis::height>, Output>> model(Net{}, ranks,
                                                                                   Seed{5}, in);
  Optimizer optimizer(model, AdamW{.learning_rate = 0.01});
  const Shape out = Net{}.output_shape(in);
  Numbers losses;
  for (std::int64_t n = 0; n < 3; ++n) {
    const auto x = made<Images>(30 + n, in, ranks.place());
    const auto y = made<Target>(70 + n, out, ranks.place());
    clear_calls(ranks);
    losses.push_back(train_step(model, x.view(), y.view(), MeanSquaredError{}, optimizer));
    check_counts(ranks, plan_step(model, in, MeanSquaredError{}));
    if (n == 0) CHECK(model.evaluate(x.view()).global() == out);
  }
  const Numbers weights = weights_of(model);
  losses.insert(losses.end(), weights.begin(), weights.end());
  return losses;
}

}  // namespace

TEST_CASE("losses of pixels and tokens are those of one rank where rows are cut") {
  using Cut = SamplesOverMesh<Invariant, Axis::height>;
  using InShards = SamplesOverMesh<Sharded<Axis::channel>, Axis::height>;
  const Shape volumes{
      {Axis::batch, 3}, {Axis::channel, 1}, {Axis::depth, 4}, {Axis::height, 7}, {Axis::width, 4}};
  Shape even = volumes;
  even[3].units = 6;
  const auto check = [](auto losses_of, const Shape& in) {
    check_as_on_one_rank([&](Ranks& ranks) { return losses_of(ranks, in); }, 1e-13, meshes_of_rows);
  };
  check(losses_of_pixels<Pixels, InShards, Invariant>, seven_rows);
  check(losses_of_pixels<Volumes, Cut, Images>, volumes);
  check(losses_of_pixels<Tokens, Invariant, Whole>, seven_rows);
  check(losses_of_pixels<Voxels, Invariant, Invariant>, even);
}

namespace {

/// y = r (a + b), for a random number r of each element.
struct Weighted : KeepsStream {
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool random = true;

  constexpr Shape output_shape(const std::array<Shape, 2>& x) const { return x[0]; }
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    const auto &a = std::get<0>(x), &b = std::get<1>(x);
    each(frame, y, [&](std::size_t i, double r) { y.data()[i] = r * (a[i] + b[i]); });
  }
  template <class Frame, class DY, class DX>
  void backward(Frame& frame, Nothing, const DY& dy, const DX& dx) const {
    const auto &da = std::get<0>(dx), &db = std::get<1>(dx);
    each(frame, dy, [&](std::size_t i, double r) { da.data()[i] = db.data()[i] = r * dy[i]; });
  }

 private:
  template <class Frame, class V, class F>
  static void each(Frame& frame, const V& view, const F& f) {
    CHECK(frame.rows_begin().in == frame.held_part(view).begin[2]);
    const auto draws = frame.random();
    detail::for_each_piece(frame.backend(), global_runs(frame.held_part(view)),
                           [&](std::uint64_t from, std::uint64_t to, std::size_t local) {
                             for (; from < to; ++from) f(local++, draws.uniform(from));
                           });
  }
};
struct OfTwo : Graph<2, At<Weighted, 0, 1>> {};

}  // namespace

TEST_CASE("a merge of rows draws the random numbers of one rank, and refuses other rows") {
  using Cut = SamplesOverMesh<Invariant, Axis::height>;
  using Net = Model<OfTwo, OnMesh, Ends<Layouts<Cut, Cut>, Cut>, TrainWithInputGradient>;
  const auto numbers_of = [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Net model(OfTwo{}, ranks, Seed{3}, std::array{images, images});
    const auto a = made<Images>(1, images, place), b = made<Images>(2, images, place);
    Numbers numbers;
    const auto add = [&](const auto& view) {
      const Numbers all = whole(ranks, view);
      numbers.insert(numbers.end(), all.begin(), all.end());
    };
    add(model.forward({a.view(), b.view()}));
    add(std::get<1>(model.backward(made<Images>(3, images, place).view())));
    model.discard_step();
    return numbers;
  };
  const Numbers one = on_one_rank(numbers_of);
  on_mesh({.data = 2, .context = 3}, [&](Ranks& ranks) {
    CHECK(numbers_of(ranks) == one);
    Shape lower = images;
    lower[2].units = 4;  // of which some ranks have as many as of 5
    const auto x = made<Images>(1, lower, ranks.place());
    Net model(OfTwo{}, ranks, Seed{3}, std::array{images, images});
    check_mentions(message_of<argument_error>([&] {
                     model.forward({x.view(), x.view()});
                   }),
                   {"OfTwo", "it must have as many as the shape"});
  });
}

namespace {

/// [batch, channel, height, width] -> [batch, sequence, feature]: channels are tokens, so features
/// of a token would be split along those that ranks have of its rows.
struct ChannelsAsTokens : KeepsOneOf<Invariant, Sharded<Axis::batch>, Sharded<Axis::height>> {
  static constexpr Saves saves = Saves::nothing;
  static constexpr bool reshapes = true;
  template <Layout In>
  using output_layout =
      std::conditional_t<std::same_as<In, Sharded<Axis::height>>, Sharded<Axis::feature>, In>;
  constexpr Shape output_shape(const Shape& x) const {
    return {x[0], {Axis::sequence, x[1].extent()}, {Axis::feature, x[2].units * x[3].units}};
  }
};

/// The numbers of the rank's elements in the whole batch are those of what it has, also where no
/// row moves because blocks of rows are blocks of tokens.
struct Numbered : PlanesToTokens {
  template <class Frame, class X, class Y>
  void forward(Frame& frame, const X& x, const Y& y) const {
    CHECK(frame.held_part(x).local == x.local());
    CHECK(global_runs(frame.held_part(x)).size() == x.size());
    PlanesToTokens::forward(frame, x, y);
  }
};

}  // namespace

TEST_CASE("a layer that keeps rows where their blocks fit numbers what it has") {
  using Cut =
      Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::sequence>>;
  for (const int context : {2, 3, 5})
    on_mesh({.data = 2, .context = context}, [](Ranks& ranks) {
      Model<Numbered, OnMesh, Cut, ForwardOnly> model({}, ranks, Seed{3}, images);
      model.evaluate(made<Images>(1, images, ranks.place()).view());
    });
}

TEST_CASE("a layer that takes whole images gives each rank its tokens") {
  using Cut =
      Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::sequence>>;
  const auto numbers_of = [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Model<ChannelsAsTokens, OnMesh, Cut, TrainWithInputGradient> model({}, ranks, Seed{3}, images);
    clear_calls(ranks);
    const auto x = made<Images>(1, images, place);
    const auto y = model.forward(x.view());
    const auto dy = made<Whole>(2, y.global(), place);
    const auto dx = model.backward(dy.view());
    model.discard_step();
    Plan sent = plan_of<Cut, TrainWithInputGradient>(ChannelsAsTokens{}, ranks.sizes(), images,
                                                     {Dtype::float64});
    sent.settle = {};
    check_counts(ranks, sent);
    return std::pair(whole(ranks, y), whole(ranks, dx));
  };
  const auto one = on_one_rank(numbers_of);
  CHECK(one.first[5] == witness::made(1, 5));
  for (const mesh& sizes : meshes_of_rows)
    on_mesh(sizes, [&](Ranks& ranks) { CHECK(numbers_of(ranks) == one); });
}

TEST_CASE("an axis height beside tokens is not cut over context") {
  const Shape shape{{Axis::batch, 2}, {Axis::sequence, 5}, {Axis::height, 3}};
  on_mesh({.context = 3}, [&](Ranks& ranks) {
    Model<Relu, OnMesh> model(Relu{}, ranks, Seed{1}, shape);
    const auto x = made<Whole>(1, shape, ranks.place());
    const auto y = model.evaluate(x.view());
    CHECK(y.global() == shape);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == std::max(x[i], 0.0));
  });
}

namespace {

template <class Net, class P>
void check_losses_in(double bound) {
  check_as_on_one_rank(
      [](Ranks& ranks) { return losses_in<Net, P, OfImages, Images>(ranks, images, 0.02); }, bound,
      {{.data = 2, .context = 3, .tensor = 2}});
}

}  // namespace

TEST_CASE("in float and bf16 the losses are those of one rank, but for rounding") {
  check_losses_in<Classifier, float>(0x1p-19);
  check_losses_in<Classifier, Precision<bf16, float>>(0x1p-5);
  check_losses_in<Excited, float>(0x1p-19);
  check_losses_in<Seen, Precision<bf16, float>>(0x1p-5);
}

TEST_CASE("a checkpoint of a model on rows has the same bytes and goes on on any mesh") {
  const testing::TemporaryFolder folder("shardwise_rows");
  const auto first = folder.path() / "first.safetensors",
             second = folder.path() / "second.safetensors";
  double next = 0;
  on_mesh({.context = 2, .tensor = 2}, [&](Ranks& ranks) {
    Model<Classifier, OnMesh, OfImages> model(Classifier{}, ranks, Seed{5}, images);
    Optimizer optimizer(model, AdamW{});
    learn(model, optimizer);
    save_checkpoint(first, model, optimizer, RunPosition{});
    const double loss = learn(model, optimizer);
    if (ranks.rank() == 0) next = loss;
  });
  on_mesh({.data = 2, .context = 3}, [&](Ranks& ranks) {
    Model<Classifier, OnMesh, OfImages> model(Classifier{}, ranks, Seed{6}, images);
    Optimizer optimizer(model, AdamW{});
    load_checkpoint(first, model, optimizer);
    save_checkpoint(second, model, optimizer, RunPosition{});
    CHECK(learn(model, optimizer) == doctest::Approx(next).epsilon(1e-13));
  });
  CHECK(testing::bytes_of(second) == testing::bytes_of(first));
}

TEST_CASE("images of a program's own memory are cut by rows, and their labels by samples") {
  const Shape image{{Axis::channel, 3}, {Axis::height, 5}, {Axis::width, 4}};
  std::vector<double> pixels(9 * 60);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<double>(i);
  const std::vector<std::int32_t> classes{0, 1, 2, 3, 4, 5, 6, 7, 8};
  on_mesh({.data = 2, .context = 3}, [&](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    RowBatch<double, Images> x(pixels, image, place);
    RowBatch<std::int32_t, SamplesOverMesh<Invariant, Axis::batch>> y(classes, {}, place);
    DistributedSampler sampler(9, place, {.batch_size = 8, .shuffles = false});
    const SampleBatch batch = sampler.next();
    const auto in = x.gather(batch);
    const auto of_in = y.gather(batch);
    CHECK(in.size() == 4 * 3 * block_of(5, place[context]).size * 4);
    CHECK(of_in.size() == block_of(4, place[context]).size);
    const auto numbers_match = [](const auto& view) {
      bool match = true;
      for_each_global_run(view, [&](std::size_t global, std::size_t local, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i)
          match &= static_cast<std::size_t>(view[local + i]) == global + i;
      });
      return match;
    };
    CHECK(numbers_match(in));
    CHECK(numbers_match(of_in));
    check_mentions(message_of<shape_error>([&] {
                     RowBatch<double, Images>(pixels, {{Axis::feature, 5}}, place);
                   }),
                   {"has no axis height"});
  });
}

namespace {

/// Makes images of 5 rows of numbers.
struct Unflatten : KeepsLayout {
  static constexpr Saves saves = Saves::nothing;
  constexpr Shape output_shape(const Shape& x) const {
    return {x[0], {Axis::channel, x[1].units / 5}, {Axis::height, 5}};
  }
  template <class Frame, class X, class Y>
  void forward(Frame&, const X& x, const Y& y) const {
    for (std::size_t i = 0; i < x.size(); ++i) y.data()[i] = x[i];
  }
};

/// Does not say which rows it takes.
struct Unsaid : Unflatten {
  using along_other_axes = KeepsOneOf<Sharded<Axis::batch>>;
  constexpr Shape output_shape(const Shape& x) const { return x; }
};

/// The sums of rows 0 and 1, 2 and 3, ..., of which a rank may have one alone.
struct SumsOfPairs : Unflatten {
  constexpr Shape output_shape(Shape x) const {
    x[2].units = (x[2].units + 1) / 2;
    return x;
  }
};

/// Takes the same rows of both operands, although the second may have other ones.
struct BesideMeans : Join<Weighted, Identity, GlobalAveragePool> {};

}  // namespace

TEST_CASE("what cannot run on rows of images is refused on every rank before it sends anything") {
  on_mesh({.context = 2, .tensor = 2}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    const auto refusal = [&]<class L>(std::type_identity<L>, const Shape& shape) {
      return message_of<argument_error>([&] {
        using Cut = SamplesOverMesh<Invariant, Axis::height>;
        Model<L, OnMesh, Ends<Cut, Cut>, ForwardOnly> model(L{}, ranks, Seed{1}, shape);
      });
    };
    using Hidden = Sequential<Conv2d<split::output, 2, 6, padded>, Unsaid>;
    check_mentions(refusal(std::type_identity<Hidden>{}, images),
                   {"1: ", "Unsaid", "the layer may read several of them", "context=2,tensor=2"});
    check_mentions(refusal(std::type_identity<SumsOfPairs>{}, images),
                   {"SumsOfPairs", "the layer may read several of them"});
    check_mentions(refusal(std::type_identity<BesideMeans>{}, images),
                   {"BesideMeans", "operand 1 is [batch 7, channel 2, height 1, width 1]",
                    "other parts of it than of the first one"});
    using Twice = Sequential<Conv2d<split::height, 2, 6, padded>>;
    check_mentions(refusal(std::type_identity<Twice>{}, images),
                   {"they are split along tensor, too"});
    check_mentions(refusal(std::type_identity<Sequential<MaxPool2d<2>>>{}, {}),
                   {"MaxPool2d", "Give the Model the shape of its input"});
    check_mentions(message_of<argument_error>([&] {
                     Model<Unflatten, OnMesh,
                           Ends<SamplesOverMesh<Invariant, Axis::batch>, Invariant>, ForwardOnly>(
                         Unflatten{}, ranks, Seed{1}, {{Axis::batch, 3}, {Axis::feature, 10}});
                   }),
                   {"[batch 3, channel 2, height 5]", "cut by height"});
    Shape open = images;
    open[2].units = dynamic;
    check_mentions(refusal(std::type_identity<Sequential<MaxPool2d<2>>>{}, open),
                   {"their number is not known"});
    using Spread = Sequential<To<Sharded<Axis::batch>>, Flatten>;
    check_mentions(message_of<argument_error>([&] {
                     Model<Spread, OnMesh, OfImages, ForwardOnly>(Spread{}, ranks, Seed{1}, images);
                   }),
                   {"those are split along tensor"});

    Model<Relu, OnMesh,
          Ends<SamplesOverMesh<Invariant, Axis::height>, SamplesOverMesh<Invariant, Axis::height>>>
        any(ranks, Seed{1});
    check_mentions(
        message_of<argument_error>([&] { any.evaluate(made<Images>(1, images, place).view()); }),
        {"Give the Model the shape of its input with it"});
    Model<Classifier, OnMesh, OfImages> model(Classifier{}, ranks, Seed{1}, images);
    Shape taller = images;
    taller[2].units = 7;
    check_mentions(
        message_of<argument_error>([&] { model.evaluate(made<Images>(1, taller, place).view()); }),
        {"it must have as many as the shape"});
    check_mentions(message_of<shape_error>([&] {
                     detail::require_cut_of_batch(detail::name_of<Pixels>, taller,
                                                  detail::sliced_axes(images, place));
                   }),
                   {"height 7", "the first one has 5 rows"});
    check_mentions(message_of<shape_error>(
                       [&] { Model<Classifier, OnMesh>(Classifier{}, ranks, Seed{1}, images); }),
                   {"Classifier: a tensor [batch 7, channel 2, height 5, width 4] is Over<",
                    "name SamplesOverMesh<L, Axis::height> in the Ends"});
    using Uncut = Ends<SamplesOverMesh<Invariant, Axis::height>, Invariant>;
    check_mentions(message_of<shape_error>([&] {
                     Model<Classifier, OnMesh, Uncut>(Classifier{}, ranks, Seed{1}, images);
                   }),
                   {"name SamplesOverMesh<L, Axis::batch> in the Ends"});
  });
}

TEST_CASE("a description shows the rows, tokens and samples that the rank has") {
  on_mesh({.data = 2, .context = 3}, [](Ranks& ranks) {
    const MeshPlace& place = ranks.place();
    Model<Seen, OnMesh, OfImages> model(Seen{}, ranks, Seed{1}, images);
    const auto in_parts = [&](std::size_t all, MeshAxis axis) {
      return std::to_string(block_of(all, place[axis]).size);
    };
    const std::size_t samples = block_of(7, place[data]).size;
    const std::string of_slice = "[batch " + std::to_string(samples);
    const std::string head =
        "Seen on " + of_slice + ", channel 2, height " + in_parts(5, context) + ", width 4]";
    const std::string tokens = of_slice + ", sequence " + in_parts(13, context) + ", feature 6]";
    const std::string of_end = "[batch " + in_parts(samples, context) + ", feature 5]";
    check_mentions(describe(model, images), {head, tokens, of_end});
    check_mentions(describe_graph(model, images), {head, tokens, of_end});
  });
}
