// Layers on memory that the host cannot touch give the bits that they give on the host.
// Compiled alone: names of types are compared.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "shardwise/layers/batch_norm.hpp"
#include "shardwise/layers/bias.hpp"
#include "shardwise/layers/class_token.hpp"
#include "shardwise/layers/concat.hpp"
#include "shardwise/layers/convolution.hpp"
#include "shardwise/layers/dropout.hpp"
#include "shardwise/layers/elementwise.hpp"
#include "shardwise/layers/end_rows.hpp"
#include "shardwise/layers/flatten.hpp"
#include "shardwise/layers/global_average_pool.hpp"
#include "shardwise/layers/global_max_pool.hpp"
#include "shardwise/layers/group_norm.hpp"
#include "shardwise/layers/identity.hpp"
#include "shardwise/layers/initializer.hpp"
#include "shardwise/layers/layer_norm.hpp"
#include "shardwise/layers/linear.hpp"
#include "shardwise/layers/max_pool.hpp"
#include "shardwise/layers/planes_to_tokens.hpp"
#include "shardwise/layers/prelu.hpp"
#include "shardwise/layers/rms_norm.hpp"
#include "shardwise/layers/scale_channels.hpp"
#include "shardwise/layers/softmax.hpp"
#include "shardwise/layers/times.hpp"
#include "shardwise/layers/transposed_convolution.hpp"
#include "shardwise/layers/upsample.hpp"
#include "shardwise/model/join.hpp"
#include "shardwise/model/model.hpp"
#include "shardwise/testing/layer_check.hpp"
#include "support/far.hpp"
#include "unit/far/scale_anywhere.hpp"

using namespace shardwise;
using testing::Far;

namespace {

/// The bytes of tensors, by name.
using Bits = std::map<std::string, std::vector<std::uint8_t>>;

/// A copy on the host of what lies where the backend's tensors do.
template <class B, class T, class L>
std::vector<std::uint8_t> bits_of(B& backend, const View<T, L>& view) {
  std::vector<std::remove_const_t<T>> values(view.size());
  detail::to_host(backend, view.data(), view.size(), values.data());
  std::vector<std::uint8_t> bits(values.size() * sizeof(T));
  if (!bits.empty()) std::memcpy(bits.data(), values.data(), bits.size());
  return bits;
}

/// Tensors of random numbers where the backend's tensors lie.
template <class T, class B>
class Inputs {
 public:
  explicit Inputs(B& backend) : backend_(backend), pool_(detail::memory_of(backend)) {}

  View<const T, Invariant> make(const Shape& shape, std::uint64_t number) {
    std::vector<T> values(shape.elements());
    RandomStream(Seed{5}, number, 0)
        .for_each_uniform(0, values.size(),
                          [&](std::uint64_t i, float u) { values[i] = static_cast<T>(4 * u - 2); });
    T* const there =
        static_cast<T*>(buffers_.emplace_back(pool_.take(values.size() * sizeof(T))).data());
    detail::to_device(backend_, values.data(), values.size(), there);
    return {there, shape, {}};
  }

