// A backend of your own: a type of about fifty lines.
//
//     Context<float, Counting, ThreadCommunicator>
//                       │
//                       ├─ Linear<float>   three products, which assign or add
//                       └─ for_each        a function, once for every index
//
// It computes by plain loops and counts the multiplications of its rank. A model gets the same
// losses with it as with `Reference`, and on two ranks each multiplies half as often.
//
// test:
#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <vector>

#include "shardwise/shardwise.hpp"

namespace sw = shardwise;

namespace {

// begin: backend
/// Plain loops in float that count their multiplications. A model makes its own, or gets one from
/// its caller.
struct Counting {
  std::size_t multiplications = 0;

  template <class F>
  void for_each(std::size_t count, F f) {
    for (std::size_t i = 0; i < count; ++i) f(i);
  }

  /// The products of one layer. It exists only for float; other dtypes do not compile.
  template <std::same_as<float> T>
  class Linear {
   public:
    Linear(Counting& backend, std::size_t in, std::size_t out)
        : backend_(backend), in_(in), out_(out) {}

    /// y = activation(x wᵀ + bias); bias may be null.
    void forward(std::size_t rows, const T* x, sw::Weight<T> w, const T* bias,
                 sw::Activation activation, T* y) {
      visit(activation, [&](auto function) {
        for (std::size_t r = 0; r < rows; ++r)
          for (std::size_t o = 0; o < out_; ++o) {
            T sum = bias == nullptr ? T(0) : bias[o];
            for (std::size_t i = 0; i < in_; ++i) sum += x[r * in_ + i] * w.data[o * in_ + i];
            y[r * out_ + o] = function.value(sum);
          }
      });
      backend_.multiplications += rows * out_ * in_;
    }

    /// dx = dy w.
    void backward_input(std::size_t rows, const T* dy, sw::Weight<T> w, T* dx) {
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < in_; ++i) {
          T sum = 0;
          for (std::size_t o = 0; o < out_; ++o) sum += dy[r * out_ + o] * w.data[o * in_ + i];
          dx[r * in_ + i] = sum;
        }
      backend_.multiplications += rows * out_ * in_;
    }

    /// dw = dyᵀ x and db = Σ dy, or added to what is there; db may be null.
    void backward_weight(std::size_t rows, const T* x, const T* dy, sw::Write write, T* dw, T* db) {
      if (write == sw::Write::replace) {
        std::fill_n(dw, out_ * in_, T(0));
        if (db != nullptr) std::fill_n(db, out_, T(0));
      }
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t o = 0; o < out_; ++o) {
          const T slope = dy[r * out_ + o];
          if (db != nullptr) db[o] += slope;
          for (std::size_t i = 0; i < in_; ++i) dw[o * in_ + i] += slope * x[r * in_ + i];
        }
      backend_.multiplications += rows * out_ * in_;
    }

   private:
    Counting& backend_;
    std::size_t in_, out_;
  };
};

static_assert(sw::Backend<Counting, float> && !sw::Backend<Counting, double>);
// end: backend

struct Mlp : sw::Sequential<sw::ColumnParallelLinear<6, 8>, sw::Gelu, sw::RowParallelLinear<8, 3>> {
};

const sw::Shape input{{sw::Axis::batch, 5}, {sw::Axis::feature, 6}};

/// Makes a training step, and returns an output of the trained model. `backend` is the caller's.
template <class Backend, sw::Communicator C>
std::vector<float> trained_output(C& ranks, Backend& backend) {
  sw::Model<Mlp, sw::Context<float, Backend, C>> model(Mlp{}, ranks, sw::Seed{1}, input, backend);
  sw::Optimizer optimizer(model, sw::Sgd{.learning_rate = 0.1});
  sw::Tensor<float, sw::Invariant> x(input, place_of(ranks));
  sw::Tensor<std::int32_t, sw::Invariant> labels({input[0]}, place_of(ranks));
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i % 3);
  train_step(model, x.view(), labels.view(), sw::CrossEntropy{}, optimizer);
  const auto y = model.evaluate(x.view());
  return {y.span().begin(), y.span().end()};
}

}  // namespace

int main() try {
  for (const int world_size : {1, 2}) {
    sw::run_ranks(world_size, [&](sw::ThreadCommunicator& ranks) {
      Counting mine;
      sw::Reference reference;
      const std::vector<float> y = trained_output(ranks, mine);
      const std::vector<float> expected = trained_output(ranks, reference);
      for (std::size_t i = 0; i < y.size(); ++i)
        if (!(std::abs(y[i] - expected[i]) <= 1e-5F))
          throw std::runtime_error("the output is not that of Reference");
      if (ranks.rank() == 0)
        std::printf("%d rank(s): rank 0 multiplied %zu times\n", world_size, mine.multiplications);
    });
  }
  return 0;
} catch (const std::exception& e) {
  std::fprintf(stderr, "12_your_own_backend: %s\n", e.what());
  return 1;
}
