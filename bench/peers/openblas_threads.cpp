// The perceptron by OpenBLAS on two threads: five matrix products, and plain loops on one thread
// for biases, ReLU and the sums that are gradients of biases.
//
//     peer_openblas_threads FOLDER

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "kernels/cblas_layer.hpp"
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

void run(Part& part, bool training) {
  auto& p = part.by_onednn;  // its matrices
  using Layer = by_hand::CblasLayer<float>;
  using enum bench::LinearProduct;
  const std::size_t rows = part.count();
  const auto at = [](Values& values) { return values.data(); };
  Layer{rows, Part::in, Part::hidden, at(p.x), at(p.w1), at(p.b1), at(p.h)}(forward, true);
  Layer{rows, Part::hidden, Part::out, at(p.h), at(p.w2), at(p.b2), at(p.y)}(forward);
  if (!training) return;
  Layer{rows, Part::hidden, Part::out, at(p.h), at(p.dw2), at(p.db2), at(p.dy)}(backward_weight);
  Layer{rows, Part::hidden, Part::out, at(p.dh), at(p.w2), nullptr, at(p.dy)}(backward_input);
  p.take_slope(p.dh.size(), at(p.h), at(p.dh));
  Layer{rows, Part::in, Part::hidden, at(p.x), at(p.dw1), at(p.db1), at(p.dh)}(backward_weight);
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
