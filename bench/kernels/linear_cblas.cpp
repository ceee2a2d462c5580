// The products of one linear layer in float and double, through Cblas::Linear and by cblas_sgemm
// and cblas_dgemm called by hand, of all of it and of what one of two ranks has. One thread, and
// the time of that thread alone.
//
//     bench_kernels_linear_cblas [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <cblas.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kernels/linear_layer.hpp"
#include "shardwise/backend/cblas/cblas.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace {

using bench::LinearProduct;
using bench::LinearShape;

/// c[m, n] = op(a) op(b), with as many numbers in a row of a and b as they lie.
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, const float* a,
          int row_of_a, const float* b, int row_of_b, float* c) {
  cblas_sgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, a, row_of_a, b, row_of_b, 0, c, n);
}
void gemm(CBLAS_TRANSPOSE op_a, CBLAS_TRANSPOSE op_b, int m, int n, int k, const double* a,
          int row_of_a, const double* b, int row_of_b, double* c) {
  cblas_dgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, a, row_of_a, b, row_of_b, 0, c, n);
}

template <class T>
void by_hand(bench::LinearLayer<shardwise::Cblas, T>& l, LinearProduct product) {
  const int rows = static_cast<int>(l.shape.rows);
  const int in = static_cast<int>(l.shape.in);
  const int out = static_cast<int>(l.shape.out);
  auto& [y, dx, dw, db] = l.results;
  switch (product) {
    case LinearProduct::forward:
      gemm(CblasNoTrans, CblasTrans, rows, out, in, l.x.data(), in, l.w.data(), in, y.data());
      for (std::size_t i = 0; i < y.size(); i += l.bias.size())
        for (std::size_t o = 0; o < l.bias.size(); ++o)
          y[i + o] = std::max(T(0), y[i + o] + l.bias[o]);
      return;
    case LinearProduct::backward_input:
      return gemm(CblasNoTrans, CblasNoTrans, rows, in, out, l.dy.data(), out, l.w.data(), in,
                  dx.data());
    case LinearProduct::backward_weight:
      gemm(CblasTrans, CblasNoTrans, out, in, rows, l.dy.data(), out, l.x.data(), in, dw.data());
      std::fill(db.begin(), db.end(), T(0));
      for (std::size_t i = 0; i < l.dy.size(); i += db.size())
        for (std::size_t o = 0; o < db.size(); ++o) db[o] += l.dy[i + o];
  }
}

template <class T>
std::vector<bench::Timing> measure(const LinearShape& shape, LinearProduct product,
                                   const bench::Effort& effort) {
  bench::LinearLayer<shardwise::Cblas, T> layer(shape);
  const std::vector<bench::Candidate> candidates{{"gemm by hand", [&] { by_hand(layer, product); }},
                                                 {"ours", [&] { layer.run(product); }}};
  layer.require(product, candidates);
  return bench::interleave(candidates, effort);
}

template <class T>
void add(bench::Program& program, const std::string& dtype) {
  const bench::Effort effort{program.rounds(), 1e-3, bench::Clock::thread};
  for (const std::size_t rows : program.sizes<std::size_t>({16, 1, 512})) {
    const std::vector<LinearShape> shapes{{rows, 1024, 4096},
                                          {rows, 4096, 1024},
                                          {rows, 1024, 2048},  // half of the first one's outputs
                                          {rows, 512, 4096}};  // half of its inputs
    for (const LinearShape& shape : shapes) {
      for (const auto product :
           {LinearProduct::forward, LinearProduct::backward_input, LinearProduct::backward_weight})
        program.add(dtype + "/" + name(product) + "/" + shape.name(),
                    [=] { return measure<T>(shape, product, effort); });
    }
  }
}

/// The processor that OpenBLAS computes for; it may be told another one by OPENBLAS_CORETYPE.
std::string core() {
  const auto name = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_corename"));
  return name == nullptr ? "another library" : name();
}

}  // namespace

int main(int argc, char** argv) {
  bench::Program program(argc, argv, 15);
  program.note("OpenBLAS computes for", core());
  add<float>(program, "float");
  add<double>(program, "double");
  return program.run();
}
