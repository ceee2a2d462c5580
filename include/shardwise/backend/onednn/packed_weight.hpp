#pragma once
// A copy of a weight in the layout in which the library is fastest.

#include <cstdint>
#include <optional>

#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/products.hpp"
#include "shardwise/backend/onednn/reorder.hpp"
#include "shardwise/backend/onednn/scratch.hpp"

namespace shardwise::detail::onednn {

/// Keeps the copy of one weight.
///
/// Packing takes as long as about two products of 16 rows (bench/kernels/linear.cpp shows both). So
/// a weight that every training step changes should not be copied, and one that stays should be
/// where WeightProduct says so. A change makes the copy stale; its memory is kept.
class PackedWeight {
 public:
  /// The layout of the copy; the library is asked once, for `product`. It is the same for any
  /// number of rows.
  const MatrixDesc& layout(Session& session, const MatrixProduct& product,
                           const ErrorContext& context) {
    if (!layout_) {
      const MatrixDesc best = best_layout(session, product, context);
      pack_.emplace(reorder(session, product.b.get(), best.get(), Write::replace, context));
      layout_ = best;
    }
    return *layout_;
  }

  /// The copy of this weight, packed now if the copy is of another one or stale. Call layout()
  /// first.
  const void* copy(Session& session, const void* data, std::uint64_t version) {
    void* copy = memory_.reserve(dnnl_memory_desc_get_size(layout_->get()));
    if (data != data_ || version != version_) {
      data_ = nullptr;  // if packing fails, this is the copy of no weight
      pack_->run(session, {data, copy});
      data_ = data;
      version_ = version;
    }
    return copy;
  }

 private:
  const void* data_ = nullptr;  // what was packed last
  std::uint64_t version_ = 0;
  std::optional<MatrixDesc> layout_;
  std::optional<Primitive> pack_;
  Scratch memory_;
};

}  // namespace shardwise::detail::onednn
