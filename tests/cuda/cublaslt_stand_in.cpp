// Stands in for cuBLASLt: descriptors keep their attributes, and a product is computed by loops
// over column-major matrices, as the documentation of cublasLtMatmul says. What an algorithm may
// rely on is checked where it runs. Eight algorithms compute the same: but if sums may be kept in
// the output's type, all of them are, and products in TF32 round their factors.

#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <type_traits>
#include <vector>

#include "cuda/stand_in.hpp"
#include "shardwise/backend/activation.hpp"
#include "shardwise/core/dtype.hpp"

using shardwise::bf16;
using shardwise::fp16;
using stand_in::alive;
using stand_in::fails;
using stand_in::report;

namespace {

struct Attributes {
  std::map<int, std::vector<std::byte>> values;

  template <class T>
  T get(int which, T otherwise) const {
    const auto found = values.find(which);
    if (found == values.end()) return otherwise;
    T result{};
    if (found->second.size() != sizeof result) report("an attribute of another size");
    std::memcpy(&result, found->second.data(), std::min(sizeof result, found->second.size()));
    return result;
  }
  void set(int which, const void* value, std::size_t bytes) {
    const auto* const first = static_cast<const std::byte*>(value);
    values[which].assign(first, first + bytes);
  }
};

struct Layout {
  cudaDataType_t type;
  std::uint64_t rows, columns;
  std::int64_t ld;
};
struct Operation {
  cublasComputeType_t compute;
  cudaDataType_t scale;
  Attributes attributes;

  cublasOperation_t op(int which) const { return attributes.get(which, CUBLAS_OP_N); }
  std::uint32_t epilogue() const {
    return attributes.get<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  }
  void* vector() const { return attributes.get<void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr); }
};
/// What stands in the bytes of a cublasLtMatmulAlgo_t.
struct Algorithm {
  std::uint64_t number;
  std::uint64_t m, n, k;
  std::uint64_t alignments;  ///< of A, B, C, D and the vector, a byte each
  std::uint64_t scratch;
  std::uint64_t sums_in_output;
  std::uint64_t epilogue;
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));

template <class Handle, class T>
cublasStatus_t create(Handle* handle, T* object) {
  *handle = reinterpret_cast<Handle>(object);
  ++alive;
  return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Handle>
cublasStatus_t destroy(Handle handle) {
  delete reinterpret_cast<T*>(handle);
  --alive;
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t bytes_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}
std::uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<std::uintptr_t>(address) | 128U;
  return bits & (~bits + 1);
}

