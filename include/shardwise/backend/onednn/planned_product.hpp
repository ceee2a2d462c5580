#pragma once
// A product of oneDNN on tensors of the caller, which are copied where the library is faster with
// another layout than theirs.

#include <oneapi/dnnl/dnnl.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>

#include "shardwise/backend/backend.hpp"
#include "shardwise/backend/onednn/check.hpp"
#include "shardwise/backend/onednn/convolution_geometry.hpp"
#include "shardwise/backend/onednn/handle.hpp"
#include "shardwise/backend/onednn/library.hpp"
#include "shardwise/backend/onednn/matrix.hpp"
#include "shardwise/backend/onednn/primitive.hpp"
#include "shardwise/backend/onednn/reorder.hpp"
#include "shardwise/backend/onednn/scratch.hpp"
#include "shardwise/backend/onednn/session.hpp"

namespace shardwise::detail::onednn {

/// What a product does with a tensor.
enum class Role {
  read,
  read_again,     ///< as the product before, which has made the copy
  read_and_kept,  ///< a weight: the plan keeps the copy until the tensor changes
  replaced,
  added_to,
};

/// A tensor of a product.
struct ProductTensor {
  int argument;  ///< DNNL_ARG_...
  TensorShape shape;
  Role role;
  Scratch* copy = nullptr;  ///< where a copy lies during a run; unused if the plan keeps it
};

/// The layout that the primitive has chosen for an argument.
inline ConstDesc chosen_layout(const Descriptor& desc, int argument) {
  return dnnl_primitive_desc_query_md(desc.get(), dnnl_query_exec_arg_md, argument);
}

/// A primitive, and the copies of its tensors between the caller's layouts and the chosen ones.
/// Equal layouts need no copy, and then a result is written in place.
class PlannedProduct {
 public:
  PlannedProduct(Session& session, const Descriptor& desc, std::span<const ProductTensor> tensors,
                 const ErrorContext& context)
      : count_(tensors.size()), product_(primitive(session, desc, tensors, context)) {
    for (std::size_t i = 0; i < count_; ++i) tensors_[i].plan(session, desc, tensors[i], context);
  }

  /// Runs on these tensors of the caller, in the constructor's order; further ones are not used.
  /// `version` is that of the weight. A run does not allocate once copies are large enough.
  void run(Session& session, std::initializer_list<const void*> data, std::uint64_t version) {
    std::array<const void*, max_tensors> here{};
    for (std::size_t i = 0; i < count_; ++i)
      here[i] = tensors_[i].before(session, data.begin()[i], version);
    product_.run(session, std::span(here).first(count_));
    for (std::size_t i = 0; i < count_; ++i) tensors_[i].after(session, data.begin()[i]);
  }

 private:
  static constexpr std::size_t max_tensors = 4;  // two factors, product, bias

  /// One tensor, with the reorder if it is copied.
  class Planned {
   public:
    void plan(Session& session, const Descriptor& desc, const ProductTensor& tensor,
              const ErrorContext& context) {
      role_ = tensor.role;
      copy_ = tensor.copy;
      const ConstDesc chosen = chosen_layout(desc, tensor.argument);
      const MemoryDesc plain = tensor.shape.plain(library_dtype(context.dtype), context);
      if (role_ != Role::added_to && dnnl_memory_desc_equal(plain.get(), chosen) != 0) return;
      bytes_ = dnnl_memory_desc_get_size(chosen);
      if (role_ == Role::read_again) return;
      const Write write = role_ == Role::added_to ? Write::add : Write::replace;
      reorder_.emplace(is_result() ? reorder(session, chosen, plain.get(), write, context)
                                   : reorder(session, plain.get(), chosen, write, context));
    }

    /// The address for the primitive: of the tensor, or of its copy, which is made now.
    const void* before(Session& session, const void* data, std::uint64_t version) {
      if (bytes_ == 0) return data;
      void* const copy = memory().reserve(bytes_);
      if (is_result() || role_ == Role::read_again) return copy;
      if (role_ == Role::read_and_kept && data == data_ && version == version_) return copy;
      data_ = nullptr;  // if the reorder fails, this is the copy of no tensor
      reorder_->run(session, {data, copy});
      data_ = data;
      version_ = version;
      return copy;
    }

    /// Call this after the primitive has written.
    void after(Session& session, const void* data) {
      if (bytes_ != 0 && is_result()) reorder_->run(session, {memory().reserve(bytes_), data});
    }

   private:
    bool is_result() const { return role_ == Role::replaced || role_ == Role::added_to; }
    Scratch& memory() { return role_ == Role::read_and_kept ? kept_ : *copy_; }

    Role role_ = Role::read;
    Scratch* copy_ = nullptr;
    Scratch kept_;
    std::size_t bytes_ = 0;  // of the copy; 0 if there is none
    std::optional<Primitive> reorder_;
    const void* data_ = nullptr;  // what was copied last
    std::uint64_t version_ = 0;
  };

  static Primitive primitive(Session& session, const Descriptor& desc,
                             std::span<const ProductTensor> tensors, const ErrorContext& context) {
    std::array<Argument, max_tensors> arguments;
    for (std::size_t i = 0; i < tensors.size(); ++i)
      arguments[i] = {tensors[i].argument, chosen_layout(desc, tensors[i].argument)};
    return {session, desc, std::span(arguments).first(tensors.size()), context};
  }

  std::size_t count_;
  std::array<Planned, max_tensors> tensors_;
  Primitive product_;
};

}  // namespace shardwise::detail::onednn
