#pragma once
// One pass of an attention for cuDNN: a graph that its engines for attention recognise.

#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "shardwise/backend/cuda/cudnn_operations.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::cuda {

/// The graphs of an attention. The second one also writes what the third one reads.
enum class AttentionPass { forward, forward_with_sums, backward };

/// One pass, with everything that its plan depends on. Tensors are those of AttentionBackend.
struct AttentionProblem {
  AttentionPass pass;
  Dtype dtype;
  std::size_t samples;
  std::size_t query_rows;  ///< of a sample
  std::size_t key_rows;
  std::size_t query_heads;
  std::size_t key_heads;  ///< each is read by as many neighbouring query heads
  std::size_t size;       ///< features of a head
  bool causal;            ///< row r sees keys up to r
  std::size_t window;     ///< and of these the last `window` ones; 0 for all
  float scale;

  bool operator==(const AttentionProblem&) const = default;
};

/// The tensors in memory of a graph. `sums` has log Σ exp(score) of each row and head, and `means`
/// is scratch memory for Σ y dy of them: both are float, [sample, head, row].
enum class AttentionTensor : std::int64_t {
  q = 'q',
  k = 'k',
  v = 'v',
  y = 'y',
  sums = 's',
  means = 'm',
  dy = 'd',
  dq = 'Q',
  dk = 'K',
  dv = 'V'
};

/// The graphs are those that NVIDIA's front end gives the library, since its engines accept only
/// these patterns. Axes are [sample, head, row, feature], whatever the order in memory.
/// source   cuDNN's documentation, "Scaled Dot Product Attention"; Dao 2023, algorithm 2
class AttentionGraph {
 public:
  explicit AttentionGraph(const AttentionProblem& problem) : problem_(problem) {
    problem.pass == AttentionPass::backward ? backward() : forward();
  }

  const OperationGraph& operations() const { return graph_; }

 private:
  using Tensor = OperationGraph::Tensor;
  using Id = AttentionTensor;

