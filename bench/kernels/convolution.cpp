// One rank's part of ResNet-50's convolutions in float: oneDNN called by hand, OneDnn::Convolution,
// and the layer in a model. One thread, and the time of that thread alone.
//
//     bench_kernels_convolution [rounds [all]]
//
// Every way has its images as they lie, channel by channel, and gives them so. By hand there are
// three of them: without copies of images; with copies into the layouts that oneDNN likes best,
// each made once; and with channels innermost. The fastest of them is what ours is held against.
// Beside it, the primitives in oneDNN's own layouts alone, which no layer with plain images
// reaches. Forward keeps its weights; in training they change in every step.

#include "shardwise/layers/convolution.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "kernels/convolution_by_hand.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "shardwise/comm/single_rank.hpp"
#include "shardwise/model/model.hpp"
#include "support/interleaved.hpp"
#include "support/require_equal.hpp"
#include "support/resnet50.hpp"
#include "support/rounds.hpp"

namespace {

namespace sw = shardwise;

constexpr std::size_t images = 4;

/// Runs the kernel of a backend on a problem's tensors, and keeps its results.
template <class Kernel>
struct Ours {
  const by_hand::Convolution& problem;
  bench::ConvolutionShard shard;
  Kernel kernel;
  std::uint64_t version = 1;
  std::vector<float> y, dx, dw, db;

  template <class Backend>
  Ours(Backend& backend, const by_hand::Convolution& given, const bench::ConvolutionShard& part)
      : problem(given),
        shard(part),
        kernel(backend, part.channels),
        y(given.y.size()),
        dx(given.dx.size()),
        dw(given.dw.size()),
        db(given.db.size()) {}

  void forward() {
    kernel.forward(shard.call, problem.x.data(), {problem.w.data(), version}, problem.bias.data(),
                   sw::Activation::none, y.data());
  }
  void train() {
    ++version;
    forward();
    kernel.backward(shard.call, problem.x.data(), problem.dy.data(), {problem.w.data(), version},
                    sw::Write::replace, dw.data(), db.data(), dx.data());
  }
};
using Kernels = Ours<sw::OneDnn::Convolution<float>>;
using Oracle = Ours<sw::Reference::Convolution<float>>;

/// Exits unless all results are the oracle's.
template <class Results>
void require_results(const std::string& who, const Oracle& oracle, const Results& got) {
  const bench::ConvolutionShard& s = oracle.shard;
  const auto equal = [&](const char* what, const auto& exact, const auto& ours, std::size_t terms) {
    bench::require_equal((who + ", " + what).c_str(), exact.data(), ours.data(), exact.size(),
                         terms);
  };
  equal("y", oracle.y, got.y, s.channels.in * s.call.taps());
  equal("dx", oracle.dx, got.dx, s.channels.out * s.call.taps());
  equal("dw", oracle.dw, got.dw, s.call.images * s.call.output_plane());
  equal("db", oracle.db, got.db, s.call.images * s.call.output_plane());
}

/// The layer alone in a model, on the problem's numbers.
template <class Layer>
struct InModel {
  using Model = sw::Model<Layer, sw::Context<float, sw::OneDnn, sw::SingleRank>,
                          sw::Ends<sw::Invariant, sw::Invariant>, sw::TrainWithInputGradient>;
  using Images = sw::View<const float, sw::Invariant>;

  InModel(const by_hand::Convolution& problem, const bench::ConvolutionShard& shard)
      : in{{sw::Axis::batch, shard.call.images},
           {sw::Axis::channel, shard.inputs()},
           {sw::Axis::height, shard.call.space[1].input},
           {sw::Axis::width, shard.call.space[2].input}},
        model(Layer(shard.inputs(), shard.outputs()), alone, sw::Seed{1}, in),
        x(problem.x.data(), in, sw::place_of(alone)),
        dy(problem.dy.data(), model.layers().output_shape(in), sw::place_of(alone)) {
    const auto weight = model.layers().parameter_specs(in)[0].shape;
    const auto bias = model.layers().parameter_specs(in)[1].shape;
    model.set("weight", {problem.w.data(), weight, sw::place_of(alone)});
    model.set("bias", {problem.bias.data(), bias, sw::place_of(alone)});
  }

  void forward() { model.evaluate(x); }
  void train() {
    model.forward(x);
    model.backward(dy);
    model.next_step();
  }

