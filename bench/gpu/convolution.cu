// ResNet-50's convolutions, without bias, against cuDNN's graphs written by hand, both with the
// fastest of eight engines. By hand any engine will do that computes what it should, with images as
// ours lie and with channels innermost; ours leaves out those whose bits change from run to run,
// FFT and Winograd. Time of the device between two events around many calls, which go around sets
// of tensors larger than its cache.
//
//     bench_gpu_convolution [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cudnn.h>

#include <cstddef>
#include <list>
#include <string>
#include <vector>

#include "gpu/convolution_by_hand.hpp"
#include "gpu/program.hpp"
#include "gpu/rotation.hpp"
#include "gpu/sampled_convolution.hpp"
#include "gpu/uniform.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "support/resnet50.hpp"

namespace {

namespace sw = shardwise;
using bench::ConvolutionResult;
using bench::ConvolutionShape;
using bench::Innermost;
using Which = sw::detail::cuda::ConvolutionProduct;

constexpr std::size_t images = 32;

/// Tensors of a convolution, in sets that take turns.
template <class T>
class Tensors {
 public:
  Tensors(sw::Cuda& backend, const ConvolutionShape& shape, Innermost order)
      : pool_(backend.memory()) {
    bench::ConvolutionTensors<T> all{shape,   images,  order,   nullptr, nullptr,
                                     nullptr, nullptr, nullptr, nullptr};
    const std::size_t x = all.of_x().size(), w = all.of_w().size(), y = all.of_y().size();
    const auto filled = [&](std::size_t n, std::uint32_t tensor) {
      return numbers_.emplace_back(backend, pool_, n, tensor).data();
    };
    const std::size_t count =
        bench::sets_beyond_cache((x + w + y) * sizeof(T), bench::cache_bytes());
    for (std::size_t set = 0; set < count; ++set) {
      all.x = filled(x, 1), all.w = filled(w, 2), all.dy = filled(y, 3);
      // Numbers that no result has.
      all.y = filled(y, 4), all.dx = filled(x, 5), all.dw = filled(w, 6);
      sets_.push_back(all);
    }
  }

  const std::vector<bench::ConvolutionTensors<T>>& sets() const { return sets_; }

  /// Whose turn it is.
  std::size_t next() { return turn_ = (turn_ + 1) % sets_.size(); }
  const bench::ConvolutionTensors<T>& last() const { return sets_[turn_]; }

 private:
  sw::Pool pool_;
  std::list<bench::Numbers<T>> numbers_;
  std::vector<bench::ConvolutionTensors<T>> sets_;
  std::size_t turn_ = 0;
};

/// By cuDNN's graphs.
template <class T>
class ByHand {
 public:
  /// `factor_epsilon`: what factors may be rounded to before they are multiplied.
  ByHand(sw::Cuda& backend, const ConvolutionShape& shape, Innermost order, double factor_epsilon)
      : tensors(backend, shape, order),
        factor_epsilon_(factor_epsilon),
        forward_(product(backend, Which::forward, ConvolutionResult::y)),
        input_(product(backend, Which::backward_input, ConvolutionResult::dx)),
        weight_(product(backend, Which::backward_weight, ConvolutionResult::dw)) {}

  void forward() { forward_(tensors.next()); }
  void train() {
    const std::size_t set = tensors.next();
    forward_(set);
    weight_(set);
    input_(set);
  }

  Tensors<T> tensors;

 private:
  by_hand::ConvolutionProduct product(sw::Cuda& backend, Which which,
                                      ConvolutionResult result) const {
    std::vector<sw::detail::cuda::ConvolutionPointers> pointers;
    for (const auto& set : tensors.sets()) {
      if (which == Which::forward) pointers.push_back({set.x, set.w, set.y});
      if (which == Which::backward_input) pointers.push_back({set.dx, set.w, set.dy});
      if (which == Which::backward_weight) pointers.push_back({set.x, set.dw, set.dy});
    }
    return {backend.session(),
            which,
            sw::detail::cuda::cudnn_dtype(sw::dtype_v<T>),
            tensors.sets().front(),
            pointers,
            [&](const auto& run) {
              const bench::SampledConvolution<T> first{tensors.sets().front(), result};
              bench::poison(backend, const_cast<T*>(first.data()), first.extents().size());
              run();
              return bench::first_wrong<T>(bench::samples_of(backend, first), first.terms(),
                                           factor_epsilon_) == nullptr;
            }};
  }

