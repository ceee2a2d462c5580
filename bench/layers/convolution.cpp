// ResNet-50's convolutions split over two thread ranks along each axis, as layers in a model,
// float.
//
//     bench_layers_convolution [rounds [all]]
//
// Free halves are timed with and without copies of images; the faster way counts.
// For each: the layer on two ranks; its products alone, on both cores at once; what it sends,
// alone; the layer on one rank; and oneDNN called by hand on the two shards at once with nothing
// sent, the most that two cores can give. All in turns, from a barrier to a barrier. Layouts at the
// ends are those that neighbouring layers would have, so that only what the split itself needs is
// sent: output sums dx, input sums y, batch sums dw, height sums dw and, for 3x3, exchanges halos
// of x and dx. Each way is timed in the second of two calls.

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/shardwise.hpp"
#include "support/interleaved.hpp"
#include "support/require_equal.hpp"
#include "support/resnet50.hpp"
#include "support/rounds.hpp"

namespace {

namespace sw = shardwise;
using Ranks = sw::ThreadCommunicator;

constexpr std::size_t images = 4;

/// How a layer is split: its split, the layouts of images at its ends, and this rank's part.
template <class S, sw::Layout In, sw::Layout Out>
struct Way {
  using split = S;
  using in = In;
  using out = Out;
};
using Output = Way<sw::split::output, sw::Invariant, sw::Sharded<sw::Axis::channel>>;
using Input = Way<sw::split::input, sw::Sharded<sw::Axis::channel>, sw::Invariant>;
using Batch = Way<sw::split::none, sw::Sharded<sw::Axis::batch>, sw::Sharded<sw::Axis::batch>>;
using Height = Way<sw::split::height, sw::Sharded<sw::Axis::height>, sw::Sharded<sw::Axis::height>>;

template <class W>
bench::ConvolutionShard shard_of(const bench::ConvolutionShape& shape, sw::Place place) {
  const auto share = [&](std::size_t units) {
    return sw::block_of({sw::Axis::channel, units}, place).size;
  };
  bench::ConvolutionShard shard = bench::whole(shape, images);
  if constexpr (std::same_as<W, Output>) shard.channels.out = share(shape.out);
  if constexpr (std::same_as<W, Input>) shard.channels.in = share(shape.in);
  if constexpr (std::same_as<W, Batch>) shard.call.images = share(images);
  if constexpr (std::same_as<W, Height>) {
    const sw::Window window{
        .kernel = shape.kernel, .before = shape.padding(), .after = shape.padding()};
    sw::SpatialAxis& rows = shard.call.space[1];
    rows.input = window.held_by(place, shape.extent).size;
    rows.output = share(shape.outputs());
    rows.before = place.rank == 0 ? shape.padding() : 0;
  }
  return shard;
}

/// The layer on some ranks, with the weights and images of `whole`.
template <class W, sw::Kernel Form>
struct Ours {
  using Layer = sw::Conv2d<typename W::split, sw::dynamic, sw::dynamic, Form>;
  using Model = sw::Model<Layer, sw::Context<float, sw::OneDnn, Ranks>,
                          sw::Ends<typename W::in, typename W::out>, sw::TrainWithInputGradient>;

  Ours(Ranks& ranks, const bench::ConvolutionShape& shape, const by_hand::Convolution& whole)
      : place(sw::place_of(ranks)),
        in{{sw::Axis::batch, images},
           {sw::Axis::channel, shape.in},
           {sw::Axis::height, shape.extent},
           {sw::Axis::width, shape.extent}},
        model(Layer(shape.in, shape.out), ranks, sw::Seed{1}, in),
        out(model.layers().output_shape(in)),
        x(in, place),
        dy(out, place) {
    slice(ranks, whole.x, x);
    slice(ranks, whole.dy, dy);
    const auto specs = model.layers().parameter_specs(in);
    model.set("weight", {whole.w.data(), specs[0].shape, place});
    model.set("bias", {whole.bias.data(), specs[1].shape, place});
  }

  /// This rank's part of a whole tensor.
  template <sw::Layout L>
  void slice(Ranks& ranks, const std::vector<float>& from, sw::Tensor<float, L>& to) {
    const sw::View<const float, sw::Invariant> view(from.data(), to.global(), place);
    sw::redistribute(ranks, pool, view, to.view());
  }

  void forward() { model.evaluate(x_view()); }
  void train() {
    model.forward(x_view());
    model.backward(dy_view());
    model.settle_gradients();
    model.next_step();
  }
  void run(bool training) { training ? train() : forward(); }

