// The products of a linear layer in float and bf16, through OneDnn::Linear and by the same
// primitives called by hand. One thread, and the time of that thread alone.
//
//     bench_kernels_linear [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...
//
// "packed": the weight stays, and has been packed by hand, and by OneDnn::Linear where it thinks
// that this pays. "plain": it changes before every call, as in training. Of 1024 -> 4096 also what
// one of 2, 4 or 8 ranks has: a column shard is a part of the outputs, a row shard of the inputs.
// Row shards have no ReLU, for their outputs are added up first.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/by_hand.hpp"
#include "kernels/column_sums.hpp"
#include "shardwise/backend/onednn/onednn.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"
#include "support/random_values.hpp"
#include "support/require_equal.hpp"

namespace {

using bench::Candidate;
using by_hand::Pass;

std::string name_of(Pass pass) {
  constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
  return names[static_cast<int>(pass)];
}

/// x[rows, in], w[out, in], y[rows, out].
struct Shape {
  std::size_t rows, in, out;
  bool relu = true;

  std::string name() const {
    return "rows:" + std::to_string(rows) + '/' + std::to_string(in) + "->" + std::to_string(out);
  }
};

/// One layer on one rank: random matrices, all row-major, and the kernel for them.
template <class T>
class Layer {
 public:
  explicit Layer(const Shape& s)
      : shape_(s),
        x_(bench::random_values<T>(s.rows * s.in, 1)),
        w_(bench::random_values<T>(s.out * s.in, 2)),
        bias_(bench::random_values<T>(s.out, 3)),
        dy_(bench::random_values<T>(s.rows * s.out, 4)),
        got_{std::vector<T>(s.rows * s.out), std::vector<T>(s.rows * s.in),
             std::vector<T>(s.out * s.in), std::vector<T>(s.out)} {}

  std::vector<bench::Timing> compare(Pass pass, bool packed, int rounds) {
    stays_ = packed;
    std::vector<Candidate> candidates = packed ? with_packed_weight(pass) : with_plain_weight(pass);
    candidates.push_back({"ours", [this, pass, packed] {
                            if (!packed) ++version_;
                            run(kernel_, pass, got_);
                          }});
    require(pass, candidates);
    return bench::interleave(candidates, {rounds, 1e-3, bench::Clock::thread});
  }

 private:
  /// What the three products write.
  struct Results {
    std::vector<T> y, dx, dw, db;
  };

  std::vector<Candidate> with_packed_weight(Pass pass) {
    using enum by_hand::Weights;
    return {{"matmul by hand", by_hand_of(pass).matmul(library_, pass, shape_.relu, packed)}};
  }

  /// The weight is used as it lies, or packed in each call.
  std::vector<Candidate> with_plain_weight(Pass pass) {
    using enum by_hand::Weights;
    const by_hand::Linear<T> layer = by_hand_of(pass);
    const Candidate inner{
        "inner product by hand",
        layer.inner_product(library_, pass, pass == Pass::forward && shape_.relu)};
    if (pass == Pass::backward_weight)
      return {inner, {"matmul and sums by hand", [this, product = layer.matmul(library_, pass)] {
                        product();
                        add_up_(dy_, got_.db);
                      }}};
    return {
        {"matmul by hand", layer.matmul(library_, pass, shape_.relu)},
        inner,
        {"pack and matmul by hand", layer.matmul(library_, pass, shape_.relu, packed_each_time)}};
  }

  by_hand::Linear<T> by_hand_of(Pass pass) {
    const bool of_weight = pass == Pass::backward_weight;
    const auto dim = [](std::size_t n) { return static_cast<by_hand::Dim>(n); };
    return {dim(shape_.rows),
            dim(shape_.in),
            dim(shape_.out),
            (pass == Pass::backward_input ? got_.dx : x_).data(),
            (of_weight ? got_.dw : w_).data(),
            (of_weight ? got_.db : bias_).data(),
            (pass == Pass::forward ? got_.y : dy_).data()};
  }

  /// Throws unless every candidate leaves in `got_` what the oracle makes of the matrices.
  void require(Pass pass, const std::vector<Candidate>& candidates) {
    shardwise::Reference reference;
    shardwise::Reference::Linear<T> oracle(reference, shape_.in, shape_.out);
    Results exact = got_;
    run(oracle, pass, exact);
    if (pass == Pass::forward) bench::require_each(candidates, exact.y, got_.y, shape_.in);
    if (pass == Pass::backward_input)
      bench::require_each(candidates, exact.dx, got_.dx, shape_.out);
    if (pass != Pass::backward_weight) return;
    bench::require_each(candidates, exact.dw, got_.dw, shape_.rows);
    bench::require_each(candidates, exact.db, got_.db, shape_.rows);
  }

  template <class Kernel>
  void run(Kernel& kernel, Pass pass, Results& to) const {
    using enum shardwise::Activation;
    const shardwise::Weight<T> weight{w_.data(), version_, stays_};
    switch (pass) {
      case Pass::forward:
        return kernel.forward(shape_.rows, x_.data(), weight, bias_.data(),
                              shape_.relu ? relu : none, to.y.data());
      case Pass::backward_input:
        return kernel.backward_input(shape_.rows, dy_.data(), weight, to.dx.data());
      case Pass::backward_weight:
        return kernel.backward_weight(shape_.rows, x_.data(), dy_.data(), shardwise::Write::replace,
                                      to.dw.data(), to.db.data());
    }
  }

  Shape shape_;
  std::vector<T> x_, w_, bias_, dy_;
  Results got_;
  by_hand::Library library_;
  by_hand::ColumnSums<T> add_up_;
  shardwise::OneDnn backend_;
  shardwise::OneDnn::Linear<T> kernel_{backend_, shape_.in, shape_.out};
  std::uint64_t version_ = 0;
  bool stays_ = false;
};

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  const auto compare = [&](Pass pass, bool packed, const Shape& shape, const std::string& of = "") {
    program.add(
        dtype + "/" + name_of(pass) + (packed ? "/packed/" : "/plain/") + shape.name() + of,
        [=, rounds = program.rounds()] { return Layer<T>(shape).compare(pass, packed, rounds); });
  };
  for (const std::size_t rows : program.sizes<std::size_t>({16, 1, 128, 512})) {
    for (const Shape shape : {Shape{rows, 1024, 4096}, Shape{rows, 4096, 1024}}) {
      for (const Pass pass : {Pass::forward, Pass::backward_input}) {
        compare(pass, true, shape);
        compare(pass, false, shape);
      }
      compare(Pass::backward_weight, false, shape);
    }
  }
  for (const std::size_t rows : program.sizes<std::size_t>({16, 512})) {
    for (const std::size_t ranks : program.sizes<std::size_t>({2, 4, 8})) {
      for (const Pass pass : {Pass::forward, Pass::backward_input, Pass::backward_weight}) {
        const bool packed = pass == Pass::forward;
        compare(pass, packed, {rows, 1024, 4096 / ranks}, "/column shard");
        compare(pass, packed, {rows, 1024 / ranks, 4096, false}, "/row shard");
      }
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("oneDNN instruction set", by_hand::instruction_set());
  const shardwise::detail::onednn::ThreadLimit one_thread(1);  // for the calls by hand too
  add<float>(program, "float");
  if (by_hand::multiplies_bf16()) add<shardwise::bf16>(program, "bf16");
  return program.run();
}