  struct Results {
    std::span<const float> y, dx;
    sw::Tensor<float, sw::Invariant> dw, db;
  };
  void require_results_of(const Oracle& oracle) {
    const std::span<const float> y = model.forward(x).span();
    const std::vector<float> kept(y.begin(), y.end());
    const std::span<const float> dx = model.backward(dy).span();
    require_results(
        "layer", oracle,
        Results{kept, dx, model.gather_gradient("weight"), model.gather_gradient("bias")});
    model.next_step();
  }

  sw::SingleRank alone;
  sw::Shape in;
  Model model;
  Images x, dy;
};

void measure(const std::string& title, const std::vector<bench::Candidate>& by_hand,
             const std::vector<bench::Candidate>& ours, const bench::Effort& effort) {
  // Which way by hand is the fastest is found beforehand, so that ratios are taken in one run.
  const auto tried =
      bench::interleave({by_hand.begin(), by_hand.end() - 1}, {7, 1e-3, effort.clock});
  const auto fastest = std::min_element(
      tried.begin(), tried.end(),
      [](const auto& a, const auto& b) { return a.seconds.median < b.seconds.median; });
  std::vector<bench::Candidate> candidates{
      by_hand[static_cast<std::size_t>(fastest - tried.begin())], by_hand.back()};
  candidates.insert(candidates.end(), ours.begin(), ours.end());
  bench::print(title, bench::interleave(candidates, effort));
}

template <sw::Kernel Form>
void measure_form(const bench::ConvolutionShape& shape, const std::string& part,
                  by_hand::Library& library, const bench::Effort& effort) {
  const bench::ConvolutionShard shard = bench::whole(shape, images);
  using by_hand::Images;
  by_hand::Convolution plain(library, shard, Images::as_they_lie);
  by_hand::Convolution copied(library, shard, Images::as_the_library_likes);
  by_hand::Convolution last(library, shard, Images::channels_last);
  sw::OneDnn backend;
  sw::Reference reference;
  Kernels kernel(backend, plain, shard);
  InModel<sw::Conv2d<sw::split::none, sw::dynamic, sw::dynamic, Form>> layer(plain, shard);

  Oracle oracle(reference, plain, shard);
  oracle.train();
  plain.train(), copied.train(), last.train(), kernel.train();
  require_results("plain by hand", oracle, plain);
  require_results("copied by hand", oracle, copied);
  require_results("channels last by hand", oracle, last);
  require_results("kernel", oracle, kernel);
  layer.require_results_of(oracle);

  const std::string title = shape.name() + part;
  measure(title + ": forward",
          {{"by hand, images as they lie", [&] { plain.forward(); }},
           {"by hand, images copied", [&] { copied.forward(); }},
           {"by hand, channels last", [&] { last.forward(); }},
           {"(primitives without copies)", [&] { copied.forward_without_copies(); }}},
          {{"kernel", [&] { kernel.forward(); }}, {"layer", [&] { layer.forward(); }}}, effort);
  measure(title + ": forward and backward",
          {{"by hand, images as they lie", [&] { plain.train(); }},
           {"by hand, images copied", [&] { copied.train(); }},
           {"by hand, channels last", [&] { last.train(); }},
           {"(primitives without copies)", [&] { copied.train_without_copies(); }}},
          {{"kernel", [&] { kernel.train(); }}, {"layer", [&] { layer.train(); }}}, effort);
}

void measure_part(const bench::ConvolutionShape& shape, const std::string& part,
                  by_hand::Library& library, const bench::Effort& effort) {
  if (shape.kernel == 1 && shape.stride == 1)
    measure_form<sw::kernel(1)>(shape, part, library, effort);
  if (shape.kernel == 1 && shape.stride == 2)
    measure_form<sw::kernel(1, {.stride = 2})>(shape, part, library, effort);
  if (shape.kernel == 3 && shape.stride == 1)
    measure_form<sw::kernel(3, {.padding = 1})>(shape, part, library, effort);
  if (shape.kernel == 3 && shape.stride == 2)
    measure_form<sw::kernel(3, {.stride = 2, .padding = 1})>(shape, part, library, effort);
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::begin_rounds(argc, argv, 11, " [all]");
  if (rounds == 0) return 2;
  const bool all = argc > 2 && std::strcmp(argv[2], "all") == 0;
  const shardwise::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  by_hand::Library library;
  const bench::Effort effort{rounds, 1e-3, bench::Clock::thread};
  for (const bench::ConvolutionShape& shape : bench::resnet50(all)) {
    measure_part(shape, "", library, effort);
    bench::ConvolutionShape half = shape;
    half.out /= 2;
    measure_part(half, " (half of the outputs)", library, effort);
    if (!all) continue;
    half = shape;
    half.in /= 2;
    measure_part(half, " (half of the inputs)", library, effort);
  }
}
