#pragma once
// Memory descriptors of matrices.

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>

#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::onednn {

constexpr dnnl_data_type_t library_dtype(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? dnnl_bf16 : dnnl_f32;
}

inline dnnl_dim_t as_dim(std::size_t extent) { return static_cast<dnnl_dim_t>(extent); }

/// The layout of a [rows, columns] matrix.
struct MatrixDesc {
  std::size_t rows;
  std::size_t columns;
  MemoryDesc memory;

  ConstDesc get() const { return memory.get(); }
};

inline MatrixDesc strided(std::size_t rows, std::size_t columns, dnnl_dim_t row_stride,
                          dnnl_dim_t column_stride, const ErrorContext& context) {
  MatrixDesc desc{rows, columns, {}};
  const dnnl_dims_t dims = {as_dim(rows), as_dim(columns)};
  const dnnl_dims_t strides = {row_stride, column_stride};
  check(desc.memory.create(2, dims, library_dtype(context.dtype), strides),
        "the descriptor of a matrix", context);
  return desc;
}

/// Elements (r, c) and (r, c + 1) are adjacent.
inline MatrixDesc row_major(std::size_t rows, std::size_t columns, const ErrorContext& context) {
  return strided(rows, columns, as_dim(columns), 1, context);
}

/// The transpose of a row-major [columns, rows] matrix, without a copy.
inline MatrixDesc transposed(std::size_t rows, std::size_t columns, const ErrorContext& context) {
  return strided(rows, columns, 1, as_dim(rows), context);
}

/// A matrix in the layout that the library chooses.
inline MatrixDesc library_chosen(std::size_t rows, std::size_t columns,
                                 const ErrorContext& context) {
  MatrixDesc desc{rows, columns, {}};
  const dnnl_dims_t dims = {as_dim(rows), as_dim(columns)};
  check(desc.memory.create(2, dims, library_dtype(context.dtype), dnnl_format_tag_any),
        "the descriptor of a matrix", context);
  return desc;
}

/// A vector of `size` elements.
inline MatrixDesc vector_of(std::size_t size, const ErrorContext& context) {
  MatrixDesc desc{1, size, {}};
  const dnnl_dims_t dims = {as_dim(size)};
  check(desc.memory.create(1, dims, library_dtype(context.dtype), dnnl_a),
        "the descriptor of a vector", context);
  return desc;
}

}  // namespace shardwise::detail::onednn
