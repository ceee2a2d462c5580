// DLPack: the layout of its structs, round trips, who frees what, and what is refused.

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "shardwise/interop/dlpack.hpp"
#include "support/error_of.hpp"

using namespace shardwise;
using testing::error_of;
using testing::says;

// The published layout, for 8-byte pointers.
static_assert(offsetof(dlpack::Tensor, data) == 0 && offsetof(dlpack::Tensor, device) == 8 &&
              offsetof(dlpack::Tensor, ndim) == 16 && offsetof(dlpack::Tensor, dtype) == 20 &&
              offsetof(dlpack::Tensor, shape) == 24 && offsetof(dlpack::Tensor, strides) == 32 &&
              offsetof(dlpack::Tensor, byte_offset) == 40);
static_assert(offsetof(dlpack::ManagedTensor, tensor) == 0 &&
              offsetof(dlpack::ManagedTensor, manager) == 48 &&
              offsetof(dlpack::ManagedTensor, deleter) == 56);
static_assert(offsetof(dlpack::ManagedTensorVersioned, version) == 0 &&
              offsetof(dlpack::ManagedTensorVersioned, manager) == 8 &&
              offsetof(dlpack::ManagedTensorVersioned, deleter) == 16 &&
              offsetof(dlpack::ManagedTensorVersioned, flags) == 24 &&
              offsetof(dlpack::ManagedTensorVersioned, tensor) == 32);

// A tensor of no memory yet begins at its memory, and its strides are dense.
static_assert(dlpack::Tensor{}.byte_offset == 0 && dlpack::Tensor{}.ndim == 0 &&
              dlpack::Tensor{}.shape == nullptr && dlpack::Tensor{}.strides == nullptr);

namespace {

const Shape shape{{Axis::batch, 2}, {Axis::feature, 3}};
const std::vector<Axis> axes{Axis::batch, Axis::feature};

/// A tensor of a foreign maker, good until a test changes it; counts calls of its deleter.
struct Foreign {
  std::vector<float> memory{0, 1, 2, 3, 4, 5, 6, 7};
  std::vector<std::int64_t> extents{2, 3};
  std::vector<std::int64_t> strides{3, 1};
  int deleted = 0;
  dlpack::ManagedTensorVersioned managed;

  Foreign() {
    managed.manager = this;
    managed.deleter = [](dlpack::ManagedTensorVersioned* m) {
      ++static_cast<Foreign*>(m->manager)->deleted;
    };
    managed.tensor = {
        memory.data(),  {}, 2, {dlpack::Tensor::DataType::Code::real, 32}, extents.data(),
        strides.data(), 0};
  }
};

/// Changes a foreign tensor, and says what asking for `T` then throws; it must stay with its owner.
template <class T = float, class Change>
std::string refusal(Change&& change, const std::vector<Axis>& names = axes) {
  Foreign foreign;
  change(foreign);
  DlpackHandle<> handle(&foreign.managed);
  const std::string text = error_of([&] { DlpackTensor<T>(std::move(handle), names); });
  CHECK(handle.get() == &foreign.managed);
  CHECK(foreign.deleted == 0);
  handle.reset();
  CHECK(foreign.deleted == 1);
  return text;
}

template <class T>
void check_round_trip() {
  Tensor<T, Invariant> tensor(shape);
  for (std::size_t i = 0; i < 6; ++i) tensor[i] = T(static_cast<accumulate_t<T>>(i));
  const T* const memory = tensor.data();
  auto handle = to_dlpack(std::move(tensor));
  CHECK(handle->version.major == 1);
  CHECK(handle->version.minor == 1);
  const DlpackTensor<T> back(std::move(handle), axes);
  CHECK(back.view().data() == memory);
  CHECK(back.view().global() == shape);
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(static_cast<double>(back.view()[i]) == static_cast<double>(i));
  }
}

}  // namespace

TEST_CASE("a tensor goes out and comes back without a copy") {
  check_round_trip<float>();
  check_round_trip<double>();
  check_round_trip<bf16>();
  check_round_trip<fp16>();
  check_round_trip<std::int32_t>();
  check_round_trip<std::int64_t>();
  check_round_trip<std::uint8_t>();
}

TEST_CASE("the owner lives until the deleter is called") {
  auto owner = std::make_shared<std::vector<float>>(6);
  const View<float, Invariant> view(*owner, shape, {});
  auto current = to_dlpack(view, owner);
  auto older = to_dlpack<dlpack::ManagedTensor>(view, owner);
  CHECK(owner.use_count() == 3);
  dlpack::ManagedTensorVersioned* out = current.release();
  CHECK(out->flags == 0);
  CHECK(out->tensor.strides[0] == 3);
  CHECK(out->tensor.strides[1] == 1);
  out->deleter(out);
  CHECK(owner.use_count() == 2);
  {
    const DlpackTensor<float, dlpack::ManagedTensor> back(std::move(older), axes);
    CHECK(back.view().data() == owner->data());
  }
  CHECK(owner.use_count() == 1);
}

