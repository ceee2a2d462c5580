#pragma once
// The products of a linear layer on a GPU.

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "shardwise/backend/activation.hpp"
#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/cuda/bias_and_activation.hpp"
#include "shardwise/backend/cuda/cublaslt_plan.hpp"
#include "shardwise/backend/cuda/cublaslt_product.hpp"
#include "shardwise/backend/cuda/device.hpp"
#include "shardwise/backend/cuda/session.hpp"
#include "shardwise/backend/detail/plan_cache.hpp"
#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/core/location.hpp"

namespace shardwise::detail::cuda {

/// See Backend for shapes; all matrices are on the device, and a call returns when its work is
/// on the stream. `Backend` has session(), and for_each(n, f), which enqueues f(i) for every i < n
/// on the session's stream.
///
/// The product adds the bias, and applies GELU (the form with tanh) and ReLU if the options allow
/// it, before it rounds, if cuBLASLt has an algorithm for this. A bias that is not aligned to 16
/// bytes, or for which there is no algorithm, is written to y first, and the product is added to
/// it; so it is in the two-byte dtypes where rows are not aligned to 16 bytes, since cuBLASLt adds
/// the bias to the rounded product there. So the sum was rounded once for all sizes that were tried
/// on an H200 (cuBLASLt 13.1). Other activations take one more pass over y, so the two-byte dtypes
/// are rounded twice. ReLU is off by default, since NVIDIA does not say that max(x, 0) keeps NaN.
/// Plans are kept for the last shapes; a call with one of these shapes allocates nothing.
///
/// The product for the weight's gradient also sums the bias gradient (BGRADB). With Write::add,
/// cuBLASLt may round a product of aligned rows before it adds it to a gradient of a two-byte
/// dtype.
///
/// throws   backend_error if the library fails or the device does not multiply in T, memory_error
template <class Backend, Real T>
class CublasLtLinear {
 public:
  ///@{
  /// As `Backend` says.
  CublasLtLinear(Backend& backend, std::size_t in, std::size_t out)
      : backend_(&backend), in_(in), out_(out) {
    require(session().device(), dtype_v<T>);
  }

  void forward(std::size_t rows, const T* x, Weight<T> weight, const T* bias, Activation activation,
               T* y) {
    if (rows == 0 || out_ == 0) return;
    in_place("forward", rows, [&] {
      const std::uint32_t function = epilogue_for(activation);
      std::uint32_t done = 0;
      if (in_ == 0) {
        clear(session(), y, rows * out_);
      } else if (bias == nullptr) {
        done = run(forward_, forward_product(dtype_v<T>, rows, in_, out_, Write::replace),
                   {weight.data, x, y}, {function, 0});
      } else {
        done = multiply_and_add(rows, x, weight, bias, function, y);
      }
      if ((done & CUBLASLT_EPILOGUE_BIAS) != 0) bias = nullptr;
      if ((done & function) != 0) activation = Activation::none;
      finish(*backend_, y, rows * out_, bias, out_, 1, activation);
    });
  }

  void backward_input(std::size_t rows, const T* dy, Weight<T> weight, T* dx) {
    if (rows == 0 || in_ == 0) return;
    in_place("backward_input", rows, [&] {
      if (out_ == 0) {
        clear(session(), dx, rows * in_);
      } else {
        run(backward_input_, backward_input_product(dtype_v<T>, rows, in_, out_),
            {weight.data, dy, dx}, {0});
      }
    });
  }

