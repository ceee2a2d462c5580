#pragma once
// The rows or tokens of a model's inputs and outputs, where ranks along `context` have different
// ones.

#include <array>
#include <cstddef>

#include "shardwise/core/compiled.hpp"
#include "shardwise/core/mesh.hpp"
#include "shardwise/core/shape.hpp"
#include "shardwise/model/mesh_slice.hpp"
#include "shardwise/model/rows_over_context.hpp"

namespace shardwise::detail {

/// Of a model on a mesh: what it was bound to. Without ranks along `context` nothing is set.
class RowsOfEnds {
 public:
  ///@{
  /// The model is bound to inputs of which the first has this shape.
  void set_inputs(const Shape& first);
  template <std::size_t N>
  void set_inputs(const std::array<Shape, N>& shapes) {
    set_inputs(shapes[0]);
  }
  ///@}

  ///@{
  /// The outputs have these shapes on a mesh of these sizes; `counts_tokens` tells whether layers
  /// change the number of tokens.
  /// throws   argument_error for outputs of different numbers of rows, or of tokens where layers
  ///          change it
  void set_outputs(const Shape& shape, const mesh& sizes, bool counts_tokens);
  template <std::size_t N>
  void set_outputs(const std::array<Shape, N>& shapes, const mesh& sizes, bool counts_tokens) {
    for (const Shape& shape : shapes) set_outputs(shape, sizes, counts_tokens);
  }
  ///@}

  /// throws   argument_error for an input, with these `sliced_axes`, of which each rank has some
  ///          rows or tokens, if the number of all must be that of the bound model, and is not
  void require_as_bound(const Shape& axes, const Shape& first, bool counts_tokens,
                        const mesh& sizes) const;

  /// An output of which ranks have different rows or tokens; of rank 0 if there is none.
  const Shape& cut_output() const { return cut_output_; }

 private:
  bool is_known_ = false;      // whether the next number is known
  std::size_t of_inputs_ = 0;  // rows, or tokens of each sample, if they are cut
  Shape cut_output_{};
};

}  // namespace shardwise::detail

#ifdef SHARDWISE_INLINE

namespace shardwise::detail {

SHARDWISE_INLINE void RowsOfEnds::set_inputs(const Shape& first) {
  if (const Axis cut = axis_over_context(first); cut != Axis::batch)
    of_inputs_ = extent_of(first, cut);
}

SHARDWISE_INLINE void RowsOfEnds::set_outputs(const Shape& shape, const mesh& sizes,
                                              bool counts_tokens) {
  is_known_ = true;
  const Axis cut = axis_over_context(shape);
  if (cut != Axis::height && !(cut == Axis::sequence && counts_tokens)) return;
  if (cut_output_.rank() > 0 && (axis_over_context(cut_output_) != cut ||
                                 extent_of(cut_output_, cut) != extent_of(shape, cut)))
    refuse_rows(sizes, shape,
                "another output of the model has another number of them. Give outputs "
                "of one size, or context one rank");
  cut_output_ = shape;
}

SHARDWISE_INLINE void RowsOfEnds::require_as_bound(const Shape& axes, const Shape& first,
                                                   bool counts_tokens, const mesh& sizes) const {
  if (!axes.has(Axis::height) && !(axes.has(Axis::sequence) && counts_tokens)) return;
  if (!is_known_) refuse_rows(sizes, first, unknown_rows);
  if (axes.back().units != of_inputs_) refuse_rows(sizes, first, other_rows);
}

}  // namespace shardwise::detail

#endif  // SHARDWISE_INLINE