TEST_CASE("const elements stay const") {
  const auto owner = std::make_shared<std::vector<float>>(6);
  const View<const float, Invariant> view(owner->data(), shape, {});
  auto handle = to_dlpack(view, owner);
  CHECK(handle->flags == dlpack::ManagedTensorVersioned::read_only);
  CHECK(says(error_of([&] { DlpackTensor<float>(std::move(handle), axes); }), "argument_error",
             "read-only"));
  const DlpackTensor<const float> back(std::move(handle), axes);
  CHECK(back.view().data() == owner->data());
}

TEST_CASE("a rank's part goes out with its local shape") {
  Tensor<float, Sharded<Axis::feature>> part(shape, {0, 2});
  const auto handle = to_dlpack(std::move(part));
  CHECK(handle->tensor.shape[0] == 2);
  CHECK(handle->tensor.shape[1] == 2);
  CHECK(handle->tensor.strides[0] == 2);
}

TEST_CASE("offsets, absent strides, and strides that say nothing are good") {
  Foreign offset;
  offset.managed.tensor.byte_offset = 8;
  offset.managed.tensor.strides = nullptr;
  const DlpackTensor<float> second(DlpackHandle<>(&offset.managed), axes);
  CHECK(second.view()[0] == 2);

  Foreign one_row;
  one_row.extents = {1, 3};
  one_row.strides = {-77, 1};
  one_row.managed.tensor.shape = one_row.extents.data();
  one_row.managed.tensor.strides = one_row.strides.data();
  CHECK(DlpackTensor<float>(DlpackHandle<>(&one_row.managed), axes).view().size() == 3);
  CHECK(one_row.deleted == 1);

  Foreign empty;
  empty.extents[0] = 0;
  empty.managed.tensor.data = nullptr;
  CHECK(DlpackTensor<float>(DlpackHandle<>(&empty.managed), axes).view().size() == 0);
}

TEST_CASE("what is refused") {
  const auto nothing = [](Foreign&) {};
  CHECK(says(error_of([] { DlpackTensor<float>(DlpackHandle<>(), axes); }), "argument_error",
             "empty"));
  CHECK(says(refusal([](Foreign& f) {
               f.managed.version = {2, 0};
             }),
             "argument_error", "version 2.0, and version 1 is read"));
  CHECK(says(refusal([](Foreign& f) {
               f.managed.tensor.device = {dlpack::Device::Type::cuda, 1};
             }),
             "argument_error", "type 2 number 1, and was asked for on that of type 1 number 0"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.device.type = dlpack::Device::Type::cuda; }),
             "argument_error", "type 2 number 0, and was asked for on that of type 1 number 0"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.device.id = 3; }), "argument_error",
             "type 1 number 3"));
  CHECK(says(refusal<double>(nothing), "argument_error", "was asked for as float64"));
  CHECK(says(refusal<std::int32_t>(nothing), "argument_error", "was asked for as int32"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.dtype.lanes = 4; }), "argument_error",
             "4 lanes"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.ndim = -1; }), "argument_error", "-1 axes"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.shape = nullptr; }), "argument_error",
             "no extents"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.ndim = 2'000'000'000; }), "shape_error",
             "has 2000000000 axes, but 2 names"));
  CHECK(says(refusal(nothing, {Axis::feature}), "shape_error", "has 2 axes, but 1 names"));
  CHECK(says(refusal([](Foreign& f) { f.extents[1] = -3; }), "shape_error", "the extent -3"));
  CHECK(says(refusal([](Foreign& f) { f.extents[0] = f.extents[1] = INT64_MAX; }), "shape_error",
             "more elements than can be counted"));
  CHECK(says(refusal([](Foreign& f) {
               f.strides = {1, 2};
               f.managed.tensor.strides = f.strides.data();
             }),
             "shape_error", "axis 0 of [batch 2, feature 3] has the stride 1"));
  CHECK(says(refusal([](Foreign& f) { f.strides[0] = 4; }), "shape_error", "has the stride 4"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.data = nullptr; }), "argument_error",
             "no memory"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.byte_offset = 2; }), "argument_error",
             "no multiple of 4"));
  CHECK(says(refusal([](Foreign& f) { f.managed.tensor.byte_offset = UINT64_MAX - 3; }),
             "argument_error", "beyond all addresses"));
}
