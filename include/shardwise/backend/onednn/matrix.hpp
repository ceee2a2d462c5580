#pragma once
// Memory descriptors of matrices.

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>

#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/core/dtype.hpp"

namespace shardwise::detail::onednn {

using MatrixDesc = dnnl_memory_desc_t;

constexpr dnnl_data_type_t library_dtype(Dtype dtype) {
  return dtype == Dtype::bfloat16 ? dnnl_bf16 : dnnl_f32;
}

inline dnnl_dim_t as_dim(std::size_t extent) { return static_cast<dnnl_dim_t>(extent); }

/// A [rows, columns] matrix whose elements (r, c) and (r, c + 1) are neighbours.
inline MatrixDesc row_major(std::size_t rows, std::size_t columns, const Purpose& purpose) {
  MatrixDesc desc;
  const dnnl_dims_t dims = {as_dim(rows), as_dim(columns)};
  const dnnl_dims_t strides = {as_dim(columns), 1};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, dims, library_dtype(purpose.dtype), strides),
        "dnnl_memory_desc_init_by_strides", purpose);
  return desc;
}

/// The transpose of a row-major [columns, rows] matrix, as it lies.
inline MatrixDesc transposed(std::size_t rows, std::size_t columns, const Purpose& purpose) {
  MatrixDesc desc;
  const dnnl_dims_t dims = {as_dim(rows), as_dim(columns)};
  const dnnl_dims_t strides = {1, as_dim(rows)};
  check(dnnl_memory_desc_init_by_strides(&desc, 2, dims, library_dtype(purpose.dtype), strides),
        "dnnl_memory_desc_init_by_strides", purpose);
  return desc;
}

/// A matrix in whatever layout the library likes best.
inline MatrixDesc library_chosen(std::size_t rows, std::size_t columns, const Purpose& purpose) {
  MatrixDesc desc;
  const dnnl_dims_t dims = {as_dim(rows), as_dim(columns)};
  check(dnnl_memory_desc_init_by_tag(&desc, 2, dims, library_dtype(purpose.dtype),
                                     dnnl_format_tag_any),
        "dnnl_memory_desc_init_by_tag", purpose);
  return desc;
}

/// A vector of `size` elements.
inline MatrixDesc vector_of(std::size_t size, const Purpose& purpose) {
  MatrixDesc desc;
  const dnnl_dims_t dims = {as_dim(size)};
  check(dnnl_memory_desc_init_by_tag(&desc, 1, dims, library_dtype(purpose.dtype), dnnl_a),
        "dnnl_memory_desc_init_by_tag", purpose);
  return desc;
}

}  // namespace shardwise::detail::onednn
