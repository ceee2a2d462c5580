#pragma once
// One linear layer on one rank: its matrices, a backend's kernel, and what the oracle makes of
// them.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/linear_product.hpp"
#include "shardwise/backend/reference.hpp"
#include "support/interleaved.hpp"
#include "support/random_values.hpp"
#include "support/require_equal.hpp"

namespace bench {

/// x[rows, in], w[out, in], y[rows, out].
struct LinearShape {
  std::size_t rows, in, out;

  std::string name() const {
    return "rows:" + std::to_string(rows) + '/' + std::to_string(in) + "->" + std::to_string(out);
  }
};

/// What the three products write.
template <class T>
struct LinearResults {
  std::vector<T> y, dx, dw, db;
};

/// Random matrices, all row-major, and the kernel of a backend for them.
template <class Backend, class T>
class LinearLayer {
 public:
  explicit LinearLayer(const LinearShape& s,
                       shardwise::Activation behind = shardwise::Activation::relu)
      : shape(s),
        activation(behind),
        x(random_values<T>(s.rows * s.in, 1)),
        w(random_values<T>(s.out * s.in, 2)),
        bias(random_values<T>(s.out, 3)),
        dy(random_values<T>(s.rows * s.out, 4)),
        results{std::vector<T>(s.rows * s.out), std::vector<T>(s.rows * s.in),
                std::vector<T>(s.out * s.in), std::vector<T>(s.out)} {}

  void run(LinearProduct product) { run_by(kernel_, product, results); }

  /// With a weight that counts as another one, as it does in every step of training.
  void run_with_changed_weight(LinearProduct product) {
    ++version_;
    run(product);
  }

  /// Uses the weight until a kernel that packs weights has packed it.
  void settle() {
    for (int use = 0; use < 20; ++use) {
      run(LinearProduct::forward);
      run(LinearProduct::backward_input);
    }
  }

  /// Throws unless every candidate leaves in `results` what the oracle makes of the matrices.
  void require(LinearProduct product, const std::vector<Candidate>& candidates) {
    shardwise::Reference reference;
    shardwise::Reference::Linear<T> oracle(reference, shape.in, shape.out);
    LinearResults<T> exact = results;
    run_by(oracle, product, exact);
    switch (product) {
      case LinearProduct::forward:
        return require_each(candidates, exact.y, results.y, shape.in);
      case LinearProduct::backward_input:
        return require_each(candidates, exact.dx, results.dx, shape.out);
      case LinearProduct::backward_weight:
        require_each(candidates, exact.dw, results.dw, shape.rows);
        require_each(candidates, exact.db, results.db, shape.rows);
    }
  }

  LinearShape shape;
  shardwise::Activation activation;
  std::vector<T> x, w, bias, dy;
  LinearResults<T> results;

 private:
  template <class Kernel>
  void run_by(Kernel& kernel, LinearProduct product, LinearResults<T>& to) const {
    const shardwise::Weight<T> weight{w.data(), version_};
    switch (product) {
      case LinearProduct::forward:
        return kernel.forward(shape.rows, x.data(), weight, bias.data(), activation, to.y.data());
      case LinearProduct::backward_input:
        return kernel.backward_input(shape.rows, dy.data(), weight, to.dx.data());
      case LinearProduct::backward_weight:
        return kernel.backward_weight(shape.rows, x.data(), dy.data(), shardwise::Write::replace,
                                      to.dw.data(), to.db.data());
    }
  }

  Backend backend_;
  typename Backend::template Linear<T> kernel_{backend_, shape.in, shape.out};
  std::uint64_t version_ = 0;
};

}  // namespace bench
