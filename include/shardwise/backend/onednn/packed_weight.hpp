#pragma once
// A copy of a weight in the layout in which the library is fastest.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/products.hpp"
#include "shardwise/backend/onednn/reorder.hpp"
#include "shardwise/backend/onednn/scratch.hpp"

namespace shardwise::detail::onednn {

/// Keeps the copy of one weight, and decides when to make it.
///
/// Packing 1024 x 4096 floats takes 4 to 5 ms; a product with the copy saves 0.5 ms (forward) to 2
/// ms (backward_input) at 16 rows, 1 to 3 ms at 128 (bench/kernels/linear.cpp shows both). So a
/// weight that every training step changes should not be copied, and one that stays should be: it
/// is packed when it is used for the `pack_at_use`-th time without a change. A change makes the
/// copy stale; its memory is kept.
class PackedWeight {
 public:
  static constexpr std::size_t pack_at_use = 8;

  /// Counts a use of this weight. Returns whether it should be packed.
  bool count_use(const void* data, std::uint64_t version) {
    if (data != data_ || version != version_) {
      data_ = data;
      version_ = version;
      uses_ = 0;
      fresh_ = false;
    }
    if (uses_ < pack_at_use) ++uses_;
    return uses_ == pack_at_use;
  }

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

  /// The copy of the weight of the last count_use(), packed now if it is stale. Call layout()
  /// first.
  const void* copy(Session& session) {
    void* copy = memory_.reserve(dnnl_memory_desc_get_size(layout_->get()));
    if (!fresh_) {
      pack_->run(session, {data_, copy});
      fresh_ = true;
    }
    return copy;
  }

 private:
  const void* data_ = nullptr;
  std::uint64_t version_ = 0;
  std::size_t uses_ = 0;
  bool fresh_ = false;
  std::optional<MatrixDesc> layout_;
  std::optional<Primitive> pack_;
  Scratch memory_;
};

}  // namespace shardwise::detail::onednn
