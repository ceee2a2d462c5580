#pragma once
// One convolution of images in two axes of space, without groups and dilation, as a sequence of
// oneDNN calls written by hand.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/by_hand.hpp"
#include "support/random_values.hpp"
#include "support/resnet50.hpp"

namespace by_hand {

/// In what layout images go through the primitives. The caller's lie channel by channel in any
/// case; what differs is copied there and back.
enum class Images { as_they_lie, as_the_library_likes, channels_last };

/// A tensor in the caller's memory and its copies in other layouts.
class Tensor {
 public:
  Tensor(const Library& library, const Desc& desc, void* data)
      : memories_{{desc, library.engine, data}} {}

  const dnnl::memory& plain() const { return memories_.front(); }

  /// Memory in this layout; the caller's own if it lies so. And whether nobody had asked for it
  /// before.
  std::pair<dnnl::memory, bool> in(const Desc& layout) {
    for (const dnnl::memory& memory : memories_)
      if (memory.get_desc() == layout) return {memory, false};
    return {memories_.emplace_back(layout, plain().get_engine()), true};
  }

 private:
  std::vector<dnnl::memory> memories_;  // the caller's first
};

/// x, w, y and their gradients as the caller has them, all row-major, and the calls that compute
/// them. Copies are shared: what forward has copied for itself serves backward too.
template <class T>
class ConvolutionOf {
 public:
  ConvolutionOf(const Library& library, const bench::ConvolutionShard& shard, Images images)
      : x(bench::random_values<T>(shard.x_size(), 1)),
        w(bench::random_values<T>(shard.w_size(), 2)),
        bias(bench::random_values<T>(shard.outputs(), 3)),
        y(shard.y_size()),
        dy(bench::random_values<T>(shard.y_size(), 4)),
        dx(shard.x_size()),
        dw(shard.w_size()),
        db(shard.outputs()),
        library_(library),
        shard_(shard),
        images_(images) {
    pack_();
  }
  ConvolutionOf(const ConvolutionOf&) = delete;

  std::vector<T> x, w, bias, y, dy, dx, dw, db;

  /// y, with weights that are where the primitive wants them.
  void forward() const { forward_(); }

  /// y, dw, db and dx, with weights that changed since the last time.
  void train() const { train_without_dx(), backward_input_(); }

  /// y, dw and db, as in the first layer of a network.
  void train_without_dx() const { pack_(), forward_(), backward_weight_(); }

 private:
  using Dims = dnnl::memory::dims;

  static Dim dim(std::size_t n) { return static_cast<Dim>(n); }

  const shardwise::SpatialAxis& space(std::size_t i) const { return shard_.call.space[1 + i]; }
  Dims x_dims() const {
    return {dim(shard_.call.images), dim(shard_.inputs()), dim(space(0).input),
            dim(space(1).input)};
  }
  Dims y_dims() const {
    return {dim(shard_.call.images), dim(shard_.outputs()), dim(space(0).output),
            dim(space(1).output)};
  }
  Dims w_dims() const {
    return {dim(shard_.outputs()), dim(shard_.inputs()), dim(space(0).kernel),
            dim(space(1).kernel)};
  }
  Desc bias_desc() const { return {{dim(shard_.outputs())}, type_of<T>, Tag::a}; }

  /// How a primitive is offered images.
  Desc offered(const Dims& dims) const {
    const Tag tag = images_ == Images::as_they_lie            ? Tag::nchw
                    : images_ == Images::as_the_library_likes ? Tag::any
                                                              : Tag::nhwc;
    return {dims, type_of<T>, tag};
  }