  double factor_epsilon_;
  by_hand::ConvolutionProduct forward_, input_, weight_;
};

/// By the kernel that layers have.
template <class T>
class Ours {
 public:
  Ours(sw::Cuda& backend, const ConvolutionShape& shape)
      : tensors(backend, shape, Innermost::space),
        shard_(bench::whole(shape, images)),
        kernel_(backend, shard_.channels) {}

  void forward() {
    const auto& set = tensors.sets()[tensors.next()];
    kernel_.forward(shard_.call, set.x, {set.w, 1}, nullptr, sw::Activation::none, set.y);
  }
  void train() {
    forward();
    const auto& set = tensors.last();
    kernel_.backward(shard_.call, set.x, set.dy, {set.w, 1}, sw::Write::replace, set.dw, nullptr,
                     set.dx);
  }

  Tensors<T> tensors;

 private:
  bench::ConvolutionShard shard_;
  sw::Cuda::Convolution<T> kernel_;
};

template <class T, class Way>
void require_right(sw::Cuda& backend, const std::string& who, Way& way, double factor_epsilon) {
  way.train();
  const auto require = [&](const char* what, ConvolutionResult result) {
    bench::require_right(backend, who + ", " + what,
                         bench::SampledConvolution<T>{way.tensors.last(), result}, factor_epsilon);
  };
  require("y", ConvolutionResult::y);
  require("dx", ConvolutionResult::dx);
  require("dw", ConvolutionResult::dw);
}

template <class T>
std::vector<bench::Timing> measure(sw::Cuda& backend, const ConvolutionShape& shape, bool trains,
                                   int rounds) {
  const double factor_epsilon = backend.session().options().tf32 ? 0x1p-11 : 0;
  ByHand<T> same(backend, shape, Innermost::space, factor_epsilon);
  ByHand<T> last(backend, shape, Innermost::channels, factor_epsilon);
  Ours<T> ours(backend, shape);
  require_right<T>(backend, "by hand", same, factor_epsilon);
  require_right<T>(backend, "by hand, channels innermost", last, factor_epsilon);
  require_right<T>(backend, "kernel", ours, factor_epsilon);
  const auto run = [trains](auto& way) { trains ? way.train() : way.forward(); };
  const std::vector<bench::Candidate> candidates{
      {"cuDNN by hand", [&] { run(same); }},
      {"cuDNN by hand, channels innermost", [&] { run(last); }},
      {"kernel", [&] { run(ours); }}};
  return bench::interleave_on(backend.stream(), candidates, rounds);
}

template <class T>
void add(bench::Program& program, sw::Cuda& backend, const std::string& dtype) {
  for (const ConvolutionShape& shape : program.sizes(bench::resnet50())) {
    for (const bool trains : {false, true}) {
      program.add(
          dtype + "/" + shape.name() + (trains ? "/forward and backward" : "/forward"),
          [=, &program, &backend] { return measure<T>(backend, shape, trains, program.rounds()); });
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_on_gpu(argc, argv, 7, [](bench::Program& program) {
    program.note("cuDNN", std::to_string(cudnnGetVersion()));
    sw::Cuda exact(sw::CudaOptions{.time_candidates = true});
    sw::Cuda fast(sw::CudaOptions{.tf32 = true, .time_candidates = true});
    add<sw::bf16>(program, exact, "bf16");
    add<sw::fp16>(program, exact, "fp16");
    add<float>(program, fast, "tf32");
    return program.run();
  });
}