  /// Exits unless a step gives what the loops of `Reference` give.
  void require_results(Ranks& ranks, const by_hand::Convolution& exact, std::size_t terms) {
    sw::Tensor<float, typename W::out> y(out, place);
    sw::Tensor<float, typename W::in> dx(in, place);
    slice(ranks, exact.y, y);
    slice(ranks, exact.dx, dx);
    bench::require_equal("y", y.data(), model.forward(x_view()).data(), y.size(), terms);
    const auto got = model.backward(dy_view());
    bench::require_equal("dx", dx.data(), got.data(), dx.size(), terms);
    model.settle_gradients();
    const auto dw = model.gather_gradient("weight");
    bench::require_equal("dw", exact.dw.data(), dw.data(), dw.size(), terms);
    model.next_step();
  }

  sw::View<const float, typename W::in> x_view() const { return x.view(); }
  sw::View<const float, sw::dual_t<typename W::out>> dy_view() const {
    return {dy.data(), out, place};
  }

  sw::Place place;
  sw::Shape in;
  Model model;
  sw::Shape out;
  sw::Tensor<float, typename W::in> x;
  sw::Tensor<float, sw::dual_t<typename W::out>> dy;
  sw::Pool pool;
};

/// What a layer on two ranks sends, and nothing else.
template <class W, sw::Kernel Form>
class Sent {
 public:
  Sent(Ranks& ranks, const Ours<W, Form>& layer)
      : ranks_(&ranks),
        x_(layer.in, layer.place),
        y_(layer.out, layer.place),
        dw_(layer.model.layers().parameter_specs(layer.in)[0].shape, layer.place) {}

  void forward() {
    if constexpr (std::same_as<W, Input>) sum(y_);
    if constexpr (exchanges) move(block_, haloed_);
  }
  void run(bool training) {
    forward();
    if (!training) return;
    if constexpr (std::same_as<W, Output>) sum(x_);
    if constexpr (exchanges) move(partial_, block_);
    if constexpr (std::same_as<W, Batch> || std::same_as<W, Height>) sum(dw_);
  }

 private:
  static constexpr sw::Window window{.kernel = static_cast<std::size_t>(Form.size.values[0]),
                                     .before = static_cast<std::size_t>(Form.size.values[0] / 2),
                                     .after = static_cast<std::size_t>(Form.size.values[0] / 2)};
  static constexpr bool exchanges = std::same_as<W, Height> && !window.is_pointwise();

  void sum(sw::Tensor<float, sw::Invariant>& all) {
    const sw::View<const float, sw::Partial> part(all.data(), all.global(), all.place());
    sw::redistribute(*ranks_, pool_, part, all.view());
  }
  template <sw::Layout From, sw::Layout To>
  void move(const sw::Tensor<float, From>& from, sw::Tensor<float, To>& to) {
    sw::redistribute(*ranks_, pool_, from.view(), to.view());
  }

  Ranks* ranks_;
  sw::Tensor<float, sw::Invariant> x_, y_, dw_;
  sw::Tensor<float, sw::Sharded<sw::Axis::height>> block_{x_.global(), x_.place()};
  sw::Tensor<float, sw::Haloed<sw::Axis::height, window>> haloed_{x_.global(), x_.place()};
  sw::Tensor<float, sw::HaloedPartial<sw::Axis::height, window>> partial_{x_.global(), x_.place()};
  sw::Pool pool_;
};

/// The products of one rank, with nothing around them.
class Products {
 public:
  Products(sw::OneDnn& backend, by_hand::Convolution& shard, const bench::ConvolutionShard& part)
      : kernel_(backend, part.channels), shard_(&shard), call_(part.call) {}

  void run(bool training) {
    by_hand::Convolution& s = *shard_;
    if (training) ++version_;
    kernel_.forward(call_, s.x.data(), {s.w.data(), version_}, s.bias.data(), sw::Activation::none,
                    s.y.data());
    if (!training) return;
    kernel_.backward(call_, s.x.data(), s.dy.data(), {s.w.data(), version_}, sw::Write::replace,
                     s.dw.data(), s.db.data(), s.dx.data());
  }