/// What a call is about, if its parts fit.
struct Call {
  std::uint64_t m, n, k;
  bool fits;
};
Call call_of(const Operation& operation, const Layout& a, const Layout& b, const Layout& c,
             const Layout& d) {
  const bool ta = operation.op(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
  const bool tb = operation.op(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
  const std::uint64_t k = ta ? a.rows : a.columns;
  bool fits = (ta ? a.columns : a.rows) == d.rows && (tb ? b.columns : b.rows) == k &&
              (tb ? b.rows : b.columns) == d.columns && c.rows == d.rows && c.columns == d.columns;
  for (const Layout* one : {&a, &b, &c, &d})
    fits = fits && one->type == d.type && one->rows > 0 && one->columns > 0 &&
           one->ld >= static_cast<std::int64_t>(one->rows);
  const bool is_double = d.type == CUDA_R_64F;
  fits = fits && operation.scale == (is_double ? CUDA_R_64F : CUDA_R_32F) &&
         (operation.compute == CUBLAS_COMPUTE_64F) == is_double;
  switch (operation.epilogue()) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_GELU:
      break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_BGRADB:
      fits = fits && operation.vector() != nullptr;
      break;
    default:
      fits = false;
  }
  return {d.rows, d.columns, k, fits};
}

template <class T>
struct Problem {
  using A = shardwise::accumulate_t<T>;

  Operation operation;
  Layout a, b, d;
  std::uint64_t k;
  const T* a_data;
  const T* b_data;
  T* d_data;
  T* vector;
  A alpha, beta;
  bool sums_in_output;

  static std::size_t at(const Layout& layout, bool transposed, std::size_t i, std::size_t j) {
    const auto ld = static_cast<std::size_t>(layout.ld);
    return transposed ? j + i * ld : i + j * ld;
  }
  A factor(T value) const {
    A result = static_cast<A>(value);
    if constexpr (std::is_same_v<T, float>) {
      if (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32)
        result =
            std::bit_cast<float>((std::bit_cast<std::uint32_t>(result) + 0x1000U) & 0xffff'e000U);
    }
    return result;
  }
  A after(std::uint32_t epilogue, A x) const {
    if ((epilogue & CUBLASLT_EPILOGUE_RELU) != 0) return x > A(0) ? x : A(0);  // loses a NaN
    if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0)
      return x / 2 * (1 + std::tanh(A(0.7978845608028654) * (x + A(0.044715) * x * x * x)));
    return x;
  }
  void run() const {
    const bool ta = operation.op(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
    const bool tb = operation.op(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
    const std::uint32_t epilogue = operation.epilogue();
    for (std::size_t j = 0; j < d.columns; ++j) {
      for (std::size_t i = 0; i < d.rows; ++i) {
        A sum = 0;
        for (std::size_t l = 0; l < k; ++l) {
          sum += factor(a_data[at(a, ta, i, l)]) * factor(b_data[at(b, tb, l, j)]);
          if (sums_in_output) sum = static_cast<A>(static_cast<T>(sum));
        }
        T& out = d_data[at(d, false, i, j)];
        A result = alpha * sum;
        if (beta != A(0)) result += beta * static_cast<A>(out);
        if ((epilogue & CUBLASLT_EPILOGUE_BIAS) != 0) result += static_cast<A>(vector[i]);
        out = static_cast<T>(after(epilogue, result));
      }
      if (epilogue != CUBLASLT_EPILOGUE_BGRADB) continue;
      A sum = 0;
      for (std::size_t l = 0; l < k; ++l) sum += static_cast<A>(b_data[at(b, tb, l, j)]);
      vector[j] = static_cast<T>(sum);
    }
  }
};

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t) { return "CUBLAS_STATUS_OF_STAND_IN"; }
const char* cublasLtGetStatusString(cublasStatus_t) { return "words of the stand-in"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  if (fails("cublasLtCreate")) return CUBLAS_STATUS_NOT_INITIALIZED;
  return create(handle, new int);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy<int>(handle); }

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t ld) {
  if (fails("cublasLtMatrixLayoutCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  return create(layout, new Layout{type, rows, columns, ld});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return destroy<Layout>(layout);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (fails("cublasLtMatmulDescCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  return create(operation, new Operation{compute, scale, {}});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return destroy<Operation>(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, std::size_t bytes) {
  if (fails("cublasLtMatmulDescSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  reinterpret_cast<Operation*>(operation)->attributes.set(which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  if (fails("cublasLtMatmulPreferenceCreate")) return CUBLAS_STATUS_ALLOC_FAILED;
  return create(preference, new Attributes);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return destroy<Attributes>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, std::size_t bytes) {
  if (fails("cublasLtMatmulPreferenceSetAttribute")) return CUBLAS_STATUS_INVALID_VALUE;
  reinterpret_cast<Attributes*>(preference)->set(which, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t,
                                              cublasLtMatmulDesc_t operation_handle,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  ++stand_in::heuristics;
  if (fails("cublasLtMatmulAlgoGetHeuristic")) return CUBLAS_STATUS_INTERNAL_ERROR;
  const auto& operation = *reinterpret_cast<Operation*>(operation_handle);
  const auto layout = [](cublasLtMatrixLayout_t one) { return *reinterpret_cast<Layout*>(one); };
  const Call call = call_of(operation, layout(a), layout(b), layout(c), layout(d));
  if (!call.fits || asked <= 0) {
    report("cublasLtMatmulAlgoGetHeuristic: what does not fit");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  *count = 0;
  if ((operation.epilogue() & stand_in::lacks) != 0) return stand_in::says_to_lacks;
  if (!stand_in::has_algorithms) return CUBLAS_STATUS_SUCCESS;
  const auto& wishes = *reinterpret_cast<Attributes*>(preference);
  std::uint64_t alignments = 0;
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    alignments = alignments << 8 | std::min(wishes.get<std::uint32_t>(which, 256), 128U);
  alignments = alignments << 8 | alignment_of(operation.vector());
  const auto most = wishes.get<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
  const auto schemes = wishes.get<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 CUBLASLT_REDUCTION_SCHEME_MASK);
  constexpr std::uint32_t in_output =
      CUBLASLT_REDUCTION_SCHEME_INPLACE | CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  for (std::uint64_t i = 0; i < 8 && *count < asked; ++i) {
    const std::uint64_t scratch = i * 1000;
    if (scratch > most) continue;
    const Algorithm algorithm{i,
                              call.m,
                              call.n,
                              call.k,
                              alignments,
                              scratch,
                              (schemes & in_output) != 0 ? 1U : 0U,
                              operation.epilogue()};
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    std::memcpy(&result.algo, &algorithm, sizeof algorithm);
    result.workspaceSize = scratch;
    result.state = i == 7 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation_handle,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_handle,
                              const void* b, cublasLtMatrixLayout_t b_handle, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_handle, void* d,
                              cublasLtMatrixLayout_t d_handle, const cublasLtMatmulAlgo_t* algo,
                              void* scratch, std::size_t scratch_bytes, cudaStream_t stream) {
  ++stand_in::matmuls;
  if (fails("cublasLtMatmul")) return CUBLAS_STATUS_EXECUTION_FAILED;
  const auto& operation = *reinterpret_cast<Operation*>(operation_handle);
  const auto layout = [](cublasLtMatrixLayout_t one) { return *reinterpret_cast<Layout*>(one); };
  const Layout la = layout(a_handle), lb = layout(b_handle), ld = layout(d_handle);
  const Call call = call_of(operation, la, lb, layout(c_handle), ld);
  Algorithm algorithm;
  std::memcpy(&algorithm, algo, sizeof algorithm);
  if ((stand_in::refusing >> algorithm.number & 1U) != 0) return CUBLAS_STATUS_NOT_SUPPORTED;

  bool is_right = handle != nullptr && call.fits && c == d && algorithm.m == call.m &&
                  algorithm.n == call.n && algorithm.k == call.k &&
                  algorithm.epilogue == operation.epilogue();
  std::uint64_t alignments = algorithm.alignments;
  const void* const vector = operation.vector();
  for (const void* address : {vector, static_cast<const void*>(d), c, b, a}) {
    is_right = is_right && alignment_of(address) >= (alignments & 0xff);
    alignments >>= 8;
  }
  const auto holds = [](const void* data, const Layout& one) {
    return stand_in::is_on_device(
        data, static_cast<std::size_t>(one.ld) * one.columns * bytes_of(one.type));
  };
  is_right = is_right && holds(a, la) && holds(b, lb) && holds(d, ld);
  const std::uint64_t length = operation.epilogue() == CUBLASLT_EPILOGUE_BGRADB ? call.n : call.m;
  if (vector != nullptr)  // nothing tells the library how it is aligned
    is_right = is_right && alignment_of(vector) >= 16 &&
               stand_in::is_on_device(vector, length * bytes_of(ld.type));
  if (algorithm.scratch > 0)
    is_right = is_right && scratch_bytes >= algorithm.scratch &&
               reinterpret_cast<std::uintptr_t>(scratch) % 256 == 0 &&
               stand_in::is_on_device(scratch, algorithm.scratch);
  if (!is_right) {
    report("cublasLtMatmul: what does not fit, or is not on the device");
    return CUBLAS_STATUS_INVALID_VALUE;
  }

  stand_in::algorithm = static_cast<int>(algorithm.number);
  stand_in::epilogue = operation.epilogue();
  const auto run_as = [&]<class T>(T) {
    using A = shardwise::accumulate_t<T>;
    const Problem<T> problem{operation,
                             la,
                             lb,
                             ld,
                             call.k,
                             static_cast<const T*>(a),
                             static_cast<const T*>(b),
                             static_cast<T*>(d),
                             static_cast<T*>(operation.vector()),
                             *static_cast<const A*>(alpha),
                             *static_cast<const A*>(beta),
                             algorithm.sums_in_output != 0};
    const float time = stand_in::algorithm == stand_in::fastest ? 1.0F : 2.0F;
    stand_in::push(stream, [=] {
      if (algorithm.scratch > 0) std::memset(scratch, 0xff, algorithm.scratch);
      problem.run();
      stand_in::take_time(time);
    });
  };
  if (ld.type == CUDA_R_64F) run_as(double{});
  if (ld.type == CUDA_R_32F) run_as(float{});
  if (ld.type == CUDA_R_16BF) run_as(bf16{});
  if (ld.type == CUDA_R_16F) run_as(fp16{});
  return CUBLAS_STATUS_SUCCESS;
}