  void backward_weight(std::size_t rows, const T* x, const T* dy, Write write, T* dw, T* db) {
    if (out_ == 0) return;
    in_place("backward_weight", rows, [&] {
      if (rows == 0) {
        if (write == Write::add) return;
        clear(session(), dw, out_ * in_);
        if (db != nullptr) clear(session(), db, out_);
        return;
      }
      std::uint32_t done = 0;
      if (in_ != 0) {
        // The epilogue replaces db. It sums over the k of a matrix; not every library treats a
        // single column as one.
        const bool sums =
            db != nullptr && write == Write::replace && fits_epilogues(db) && out_ > 1;
        const std::uint32_t sum = sums ? CUBLASLT_EPILOGUE_BGRADB : 0;
        done = run(backward_weight_, backward_weight_product(dtype_v<T>, rows, in_, out_, write),
                   {x, dy, dw, db}, {sum, 0});
      }
      if (db == nullptr || done == CUBLASLT_EPILOGUE_BGRADB) return;
      const T* const ones = session().template ones<T>().get(rows, session().stream().get());
      run(bias_gradient_, column_sums_product(dtype_v<T>, rows, out_, write), {dy, ones, db}, {0});
    });
  }
  ///@}

 private:
  struct Key {
    Product product;
    std::uint32_t epilogue;  ///< the preferred one
    Alignments alignments;

    bool operator==(const Key&) const = default;
  };
  using Plans = PlanCache<Key, MatmulPlan>;

  Session& session() const { return backend_->session(); }

  /// The epilogue for the activation of the product, or 0.
  std::uint32_t epilogue_for(Activation activation) const {
    if (activation == Activation::relu && !session().options().fused_relu) return 0;
    return epilogue_of(activation);
  }

  /// y = x weightᵀ + bias, and the function (0 for none) if the library supports it; returns what
  /// is done.
  std::uint32_t multiply_and_add(std::size_t rows, const T* x, Weight<T> weight, const T* bias,
                                 std::uint32_t function, T* y) {
    const auto product = [&](Write write) {
      return forward_product(dtype_v<T>, rows, in_, out_, write);
    };
    constexpr std::uint32_t add = CUBLASLT_EPILOGUE_BIAS;
    const Operands operands{weight.data, x, y, bias};
    if (fits_epilogues(bias) && adds_before_it_rounds(operands)) {
      MatmulPlan& plan =
          plan_of(forward_, product(Write::replace), operands, {function | add, add, 0});
      if ((plan.epilogue() & add) != 0) {
        plan.run(session(), operands);
        return plan.epilogue();
      }
    }
    backend_->for_each(rows * out_, BiasOfColumn<T>{bias, out_, y});
    run(forward_, product(Write::add), {weight.data, x, y}, {0});
    return add;
  }

  /// Whether an epilogue of the forward product gets sums that are not rounded yet.
  bool adds_before_it_rounds(const Operands& operands) const {
    if constexpr (sizeof(T) > 2) return true;
    const Alignments at = alignments_of(operands);
    const std::size_t rows = (in_ | out_) * sizeof(T);
    return rows % 16 == 0 && std::min({at.a, at.b, at.d}) == 16;
  }

  /// For the first of the epilogues (0 for none) that the library supports for the product.
  MatmulPlan& plan_of(Plans& plans, const Product& product, const Operands& operands,
                      std::initializer_list<std::uint32_t> epilogues) {
    const Key key{product, *epilogues.begin(), alignments_of(operands)};
    return plans.get(key,
                     [&] { return MatmulPlan::make(session(), product, operands, epilogues); });
  }

  /// Runs a product with that epilogue, and returns it.
  std::uint32_t run(Plans& plans, const Product& product, const Operands& operands,
                    std::initializer_list<std::uint32_t> epilogues) {
    MatmulPlan& plan = plan_of(plans, product, operands, epilogues);
    plan.run(session(), operands);
    return plan.epilogue();
  }

  /// Calls f on the thread's device, and adds the product to errors.
  template <class F>
  void in_place(const char* what, std::size_t rows, F f) {
    const DescribedLocation here([&] {
      return std::string(what) + " of " + std::to_string(rows) + " rows by a " +
             std::string(name(dtype_v<T>)) + " weight [" + std::to_string(out_) + ", " +
             std::to_string(in_) + ']';
    });
    const OnDevice on(session().device().index);
    f();
  }

  Backend* backend_;
  std::size_t in_;
  std::size_t out_;
  Plans forward_;
  Plans backward_input_;
  Plans backward_weight_;
  Plans bias_gradient_;
};

}  // namespace shardwise::detail::cuda