  void forward() {
    const Tensor q = queries(Id::q), k = keys_transposed(Id::k), v = keys(Id::v);
    const Tensor y = queries(Id::y);
    const Tensor scores = masked(scaled(graph_.product(q, k, scores_)));
    const Tensor highest = graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, rows_);
    const Tensor below = graph_.pointwise(CUDNN_POINTWISE_SUB, {scores, highest});
    const Tensor terms = graph_.pointwise(CUDNN_POINTWISE_EXP, {below});
    const Tensor sum = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, terms, rows_);
    const Tensor logarithm = graph_.pointwise(CUDNN_POINTWISE_LOG, {sum});
    const bool keeps_sums = problem_.pass == AttentionPass::forward_with_sums;
    graph_.pointwise({CUDNN_POINTWISE_ADD}, {highest, logarithm},
                     keeps_sums ? of_rows(Id::sums) : graph_.between(rows_));
    const Tensor weights = graph_.between(scores_, dtype_);
    graph_.pointwise({CUDNN_POINTWISE_DIV}, {terms, sum}, weights);
    graph_.product(weights, v, y);
  }

  /// dq is a product, and not summed over blocks of keys by many threads in any order. So the
  /// library keeps the slopes of all scores in its workspace.
  void backward() {
    const Tensor q = queries(Id::q), k = keys_transposed(Id::k), v = keys_transposed(Id::v);
    const Tensor y = queries(Id::y), dy = queries(Id::dy), means = of_rows(Id::means);
    const Tensor products = graph_.pointwise(CUDNN_POINTWISE_MUL, {dy, y});
    const Tensor sums = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, rows_);
    graph_.pointwise({CUDNN_POINTWISE_MUL}, {sums, graph_.number(1)}, means);

    const Tensor scores = scaled(graph_.product(q, k, scores_));
    const Tensor logarithms = graph_.pointwise(CUDNN_POINTWISE_SUB, {scores, of_rows(Id::sums)});
    const Tensor weights = graph_.pointwise(CUDNN_POINTWISE_EXP, {masked(logarithms)});
    sum_over_queries(weights, dy, keys(Id::dv));

    const Tensor by_weight = graph_.product(dy, v, scores_);
    const Tensor centred = graph_.pointwise(CUDNN_POINTWISE_SUB, {by_weight, means});
    const Tensor slopes = scaled(graph_.pointwise(CUDNN_POINTWISE_MUL, {centred, weights}));
    sum_over_queries(slopes, q, keys(Id::dk));
    graph_.product(slopes, graph_.transpose(k, dtype_), queries(Id::dq));
  }

  /// y = factorsᵀ values, summed over the query heads that read a key head.
  void sum_over_queries(Tensor factors, Tensor values, Tensor y) {
    const Tensor transposed = graph_.transpose(factors, dtype_);
    if (problem_.query_heads == problem_.key_heads) return graph_.product(transposed, values, y);
    const Tensor of_query_heads =
        graph_.between(sizes_of(problem_.key_rows, problem_.query_heads), dtype_);
    graph_.product(transposed, values, of_query_heads);
    graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, of_query_heads, y);
  }

  Tensor scaled(Tensor x) {
    return graph_.pointwise(CUDNN_POINTWISE_MUL, {x, graph_.number(problem_.scale)});
  }

  /// x where a row sees the key, else -infinity.
  Tensor masked(Tensor x) {
    if (problem_.causal) x = where(CUDNN_POINTWISE_CMP_GE, row_of(x), column_of(x), x);
    if (problem_.window == 0) return x;
    const Tensor window = graph_.number(static_cast<float>(problem_.window));
    const Tensor row = row_of(x);
    const Tensor end = graph_.pointwise(CUDNN_POINTWISE_ADD, {column_of(x), window});
    return where(CUDNN_POINTWISE_CMP_GT, end, row, x);
  }
  Tensor where(cudnnPointwiseMode_t compared, Tensor a, Tensor b, Tensor x) {
    const Tensor holds = graph_.between(scores_, CUDNN_DATA_BOOLEAN);
    graph_.pointwise({.function = compared, .in = CUDNN_DATA_BOOLEAN}, {a, b}, holds);
    const Tensor nothing = graph_.number(-std::numeric_limits<float>::infinity());
    return graph_.pointwise(CUDNN_POINTWISE_BINARY_SELECT, {x, nothing, holds});
  }
  Tensor row_of(Tensor x) { return index_of(x, 2); }
  Tensor column_of(Tensor x) { return index_of(x, 3); }
  Tensor index_of(Tensor x, std::int64_t axis) {
    const Tensor index = graph_.between(scores_, CUDNN_DATA_INT32);
    graph_.pointwise({.function = CUDNN_POINTWISE_GEN_INDEX, .axis = axis}, {x}, index);
    return index;
  }

  ///@{
  /// Tensors in memory. Rows of all heads are [row, head, feature].
  Tensor queries(Id id) { return of_heads(id, problem_.query_rows, problem_.query_heads); }
  Tensor keys(Id id) { return of_heads(id, problem_.key_rows, problem_.key_heads); }
  Tensor of_heads(Id id, std::size_t rows, std::size_t heads) {
    return graph_.in_memory(static_cast<std::int64_t>(id), dtype_, sizes_of(rows, heads),
                            strides_of(rows, heads));
  }
  Tensor keys_transposed(Id id) {
    CudnnNumbers sizes = sizes_of(problem_.key_rows, problem_.key_heads);
    CudnnNumbers strides = strides_of(problem_.key_rows, problem_.key_heads);
    std::swap(sizes[2], sizes[3]);
    std::swap(strides[2], strides[3]);
    return graph_.in_memory(static_cast<std::int64_t>(id), dtype_, sizes, strides);
  }
  Tensor of_rows(Id id) {
    return graph_.in_memory(static_cast<std::int64_t>(id), CUDNN_DATA_FLOAT, rows_,
                            row_major(rows_));
  }
  ///@}

  static std::int64_t as_number(std::size_t n) { return static_cast<std::int64_t>(n); }
  CudnnNumbers sizes_of(std::size_t rows, std::size_t heads) const {
    return {as_number(problem_.samples), as_number(heads), as_number(rows),
            as_number(problem_.size)};
  }
  CudnnNumbers strides_of(std::size_t rows, std::size_t heads) const {
    const std::size_t row = heads * problem_.size;
    return {as_number(rows * row), as_number(problem_.size), as_number(row), 1};
  }
  CudnnNumbers sizes_of_scores(std::size_t columns) const {
    return {as_number(problem_.samples), as_number(problem_.query_heads),
            as_number(problem_.query_rows), as_number(columns)};
  }

  AttentionProblem problem_;
  cudnnDataType_t dtype_ = cudnn_dtype(problem_.dtype);
  CudnnNumbers scores_ = sizes_of_scores(problem_.key_rows);
  CudnnNumbers rows_ = sizes_of_scores(1);
  OperationGraph graph_;
};

}  // namespace shardwise::detail::cuda