  dnnl::primitive_desc_base described(Pass pass) const {
    const auto after_of = [](const shardwise::SpatialAxis& axis) {
      const std::size_t end = (axis.output - 1) * axis.stride + axis.kernel;
      return std::max<Dim>(0, dim(end) - dim(axis.before + axis.input));
    };
    const Dims strides{dim(space(0).stride), dim(space(1).stride)};
    const Dims before{dim(space(0).before), dim(space(1).before)};
    const Dims after{after_of(space(0)), after_of(space(1))};
    const Desc of_x = offered(x_dims()), of_y = offered(y_dims()), of_b = bias_desc(),
               of_w(w_dims(), type_of<T>, Tag::any);
    constexpr auto direct = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        {dnnl::prop_kind::forward_training, direct, of_x, of_w, of_b, of_y, strides, before, after},
        attributes(), library_.engine);
    if (pass == Pass::forward) return forward;
    if (pass == Pass::backward_weight)
      return dnnl::convolution_backward_weights::primitive_desc(
          {direct, of_x, of_w, of_b, of_y, strides, before, after}, attributes(), library_.engine,
          forward);
    return dnnl::convolution_backward_data::primitive_desc(
        {direct, of_x, of_w, of_y, strides, before, after}, attributes(), library_.engine, forward);
  }

  /// Binds a tensor that the product reads, after a copy where there is none yet.
  void reads(Product& before, Call& product, int argument, Tensor& tensor, const Desc& wanted) {
    const auto [memory, is_new] = tensor.in(wanted);
    if (is_new) before.calls.push_back(reorder(library_, tensor.plain(), memory));
    product.bind(argument, memory);
  }

  /// Binds a tensor that the product writes, and copies it to the caller afterwards.
  void writes(Product& after, Call& product, int argument, Tensor& tensor, const Desc& written) {
    const auto [memory, is_new] = tensor.in(written);
    if (is_new) after.calls.push_back(reorder(library_, memory, tensor.plain()));
    product.bind(argument, memory);
  }

  Product calls_of(Pass pass) {
    using dnnl::query;
    const dnnl::primitive_desc_base desc = described(pass);
    const auto layout = [&](query what) { return desc.query_md(what); };
    Call product(library_, desc);
    Product all, after;
    if (pass != Pass::backward_input) reads(all, product, DNNL_ARG_SRC, x_, layout(query::src_md));
    if (pass != Pass::forward)
      reads(all, product, DNNL_ARG_DIFF_DST, dy_, layout(query::diff_dst_md));
    if (pass != Pass::backward_weight)
      reads(pass == Pass::forward ? pack_ : all, product, DNNL_ARG_WEIGHTS, w_,
            layout(query::weights_md));
    switch (pass) {
      case Pass::forward:
        product.bind(DNNL_ARG_BIAS, {bias_desc(), library_.engine, bias.data()});
        writes(after, product, DNNL_ARG_DST, y_, layout(query::dst_md));
        break;
      case Pass::backward_weight:
        product.bind(DNNL_ARG_DIFF_BIAS, {bias_desc(), library_.engine, db.data()});
        writes(after, product, DNNL_ARG_DIFF_WEIGHTS, dw_, layout(query::diff_weights_md));
        break;
      case Pass::backward_input:
        writes(after, product, DNNL_ARG_DIFF_SRC, dx_, layout(query::diff_src_md));
    }
    all.calls.push_back(product);
    all.calls.insert(all.calls.end(), after.calls.begin(), after.calls.end());
    return all;
  }

  Tensor tensor(const Dims& dims, std::vector<T>& values) {
    return {library_, {dims, type_of<T>, Tag::abcd}, values.data()};
  }

  Library library_;
  bench::ConvolutionShard shard_;
  Images images_;
  Tensor x_ = tensor(x_dims(), x), w_ = tensor(w_dims(), w), y_ = tensor(y_dims(), y),
         dy_ = tensor(y_dims(), dy), dx_ = tensor(x_dims(), dx), dw_ = tensor(w_dims(), dw);
  Product pack_;  // the weight for forward
  Product forward_ = calls_of(Pass::forward);
  Product backward_weight_ = calls_of(Pass::backward_weight);
  Product backward_input_ = calls_of(Pass::backward_input);
};
using Convolution = ConvolutionOf<float>;

}  // namespace by_hand
