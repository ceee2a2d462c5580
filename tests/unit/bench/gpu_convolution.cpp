// Whether benchmarks of convolutions on a GPU see what is wrong, in both orders of tensors; by
// plain loops, on memory that the host cannot touch.

#include <doctest/doctest.h>

#include <cstddef>
#include <stdexcept>
#include <vector>

#include "gpu/sampled_convolution.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/core/tensor_memory.hpp"
#include "support/far.hpp"

using namespace shardwise;
using bench::ConvolutionResult;
using bench::ImageExtents;
using bench::Innermost;
using testing::Far;

namespace {

constexpr std::size_t images = 3;

std::vector<float> random(std::size_t n, std::uint32_t tensor) {
  std::vector<float> all(n);
  for (std::size_t i = 0; i < n; ++i) all[i] = bench::uniform(tensor, i);
  return all;
}

/// The same tensor in another order.
std::vector<float> ordered(const std::vector<float>& given, const ImageExtents& e,
                           Innermost order) {
  std::vector<float> all(given.size());
  const auto s = e.strides(order);
  std::size_t next = 0;
  for (std::size_t n = 0; n < e.n; ++n)
    for (std::size_t c = 0; c < e.c; ++c)
      for (std::size_t h = 0; h < e.h; ++h)
        for (std::size_t w = 0; w < e.w; ++w)
          all[n * s[0] + c * s[1] + h * s[2] + w * s[3]] = given[next++];
  return all;
}

/// A convolution by plain loops, with its tensors on the device in one of the orders.
class Convolution {
 public:
  Convolution(Far& far, const bench::ConvolutionShape& shape, Innermost order)
      : pool_(far.memory()) {
    tensors = {shape, images, order, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
    const ImageExtents of_x = tensors.of_x(), of_w = tensors.of_w(), of_y = tensors.of_y();
    const auto x = random(of_x.size(), 1), w = random(of_w.size(), 2), dy = random(of_y.size(), 3);
    std::vector<float> y(of_y.size()), dx(of_x.size()), dw(of_w.size());
    const auto shard = bench::whole(shape, images);
    Reference loops;
    Reference::Convolution<float> kernel(loops, shard.channels);
    kernel.forward(shard.call, x.data(), {w.data(), 1}, nullptr, Activation::none, y.data());
    kernel.backward(shard.call, x.data(), dy.data(), {w.data(), 1}, Write::replace, dw.data(),
                    nullptr, dx.data());
    tensors.x = there(far, ordered(x, of_x, order));
    tensors.w = there(far, ordered(w, of_w, order));
    tensors.dy = there(far, ordered(dy, of_y, order));
    tensors.y = there(far, ordered(y, of_y, order));
    tensors.dx = there(far, ordered(dx, of_x, order));
    tensors.dw = there(far, ordered(dw, of_w, order));
  }

  bench::ConvolutionTensors<float> tensors{};

 private:
  float* there(Far& far, const std::vector<float>& values) {
    kept_.push_back(pool_.take(values.size() * sizeof(float)));
    auto* const data = static_cast<float*>(kept_.back().data());
    far.to_device(values.data(), values.size(), data);
    return data;
  }

  Pool pool_;
  std::vector<Buffer> kept_;
};

}  // namespace

TEST_CASE("right convolutions pass and those with another tensor do not") {
  Far far;
  for (const bench::ConvolutionShape shape :
       {bench::ConvolutionShape{4, 6, 7, 3}, {6, 4, 5, 1}, {4, 6, 8, 3, 2}}) {
    for (const Innermost order : {Innermost::space, Innermost::channels}) {
      CAPTURE(shape.name());
      const Convolution c(far, shape, order);
      for (const auto result :
           {ConvolutionResult::y, ConvolutionResult::dx, ConvolutionResult::dw}) {
        bench::SampledConvolution<float> sampled{c.tensors, result};
        CHECK_NOTHROW(bench::require_right(far, "it", sampled, 0));
        const auto is_wrong = [&](auto change) {
          auto other = sampled;
          change(other.tensors);
          CHECK_THROWS_AS(bench::require_right(far, "it", other, 0), std::runtime_error);
        };
        is_wrong([](auto& t) { t.y = t.dx = t.dw = const_cast<float*>(t.x); });
        is_wrong([](auto& t) { t.images = 1, ++t.y, ++t.dx, ++t.dw; });
        is_wrong([](auto& t) {
          t.order = t.order == Innermost::space ? Innermost::channels : Innermost::space;
        });
      }
    }
  }
}

namespace {

/// The last element of a result of a 1x1 convolution of one image of one element, all of it 2.
template <class T>
constexpr bench::Sample last_of(ConvolutionResult result) {
  const T two = static_cast<T>(2.0F);
  T got = static_cast<T>(4.0F);
  bench::ConvolutionTensors<T> tensors{{1, 1, 1, 1}, 1,   Innermost::space, &two, &two, &two, &got,
                                       &got,         &got};
  bench::Sample samples[2]{};
  bench::TakeConvolutionSample<T>{{tensors, result}, samples}(1);
  return samples[1];
}

}  // namespace

TEST_CASE_TEMPLATE("samples are constant expressions, which nvcc compiles for the device", T, float,
                   bf16, fp16) {
  constexpr bench::Sample y = last_of<T>(ConvolutionResult::y);
  constexpr bench::Sample dx = last_of<T>(ConvolutionResult::dx);
  constexpr bench::Sample dw = last_of<T>(ConvolutionResult::dw);
  for (const bench::Sample& sample : {y, dx, dw}) {
    CHECK(sample.exact == 4);
    CHECK(sample.got == 4);
  }
}
