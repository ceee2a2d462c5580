// The perceptron by OpenBLAS on two threads: five matrix products, and plain loops on one thread
// for biases, ReLU and the sums that are gradients of biases.
//
//     peer_openblas_threads FOLDER

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/column_sums.hpp"
#include "peers/perceptron_by_hand.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/cblas/cblas.hpp"

namespace {

using peers::Part;
using peers::Values;

/// A function that only OpenBLAS has. The headers of other libraries do not declare it.
template <class F>
F* openblas(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return reinterpret_cast<F*>(found);
  throw std::runtime_error(std::string("the CBLAS of this program is not OpenBLAS: it has no ") +
                           name + ". On Debian, update-alternatives chooses libopenblas");
}

/// to[m, n] = op(a) op(b), all of them row-major.
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, std::size_t m, std::size_t n, std::size_t k,
          const Values& a, const Values& b, Values& to) {
  const auto i = [](std::size_t number) { return static_cast<int>(number); };
  cblas_sgemm(CblasRowMajor, op_a, op_b, i(m), i(n), i(k), 1, a.data(),
              i(op_a == CblasNoTrans ? k : m), b.data(), i(op_b == CblasNoTrans ? n : k), 0,
              to.data(), i(n));
}

void add_bias(const Values& bias, bool relu, Values& y) {
  for (std::size_t i = 0; i < y.size(); i += bias.size())
    for (std::size_t o = 0; o < bias.size(); ++o)
      y[i + o] = relu ? std::max(0.0F, y[i + o] + bias[o]) : y[i + o] + bias[o];
}

void run(Part& part, bool training) {
  constexpr std::size_t in = Part::in, hidden = Part::hidden, out = Part::out;
  const std::size_t rows = part.count();
  auto& p = part.by_onednn;  // its matrices
  gemm(CblasNoTrans, CblasTrans, rows, hidden, in, p.x, p.w1, p.h);
  add_bias(p.b1, true, p.h);
  gemm(CblasNoTrans, CblasTrans, rows, out, hidden, p.h, p.w2, p.y);
  add_bias(p.b2, false, p.y);
  if (!training) return;
  by_hand::ColumnSums<float> add_up;
  gemm(CblasTrans, CblasNoTrans, out, hidden, rows, p.dy, p.h, p.dw2);
  add_up(p.dy, p.db2);
  gemm(CblasNoTrans, CblasNoTrans, rows, hidden, out, p.dy, p.w2, p.dh);
  p.take_slope(p.dh.size(), p.h.data(), p.dh.data());
  gemm(CblasTrans, CblasNoTrans, hidden, in, rows, p.dh, p.x, p.dw1);
  add_up(p.dh, p.db1);
}

}  // namespace

int main(int argc, char** argv) {
  return peers::contend_alone([&] {
    if (argc != 2) throw std::runtime_error("usage: peer_openblas_threads FOLDER");
    openblas<void(int)>("openblas_set_num_threads")(2);
    std::printf("version OpenBLAS %s\n", openblas<char*()>("openblas_get_config")());
    Part all(0, 1, argv[1]);
    const auto turn = [&](bool training) { run(all, training); };
    all.require_results(turn, true);
    peers::take_turns(true, peers::read_turn, turn);
  });
}