 private:
  sw::OneDnn::Convolution<float> kernel_;
  by_hand::Convolution* shard_;
  sw::ConvolutionCall call_;
  std::uint64_t version_ = 1;
};

using Clock = std::chrono::steady_clock;

/// The second of two runs, which finds in the caches what the first one left there.
double seconds_together(Ranks& ranks, const std::function<void()>& run) {
  run();
  ranks.barrier();
  const auto begin = Clock::now();
  run();
  ranks.barrier();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void report(const char* what, const std::vector<double>& seconds) {
  const auto s = bench::Spread::of(seconds);
  std::printf("  %-28s %9.1f us [%9.1f, %9.1f]\n", what, s.median * 1e6, s.p10 * 1e6, s.p90 * 1e6);
}
void report_ratio(const char* what, const std::vector<double>& ratio) {
  const auto s = bench::Spread::of(ratio);
  std::printf("  %-28s %9.3f    [%9.3f, %9.3f]\n", what, s.median, s.p10, s.p90);
}

template <class W, sw::Kernel Form>
void measure(Ranks& ranks, Ranks& alone, const bench::ConvolutionShape& shape, const char* way,
             by_hand::Library& library, const by_hand::Convolution& exact, int rounds) {
  const auto part = shard_of<W>(shape, sw::place_of(ranks));
  by_hand::Convolution half(library, part, by_hand::Images::as_they_lie);
  by_hand::Convolution copied(library, part, by_hand::Images::as_the_library_likes);
  sw::OneDnn backend;
  Products products(backend, half, part);
  Ours<W, Form> two(ranks, shape, exact), one(alone, shape, exact);
  Sent<W, Form> sent(ranks, two);
  const std::size_t terms = shape.in * shape.out * shape.kernel;
  two.require_results(ranks, exact, terms);
  one.require_results(alone, exact, terms);

  const bool first = ranks.rank() == 0;
  for (const bool training : {false, true}) {
    const std::vector<std::function<void()>> runs{
        [&] { two.run(training); },
        [&] { products.run(training); },
        [&] { sent.run(training); },
        [&] {
          if (first) one.run(training);
        },
        [&] { training ? half.train() : half.forward(); },
        [&] { training ? copied.train() : copied.forward(); }};
    std::vector<std::vector<double>> seconds(runs.size());
    std::vector<double> over_one, of_ceiling;
    for (int round = -2; round < rounds; ++round) {
      std::vector<double> took;
      for (const auto& run : runs) took.push_back(seconds_together(ranks, run));
      if (round < 0) continue;
      for (std::size_t i = 0; i < runs.size(); ++i) seconds[i].push_back(took[i]);
      over_one.push_back(took[3] / took[0]);
      of_ceiling.push_back(std::min(took[4], took[5]) / took[0]);
    }
    if (!first) continue;
    std::printf("%s, by %s, %s\n", shape.name().c_str(), way,
                training ? "forward and backward" : "forward");
    report("two ranks", seconds[0]);
    report("  products alone", seconds[1]);
    report("  what is sent, alone", seconds[2]);
    report("one rank", seconds[3]);
    report("two free halves as they lie", seconds[4]);
    report("two free halves, copied", seconds[5]);
    report_ratio("two ranks over one", over_one);
    report_ratio("of the faster free halves", of_ceiling);
    std::fflush(stdout);
  }
}

/// All results of the whole layer by readable loops.
void work_out(by_hand::Convolution& problem, const bench::ConvolutionShard& shard) {
  sw::Reference reference;
  sw::Reference::Convolution<float> kernel(reference, shard.channels);
  kernel.forward(shard.call, problem.x.data(), {problem.w.data(), 1}, problem.bias.data(),
                 sw::Activation::none, problem.y.data());
  kernel.backward(shard.call, problem.x.data(), problem.dy.data(), {problem.w.data(), 1},
                  sw::Write::replace, problem.dw.data(), problem.db.data(), problem.dx.data());
}

template <sw::Kernel Form>
void measure_shape(Ranks& ranks, Ranks& alone, const bench::ConvolutionShape& shape, int rounds) {
  const sw::detail::onednn::ThreadLimit one_thread(1);
  by_hand::Library library;
  const auto whole = bench::whole(shape, images);
  by_hand::Convolution exact(library, whole, by_hand::Images::as_the_library_likes);
  work_out(exact, whole);
  measure<Output, Form>(ranks, alone, shape, "output", library, exact, rounds);
  measure<Input, Form>(ranks, alone, shape, "input", library, exact, rounds);
  measure<Batch, Form>(ranks, alone, shape, "batch", library, exact, rounds);
  measure<Height, Form>(ranks, alone, shape, "height", library, exact, rounds);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::begin_rounds(argc, argv, 9, " [all]");
  if (rounds == 0) return 2;
  const bool all = argc > 2 && std::strcmp(argv[2], "all") == 0;
  sw::run_ranks(2, [&](Ranks& ranks) {
    Ranks alone = ranks.split(ranks.rank(), 0);
    for (const bench::ConvolutionShape& shape : bench::resnet50(all)) {
      if (shape.stride != 1) continue;
      if (shape.kernel == 1)
        measure_shape<sw::kernel(1)>(ranks, alone, shape, rounds);
      else
        measure_shape<sw::kernel(3, {.padding = 1})>(ranks, alone, shape, rounds);
    }
  });
}