 private:
  B& backend_;
  Pool pool_;
  std::vector<Buffer> buffers_;
};

/// Two steps of training, and an evaluation: all that comes out, and all that there is at the end.
template <class T, class B, class Architecture>
Bits run(const Architecture& architecture, const Shape& in) {
  B backend;
  Inputs<T, B> inputs(backend);
  SingleRank alone;
  Model<Architecture, Context<T, B, SingleRank>, Ends<Invariant, Invariant>, TrainWithInputGradient>
      model(architecture, alone, Seed{3}, in, backend);
  Bits bits;
  model.visit_parameters([&](auto& p) { bits[p.name] = bits_of(backend, p.value); });
  for (std::uint64_t step = 1; step <= 2; ++step) {
    const std::string when = " of step " + std::to_string(step);
    const auto x = inputs.make(in, step);
    const auto y = model.forward(x);
    bits["y" + when] = bits_of(backend, y);
    bits["dx" + when] = bits_of(backend, model.backward(inputs.make(y.global(), 10 + step)));
    model.settle_gradients();
    model.visit_parameters(
        [&](auto& p) { bits["d" + p.name + when] = bits_of(backend, p.gradient); });
    model.visit_buffers([&](auto& b) { bits[b.name + when] = bits_of(backend, b.value); });
    model.next_step();
  }
  bits["evaluated"] = bits_of(backend, model.evaluate(inputs.make(in, 20)));
  return bits;
}

template <class T, class Architecture>
void check(const Architecture& architecture, const Shape& in) {
  const Bits here = run<T, Reference>(architecture, in);
  const Bits there = run<T, Far>(architecture, in);
  CHECK(here.size() == there.size());
  for (const auto& entry : here) {
    CAPTURE(entry.first);
    CHECK(there.at(entry.first) == entry.second);
  }
}

struct Block : Sequential<LayerNorm<16>, Linear<split::none, 16, 16>, Silu> {
  using Sequential::Sequential;
};

struct Perceptron
    : Sequential<Linear<split::none, 12, 16>, Bias<16>, Gelu, Dropout<1, 4>, Residual<Block>,
                 RmsNorm<16>, Tanh, BatchNorm<16>, Relu, Linear<split::none, 16, 5>, GeluTanh,
                 LayerNorm<5, Affine::none>, Sigmoid> {
  using Sequential::Sequential;
};

struct Network
    : Sequential<Conv2d<split::none, 3, 4, kernel(3, {.padding = 1})>, BatchNorm<4>, Relu,
                 ChannelDropout<1, 4>, Conv2d<split::none, 4, 6, kernel(2, {.bias = false})>,
                 BatchNorm<6, Affine::none>, GlobalAveragePool, Flatten,
                 Linear<split::none, 6, 3, false>> {
  using Sequential::Sequential;
};

struct Branches : Sequential<Join<Times<activations::Silu>, Identity, Sigmoid>,
                             Join<ScaleChannels<activations::Sigmoid>, Identity, GlobalAveragePool>,
                             Join<Concat<Axis::channel>, Upsample2d<PerAxis{2, 3}>,
                                  Sequential<Upsample2d<PerAxis{2, 3}>, Tanh>>,
                             Join<Sum, Identity, Relu>> {
  using Sequential::Sequential;
};

struct Patches
    : Sequential<Conv2d<split::none, 3, 4, kernel(2, {.stride = 2})>, PlanesToTokens, ClassToken<4>,
                 Tanh, Join<Sum, FirstRows, LastRows>, Linear<split::none, 4, 3>> {
  using Sequential::Sequential;
};

struct Enlarged : Sequential<ConvTranspose2d<split::none, 3, 4, kernel(2, {.stride = 2})>,
                             GroupNorm<2, 4>, LeakyRelu<1, 5>, PRelu<4>, InstanceNorm<4>, HardSwish,
                             Elu<>, MaxPool2d<pool(3, {.ceil_mode = true})>, PRelu<>, Softplus,
                             GlobalMaxPool, Flatten, Softmax> {
  using Sequential::Sequential;
};

struct Scaled : Sequential<Linear<split::none, 12, 16>, ScaleAnywhere, Gelu, ScaleAnywhere> {
  using Sequential::Sequential;
};

const Shape rows{{Axis::batch, 7}, {Axis::feature, 12}};
const Shape images{{Axis::batch, 3}, {Axis::channel, 3}, {Axis::height, 5}, {Axis::width, 6}};

}  // namespace

TEST_CASE("perceptrons") {
  check<float>(Perceptron{}, rows);
  check<bf16>(Perceptron{}, rows);
}

TEST_CASE("a layer of a user's") {
  check<float>(Scaled{}, rows);
  check<double>(Scaled{}, rows);
  check<bf16>(Scaled{}, rows);
  check<fp16>(Scaled{}, rows);
  using Features = Sharded<Axis::feature>;
  const LayerChecks checks{.ranks = {1, 2, 3, 8}, .gradients = 5};
  check_layer(ScaleAnywhere{}, {{Axis::batch, 3}, {Axis::feature, 7}}, checks).require();
  check_layer<Features, Features>(ScaleAnywhere{}, {{Axis::batch, 3}, {Axis::feature, 7}}, checks)
      .require();

  const double x[] = {1, 2, 3, 4}, dy[] = {5, 6, 7, 8};
  double gradients[] = {100, 200};  // of an earlier batch
  for (const std::size_t c : {std::size_t{0}, std::size_t{1}})
    FactorGradient<double>{x, dy, 4, 2, Write::add, gradients}(c);
  CHECK(gradients[0] == 126);
  CHECK(gradients[1] == 244);
}

TEST_CASE("networks of images") {
  check<float>(Network{}, images);
  check<bf16>(Network{}, images);
}

TEST_CASE("tokens of images") {
  check<float>(Patches{}, images);
  check<bf16>(Patches{}, images);
}

TEST_CASE("images made larger, normalised in groups, and their maxima") {
  check<float>(Enlarged{}, images);
  check<bf16>(Enlarged{}, images);
}

TEST_CASE("branches and what joins them") {
  check<float>(Branches{}, images);
  check<bf16>(Branches{}, images);
}

TEST_CASE("what the host holds is no input of a device, and no gradient") {
  Far backend;
  SingleRank alone;
  Model<Perceptron, Context<float, Far, SingleRank>> model(Perceptron{}, alone, Seed{3}, rows,
                                                           backend);
  const std::vector<float> of_host(rows.elements());
  const View<const float, Invariant> x(of_host.data(), rows, {});
  const char* const refused =
      "Perceptron: the input lies in memory that the model's device does not reach, the host's or "
      "another device's: take it there with the model's to_device";
  CHECK_THROWS_WITH_AS(model.evaluate(x), refused, argument_error);
  CHECK_THROWS_WITH_AS(model.forward(x), refused, argument_error);

  const auto there = model.to_device(x);
  const auto y = model.forward(there.view());
  const View<const float, Invariant> dy(of_host.data(), y.global(), {});
  CHECK_THROWS_AS(model.backward(dy), argument_error);
  model.backward(y);  // as before the error
}
