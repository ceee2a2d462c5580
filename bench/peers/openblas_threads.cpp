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

#include "peers/perceptron_by_hand.hpp"
#include "peers/turns.hpp"
#include "shardwise/backend/cblas/cblas.hpp"

namespace {

using peers::Part;
using peers::Values;

constexpr int in = Part::in, hidden = Part::hidden, out = Part::out;

/// A function that only OpenBLAS has. The headers of other libraries do not declare it.
template <class F>
F* openblas(const char* name) {
  if (void* found = dlsym(RTLD_DEFAULT, name)) return reinterpret_cast<F*>(found);
  throw std::runtime_error(std::string("the CBLAS of this program is not OpenBLAS: it has no ") +
                           name + ". On Debian, update-alternatives chooses libopenblas");
}

/// c[m, n] = op(a) op(b), with as many numbers in a row of a and b as they lie.
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, const Values& a,
          int row_of_a, const Values& b, int row_of_b, Values& c) {
  cblas_sgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, a.data(), row_of_a, b.data(), row_of_b, 0,
              c.data(), n);
}

void add_bias(const Values& bias, Values& y) {
  for (std::size_t row = 0; row < y.size(); row += bias.size())
    for (std::size_t o = 0; o < bias.size(); ++o) y[row + o] += bias[o];
}

void add_bias_and_clip(const Values& bias, Values& y) {
  for (std::size_t row = 0; row < y.size(); row += bias.size())
    for (std::size_t o = 0; o < bias.size(); ++o) y[row + o] = std::max(0.0F, y[row + o] + bias[o]);
}

void sum_columns(const Values& matrix, Values& sums) {
  std::fill(sums.begin(), sums.end(), 0.0F);
  for (std::size_t row = 0; row < matrix.size(); row += sums.size())
    for (std::size_t o = 0; o < sums.size(); ++o) sums[o] += matrix[row + o];
}

void run(Part& part, bool training) {
  auto& p = part.by_onednn;
  const int rows = static_cast<int>(part.count());
  gemm(CblasNoTrans, CblasTrans, rows, hidden, in, p.x, in, p.w1, in, p.h);
  add_bias_and_clip(p.b1, p.h);
  gemm(CblasNoTrans, CblasTrans, rows, out, hidden, p.h, hidden, p.w2, hidden, p.y);
  add_bias(p.b2, p.y);
  if (!training) return;
  gemm(CblasTrans, CblasNoTrans, out, hidden, rows, p.dy, out, p.h, hidden, p.dw2);
  sum_columns(p.dy, p.db2);
  gemm(CblasNoTrans, CblasNoTrans, rows, hidden, out, p.dy, out, p.w2, hidden, p.dh);
  p.take_slope(p.dh.size(), p.h.data(), p.dh.data());
  gemm(CblasTrans, CblasNoTrans, hidden, in, rows, p.dh, hidden, p.x, in, p.dw1);
  sum_columns(p.dh, p.db1);
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
