// The products of one linear layer in float and double, through Cblas::Linear and by cblas_sgemm
// and cblas_dgemm called by hand, of all of it and of what one of two ranks has. One thread, and
// the time of that thread alone.
//
//     bench_kernels_linear_cblas [--rounds=N] [--quick] [--benchmark_filter=REGEX] ...

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/cblas_layer.hpp"
#include "kernels/linear_layer.hpp"
#include "shardwise/backend/cblas/cblas.hpp"
#include "support/interleaved.hpp"
#include "support/program.hpp"

namespace {

using bench::LinearProduct;
using bench::LinearShape;

template <class T>
void run_by_hand(bench::LinearLayer<shardwise::Cblas, T>& l, LinearProduct product) {
  auto& [y, dx, dw, db] = l.results;
  const bool of_weight = product == LinearProduct::backward_weight;
  by_hand::CblasLayer<T>{l.shape.rows,
                         l.shape.in,
                         l.shape.out,
                         product == LinearProduct::backward_input ? dx.data() : l.x.data(),
                         of_weight ? dw.data() : l.w.data(),
                         of_weight ? db.data() : l.bias.data(),
                         product == LinearProduct::forward ? y.data() : l.dy.data()}(product, true);
}

template <class T>
std::vector<bench::Timing> measure(const LinearShape& shape, LinearProduct product,
                                   const bench::Effort& effort) {
  bench::LinearLayer<shardwise::Cblas, T> layer(shape);
  const std::vector<bench::Candidate> candidates{
      {"gemm by hand", [&] { run_by_hand(layer, product); }},
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
