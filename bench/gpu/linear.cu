// A linear layer in a model on one rank, against the fastest calls of cuBLASLt written by hand,
// both with the best of eight algorithms. Time of the device between two events around many calls.
//
//     bench_gpu_linear [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// "share of peak" is what the layer computes in a second over what cuBLASLt by hand does with
// square matrices of 8192, in the same round. At 16 rows both are also launched as CUDA graphs.
// Weights are about twice as large as the cache of an H200, or larger, so that every call reads
// them anew. Products apply ReLU on both sides (CudaOptions::fused_relu), but where the name says
// that ours do not.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/linear_by_hand.hpp"
#include "gpu/linear_model.hpp"
#include "gpu/program.hpp"
#include "shardwise/backend/cuda/cuda.hpp"
#include "shardwise/backend/cuda/graph.hpp"

namespace {

namespace sw = shardwise;
using bench::LinearSizes;
using bench::Timing;

/// The product that nothing is said to be faster than.
template <class T>
class Peak {
 public:
  Peak(sw::Cuda& backend, bool tf32)
      : pool_(backend.memory()),
        workspace_(pool_.take(workspace_bytes)),
        a_(backend, pool_, size * size, 1),
        b_(backend, pool_, size * size, 2),
        d_(pool_, size * size),
        product_(
            {backend.session().cublaslt(), backend.stream(), workspace_.data(), workspace_bytes},
            {by_hand::cuda_type<T>(), tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
             CUBLAS_OP_T, CUBLAS_OP_N, size, size, size, a_.data(), b_.data(), d_.data()}) {}

  void operator()() { product_(); }
  static constexpr double operations() { return 2.0 * size * size * size; }

 private:
  static constexpr std::size_t size = 8192;
  static constexpr std::size_t workspace_bytes = std::size_t{32} << 20;

  sw::Pool pool_;
  sw::Buffer workspace_;
  bench::Numbers<T> a_, b_, d_;
  by_hand::Product product_;
};

enum class Part { forward, training };

template <class Architecture, class T>
std::vector<Timing> measure(sw::Cuda& backend, const LinearSizes& sizes, Part part, int rounds) {
  const bool tf32 = backend.session().options().tf32;
  const bool trains = part == Part::training;
  const double factor_epsilon = tf32 ? 0x1p-11 : 0;
  bench::LinearModel<Architecture, sw::Cuda, T> layer(backend, sizes);
  by_hand::Linear<sw::Cuda, T> hand(backend, sizes, layer.pointers(), Architecture::relu, tf32);
  const std::function<void()> run_hand = [&] { trains ? hand.train() : hand.forward(); };
  const std::function<void()> run_layer = [&] { trains ? layer.train() : layer.forward(); };
  run_hand();
  const auto right_by_hand = bench::required(backend, "by hand, ", factor_epsilon);
  right_by_hand("y", hand.products().y());
  if (trains) hand.products().each_gradient(right_by_hand);
  layer.require_right(trains, factor_epsilon);
  run_layer();

  const double operations = (trains ? 3 : 1) * sizes.operations();
  Peak<T> peak(backend, tf32);
  constexpr std::ptrdiff_t of_peak = 1;  // not the first one, which speeds are relative to
  std::vector<bench::Candidate> candidates{
      {"cuBLASLt by hand", run_hand}, {"peak", [&] { peak(); }}, {"layer", run_layer}};
  std::optional<sw::CudaGraph> of_hand, of_layer;
  if (!trains && sizes.rows == 16) {
    of_hand.emplace(backend, run_hand);
    bench::poison(backend, hand.products().at.y, sizes.rows * sizes.out);
    of_hand->launch();
    right_by_hand("y of the graph", hand.products().y());
    of_layer.emplace(backend, run_layer);
    layer.result_of_forward([&] { of_layer->launch(); },
                            bench::required(backend, "layer, graph, ", factor_epsilon));
    candidates.push_back({"cuBLASLt by hand, graph", [&] { of_hand->launch(); }});
    candidates.push_back({"layer, graph", [&] { of_layer->launch(); }});
  }
  std::vector<Timing> timings = bench::interleave_on(backend.stream(), candidates, rounds);
  const double share_of_peak =
      timings[of_peak].ours_over.median * operations / Peak<T>::operations();
  timings.erase(timings.begin() + of_peak);
  timings = bench::with_speed(timings, "TFLOP/s", 1e-12 * operations);
  timings.back().also.emplace_back("share of peak", share_of_peak);
  return timings;
}

template <class Architecture, class T>
void add(bench::Program& program, sw::Cuda& backend, const std::string& dtype,
         const LinearSizes& sizes) {
  for (const Part part : {Part::forward, Part::training}) {
    program.add(dtype + "/" + Architecture::title + "/" + sizes.name() +
                    (part == Part::forward ? "/forward" : "/forward and backward"),
                [=, &program, &backend] {
                  return measure<Architecture, T>(backend, sizes, part, program.rounds());
                });
  }
}

/// A perceptron's two layers.
struct Widths {
  std::size_t narrow, wide;
};

template <class T>
void add(bench::Program& program, sw::Cuda& backend, const std::string& dtype,
         const std::vector<Widths>& widths, const std::vector<std::size_t>& rows) {
  for (const Widths& w : program.sizes(widths)) {
    for (const std::size_t r : program.sizes(rows)) {
      add<bench::Expand, T>(program, backend, dtype, {r, w.narrow, w.wide});
      add<bench::Contract, T>(program, backend, dtype, {r, w.wide, w.narrow});
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  return bench::run_on_gpu(argc, argv, 7, [](bench::Program& program) {
    sw::Cuda exact(sw::CudaOptions{.fused_relu = true, .time_candidates = true});
    sw::Cuda fast(sw::CudaOptions{.tf32 = true, .fused_relu = true, .time_candidates = true});
    sw::Cuda apart(sw::CudaOptions{.time_candidates = true});
    const std::vector<Widths> all{{4096, 14336}, {8192, 28672}, {12288, 49152}};
    add<sw::bf16>(program, exact, "bf16", all, {16, 128, 1024, 2048, 8192});
    for (const std::size_t rows : program.sizes<std::size_t>({16, 2048}))
      add<bench::Expand, sw::bf16>(program, apart, "bf16, ReLU not fused",
                                   {rows, all[0].narrow, all[0].wide});
    add<sw::fp16>(program, exact, "fp16", {all[0]}, {16, 2048});
    add<float>(program, fast, "tf32", {all[0]}, {16, 2048});
    add<float>(program, exact, "float", {all[0]}, {16, 2048});
    return program.run();
  });
}
