#pragma once
// Tensors to and from other array libraries (NumPy, PyTorch, JAX, ...) by DLPack, without a copy.

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shardwise/core/dtype.hpp"
#include "shardwise/core/error.hpp"
#include "shardwise/interop/dense.hpp"
#include "shardwise/interop/dlpack_abi.hpp"
#include "shardwise/layout/tensor.hpp"
#include "shardwise/layout/view.hpp"

namespace shardwise {

namespace detail {

/// One of the two structs that libraries exchange.
template <class M>
concept DlpackManaged =
    std::same_as<M, dlpack::ManagedTensorVersioned> || std::same_as<M, dlpack::ManagedTensor>;

struct DlpackDelete {
  template <DlpackManaged M>
  void operator()(M* managed) const noexcept {
    if (managed->deleter != nullptr) managed->deleter(managed);
  }
};

/// The data of an exported tensor, until its receiver calls the deleter.
template <DlpackManaged M, class Owner>
struct DlpackExport {
  M managed;
  std::array<std::int64_t, Shape::max_rank> shape{};
  std::array<std::int64_t, Shape::max_rank> strides{};
  Owner owner;

  static void destroy(M* managed) { delete static_cast<DlpackExport*>(managed->manager); }
};

}  // namespace detail

/// Owns a managed tensor and calls its deleter. `release()` gives it to a library that calls the
/// deleter itself.
template <detail::DlpackManaged M = dlpack::ManagedTensorVersioned>
using DlpackHandle = std::unique_ptr<M, detail::DlpackDelete>;

namespace detail {

/// The DLPack type of T.
template <Element T>
constexpr dlpack::Tensor::DataType dlpack_dtype() {
  using Code = dlpack::Tensor::DataType::Code;
  constexpr auto bits = static_cast<std::uint8_t>(8 * sizeof(T));
  if constexpr (std::same_as<T, bf16>) return {Code::brain, bits};
  if constexpr (Real<T>) return {Code::real, bits};
  if constexpr (std::signed_integral<T>) return {Code::signed_integer, bits};
  if constexpr (std::unsigned_integral<T>) return {Code::unsigned_integer, bits};
}

}  // namespace detail

/// The rank's part of `view`, dense and row-major, for another library. `owner` keeps the memory
/// alive (a shared pointer, a tensor that was moved) and is destroyed by the deleter, on any
/// thread. M = dlpack::ManagedTensor is for libraries older than DLPack 1.0; it cannot express
/// const elements, so these are an error.
template <detail::DlpackManaged M = dlpack::ManagedTensorVersioned, class T, Layout L, class E,
          class Owner>
requires(!std::is_const_v<T> || std::same_as<M, dlpack::ManagedTensorVersioned>)
    DlpackHandle<M> to_dlpack(const View<T, L, E>& view, Owner owner, dlpack::Device device = {}) {
  using Value = std::remove_const_t<T>;
  using Export = detail::DlpackExport<M, Owner>;
  const Shape& local = view.local();
  const std::vector<std::int64_t> strides = detail::dense_strides(local);
  auto made = std::make_unique<Export>(Export{{}, {}, {}, std::move(owner)});
  for (std::size_t i = 0; i < local.rank(); ++i) {
    made->shape[i] = static_cast<std::int64_t>(local[i].extent());
    made->strides[i] = strides[i];
  }
  M& managed = made->managed;
  if constexpr (std::is_const_v<T>) managed.flags = dlpack::ManagedTensorVersioned::read_only;
  managed.tensor = {const_cast<Value*>(view.data()),
                    device,
                    static_cast<std::int32_t>(local.rank()),
                    detail::dlpack_dtype<Value>(),
                    made->shape.data(),
                    made->strides.data(),
                    0};
  managed.deleter = &Export::destroy;
  managed.manager = made.get();
  return DlpackHandle<M>(&made.release()->managed);
}

/// The same for a tensor, which the handle owns.
template <detail::DlpackManaged M = dlpack::ManagedTensorVersioned, Element T, Layout L, class E>
DlpackHandle<M> to_dlpack(Tensor<T, L, E>&& tensor) {
  const View<T, L, E> view = tensor.view();  // moving the tensor does not move its elements
  return to_dlpack<M>(view, std::move(tensor));
}

namespace detail {

inline std::string text_of(const dlpack::Device& device) {
  return "type " + std::to_string(static_cast<std::int32_t>(device.type)) + " number " +
         std::to_string(device.id);
}

inline std::string text_of(const dlpack::Tensor::DataType& type) {
  return "code " + std::to_string(static_cast<int>(type.code)) + ", " + std::to_string(type.bits) +
         " bits, " + std::to_string(type.lanes) + " lanes";
}

/// The properties of a handle apart from its tensor.
template <class T, DlpackManaged M>
void require_usable(const M* managed) {
  if (managed == nullptr) throw argument_error("DLPack: the handle is empty; give it a tensor");
  if constexpr (std::same_as<M, dlpack::ManagedTensorVersioned>) {
    if (managed->version.major != dlpack::ManagedTensorVersioned::Version{}.major) {
      throw argument_error({"DLPack: the tensor is of version ", managed->version.major, ".",
                            managed->version.minor,
                            ", and version 1 is read; ask its maker for max_version (1, 1)"});
    }
    if (!std::is_const_v<T> && (managed->flags & dlpack::ManagedTensorVersioned::read_only) != 0) {
      throw argument_error(
          "DLPack: the tensor is read-only, and was asked for as one to write to; ask for const "
          "elements, or copy it");
    }
  }
}

/// The shape of a tensor, checked to be dense elements of T on `device`.
template <class T>
Shape require_shape(const dlpack::Tensor& tensor, const std::vector<Axis>& axes,
                    dlpack::Device device) {
  const std::string where = "DLPack";
  if (tensor.device != device) {
    throw argument_error({where, ": the tensor lies on the device of ", text_of(tensor.device),
                          ", and was asked for on that of ", text_of(device),
                          " (type 1 is the CPU, 2 CUDA); copy it there first"});
  }
  const dlpack::Tensor::DataType wanted = dlpack_dtype<std::remove_const_t<T>>();
  if (tensor.dtype != wanted) {
    throw argument_error({where, ": the tensor has elements of ", text_of(tensor.dtype),
                          ", and was asked for as ", name(dtype_v<std::remove_const_t<T>>),
                          ", which is ", text_of(wanted), "; convert it first"});
  }
  if (tensor.ndim < 0 || (tensor.ndim > 0 && tensor.shape == nullptr)) {
    throw argument_error({where, ": the tensor says that it has ", tensor.ndim,
                          " axes, and no extents for them; its maker is at fault"});
  }
  if (static_cast<std::size_t>(tensor.ndim) != axes.size()) {
    throw shape_error({where, ": the tensor has ", tensor.ndim, " axes, but ", axes.size(),
                       " names were given for them; give one name for each axis"});
  }
  std::vector<std::uint64_t> extents;
  for (std::int32_t i = 0; i < tensor.ndim; ++i) {
    if (tensor.shape[i] < 0) {
      throw shape_error(
          {where, ": axis ", i, " has the extent ", tensor.shape[i], "; its maker is at fault"});
    }
    extents.push_back(static_cast<std::uint64_t>(tensor.shape[i]));
  }
  const Shape shape = named_shape(axes, extents, where);
  if (tensor.strides != nullptr) require_dense(shape, {tensor.strides, shape.rank()}, where);
  return shape;
}

/// The first element, after the offset; null for a tensor without elements.
template <class T>
T* require_elements(const dlpack::Tensor& tensor, const Shape& shape) {
  if (shape.elements() == 0) return nullptr;
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.data);
  const std::size_t bytes = shape.elements() * sizeof(T);
  if (tensor.data == nullptr) {
    throw argument_error({"DLPack: the tensor ", shape,
                          " has no memory (its data are null); its maker is at fault"});
  }
  if (tensor.byte_offset > UINTPTR_MAX - begin ||
      bytes > UINTPTR_MAX - begin - tensor.byte_offset) {
    throw argument_error(
        {"DLPack: the elements begin ", tensor.byte_offset,
         " bytes behind their memory, beyond all addresses; its maker is at fault"});
  }
  if ((begin + tensor.byte_offset) % alignof(T) != 0) {
    throw argument_error({"DLPack: the elements begin at an address that is no multiple of ",
                          alignof(T), " (", tensor.byte_offset,
                          " bytes behind their memory); give an aligned copy"});
  }
  return reinterpret_cast<T*>(static_cast<std::byte*>(tensor.data) + tensor.byte_offset);
}

}  // namespace detail

/// A tensor of another library, owned by this object.
template <class T, detail::DlpackManaged M = dlpack::ManagedTensorVersioned>
requires Element<std::remove_const_t<T>>
class DlpackTensor {
 public:
  /// Takes the handle, unless it throws.
  ///
  ///     axes     a name for each axis, outermost first
  ///     device   the device of the elements; only the GPU may read a view of its memory
  ///
  /// throws   argument_error for an empty handle, another major version of DLPack, another device
  ///          or dtype, a read-only tensor unless T is const, memory that is null or not aligned;
  ///          shape_error if there are not as many names as axes, for extents below zero or too
  ///          large, and for strides other than those of dense row-major memory
  DlpackTensor(DlpackHandle<M>&& handle, const std::vector<Axis>& axes,
               dlpack::Device device = {}) {
    detail::require_usable<T>(handle.get());
    const Shape shape = detail::require_shape<T>(handle->tensor, axes, device);
    view_ = {detail::require_elements<T>(handle->tensor, shape), shape, Place{}};
    handle_ = std::move(handle);
  }

  /// The elements, whole on this rank.
  View<T, Invariant> view() const { return view_; }

 private:
  DlpackHandle<M> handle_;
  View<T, Invariant> view_;
};

}  // namespace shardwise
