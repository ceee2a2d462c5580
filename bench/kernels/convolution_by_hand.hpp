#pragma once
// One convolution of images in two axes of space, without groups and dilation, as a sequence of
// oneDNN calls written by hand.

#include <algorithm>
#include <cstddef>
#include <list>
#include <utility>
#include <vector>

#include "kernels/by_hand.hpp"
#include "support/random_values.hpp"
#include "support/resnet50.hpp"

namespace by_hand {

/// In what layout images go through the primitives. The caller's lie channel by channel in any
/// case; what differs is copied there and back.
enum class Images { as_they_lie, as_the_library_likes, channels_last };

/// A tensor in the caller's memory and its copies in other layouts, each made by one call.
class Tensor {
 public:
  Tensor(const dnnl_memory_desc_t& plain, void* data) : plain_(plain), data_(data) {}

  const dnnl_memory_desc_t& plain() const { return plain_; }

  /// Memory in this layout; the caller's own if it lies so. `is_new` says whether nobody had asked
  /// for it before.
  void* in(const dnnl_memory_desc_t& layout, bool& is_new) {
    is_new = false;
    if (dnnl_memory_desc_equal(&layout, &plain_) != 0) return data_;
    for (Copy& copy : copies_) {
      if (dnnl_memory_desc_equal(&layout, &copy.layout) != 0) return copy.memory.get();
    }
    is_new = true;
    const std::size_t bytes = (dnnl_memory_desc_get_size(&layout) + 64) / 64 * 64;
    copies_.push_back({layout, std::unique_ptr<void, FreeMemory>(std::aligned_alloc(64, bytes))});
    return copies_.back().memory.get();
  }

  void* data() const { return data_; }

 private:
  struct Copy {
    dnnl_memory_desc_t layout;
    std::unique_ptr<void, FreeMemory> memory;
  };

  dnnl_memory_desc_t plain_;
  void* data_;
  std::list<Copy> copies_;
};

/// x, w, y and their gradients as the caller has them, all row-major, and the calls that compute
/// them. Copies are shared: what forward has copied for itself serves backward too.
template <class T>
class ConvolutionOf {
 public:
  ConvolutionOf(Library& library, const bench::ConvolutionShard& shard, Images images)
      : x(bench::random_values<T>(shard.x_size(), 1)),
        w(bench::random_values<T>(shard.w_size(), 2)),
        bias(bench::random_values<T>(shard.outputs(), 3)),
        y(shard.y_size()),
        dy(bench::random_values<T>(shard.y_size(), 4)),
        dx(shard.x_size()),
        dw(shard.w_size()),
        db(shard.outputs()),
        library_(&library),
        shard_(shard),
        images_(images) {
    for (const Step& step : forward_) step.call();
  }

  std::vector<T> x, w, bias, y, dy, dx, dw, db;

  /// y, with weights that are where the primitive wants them.
  void forward() const {
    for (const Step& step : forward_) {
      if (step.kind != Kind::weight) step.call();
    }
  }

  /// y, dw, db and dx, with weights that changed since the last time.
  void train() const {
    train_without_dx();
    for (const Step& step : backward_input_) step.call();
  }

  /// y, dw and db, as in the first layer of a network.
  void train_without_dx() const {
    for (const Step& step : forward_) step.call();
    for (const Step& step : backward_weight_) step.call();
  }

  /// The same with no copy at all, as in a network in which every tensor keeps the layouts that
  /// the library likes.
  void forward_without_copies() const { run_products(forward_); }
  void train_without_copies() const {
    run_products(forward_);
    run_products(backward_weight_);
    run_products(backward_input_);
  }

 private:
  enum class Kind { product, images, weight };
  struct Step {
    Kind kind;
    Call call;
  };
  using Steps = std::list<Step>;

  static void run_products(const Steps& steps) {
    for (const Step& step : steps) {
      if (step.kind == Kind::product) step.call();
    }
  }

  static dnnl_dim_t dim(std::size_t n) { return static_cast<dnnl_dim_t>(n); }

  static dnnl_memory_desc_t tagged(const std::vector<dnnl_dim_t>& dims, dnnl_format_tag_t tag) {
    return by_hand::tagged(dims, tag, type_of<T>);
  }

  using Dims = std::vector<dnnl_dim_t>;
  Dims x_dims() const {
    const auto& s = shard_.call.space;
    return {dim(shard_.call.images), dim(shard_.inputs()), dim(s[1].input), dim(s[2].input)};
  }
  Dims y_dims() const {
    const auto& s = shard_.call.space;
    return {dim(shard_.call.images), dim(shard_.outputs()), dim(s[1].output), dim(s[2].output)};
  }
  Dims w_dims() const {
    const auto& s = shard_.call.space;
    return {dim(shard_.outputs()), dim(shard_.inputs()), dim(s[1].kernel), dim(s[2].kernel)};
  }
  dnnl_memory_desc_t bias_desc() const { return tagged({dim(shard_.outputs())}, dnnl_a); }

  /// How a primitive is offered images.
  dnnl_memory_desc_t offered(const std::vector<dnnl_dim_t>& dims) const {
    return tagged(dims, images_ == Images::as_they_lie            ? dnnl_nchw
                        : images_ == Images::as_the_library_likes ? dnnl_format_tag_any
                                                                  : dnnl_nhwc);
  }

  /// Strides, dilation and padding in oneDNN's terms.
  struct Geometry {
    dnnl_dims_t strides{}, dilates{}, before{}, after{};
  };
  Geometry geometry() const {
    Geometry g;
    for (std::size_t i = 0; i < 2; ++i) {
      const shardwise::SpatialAxis& axis = shard_.call.space[1 + i];
      const dnnl_dim_t end = dim((axis.output - 1) * axis.stride + axis.kernel);
      g.strides[i] = dim(axis.stride);
      g.before[i] = dim(axis.before);
      g.after[i] = std::max<dnnl_dim_t>(0, end - dim(axis.before + axis.input));
    }
    return g;
  }

  dnnl_primitive_desc_t described(Pass pass) const {
    const dnnl_memory_desc_t x_any = offered(x_dims());
    const dnnl_memory_desc_t w_any = tagged(w_dims(), dnnl_format_tag_any);
    const dnnl_memory_desc_t y_any = offered(y_dims());
    const dnnl_memory_desc_t b = bias_desc();
    const Geometry g = geometry();
    constexpr auto direct = dnnl_convolution_direct;
    dnnl_convolution_desc_t op;
    must(dnnl_dilated_convolution_forward_desc_init(
             &op, dnnl_forward_training, direct, &x_any, &w_any,
             pass == Pass::backward_input ? nullptr : &b, &y_any, g.strides, g.dilates, g.before,
             g.after),
         "convolution");
    const dnnl_primitive_desc_t forward = describe(*library_, &op);
    if (pass == Pass::forward) return forward;
    must(pass == Pass::backward_weight
             ? dnnl_dilated_convolution_backward_weights_desc_init(
                   &op, direct, &x_any, &w_any, &b, &y_any, g.strides, g.dilates, g.before, g.after)
             : dnnl_dilated_convolution_backward_data_desc_init(
                   &op, direct, &x_any, &w_any, &y_any, g.strides, g.dilates, g.before, g.after),
         "convolution backward");
    const dnnl_primitive_desc_t backward = describe(*library_, &op, false, forward);
    dnnl_primitive_desc_destroy(forward);
    return backward;
  }

  static dnnl_memory_desc_t layout(const Call& call, dnnl_query_t what) {
    return *dnnl_primitive_desc_query_md(call.desc(), what, 0);
  }

  /// Binds a tensor that the product reads, after a copy where there is none yet.
  void reads(Steps& steps, Call& product, int argument, Tensor& tensor, dnnl_query_t what,
             Kind kind) const {
    const dnnl_memory_desc_t wanted = layout(product, what);
    bool is_new;
    void* const memory = tensor.in(wanted, is_new);
    if (is_new)
      steps.push_back({kind, reorder(*library_, tensor.plain(), tensor.data(), wanted, memory)});
    product.bind(argument, wanted, memory);
  }

  /// Binds a tensor that the product writes; returns what copies it to the caller afterwards.
  Steps writes(Call& product, int argument, Tensor& tensor, dnnl_query_t what, Kind kind) const {
    const dnnl_memory_desc_t written = layout(product, what);
    bool is_new;
    void* const memory = tensor.in(written, is_new);
    Steps after;
    if (is_new)
      after.push_back({kind, reorder(*library_, written, memory, tensor.plain(), tensor.data())});
    product.bind(argument, written, memory);
    return after;
  }

  Steps steps_of(Pass pass) {
    Steps steps, after;
    Call product(*library_, described(pass));
    if (pass != Pass::backward_input)
      reads(steps, product, DNNL_ARG_SRC, x_, dnnl_query_src_md, Kind::images);
    if (pass != Pass::forward)
      reads(steps, product, DNNL_ARG_DIFF_DST, dy_, dnnl_query_diff_dst_md, Kind::images);
    if (pass != Pass::backward_weight)
      reads(steps, product, DNNL_ARG_WEIGHTS, w_, dnnl_query_weights_md, Kind::weight);
    switch (pass) {
      case Pass::forward:
        product.bind(DNNL_ARG_BIAS, bias_desc(), bias.data());
        after = writes(product, DNNL_ARG_DST, y_, dnnl_query_dst_md, Kind::images);
        break;
      case Pass::backward_weight:
        product.bind(DNNL_ARG_DIFF_BIAS, bias_desc(), db.data());
        after =
            writes(product, DNNL_ARG_DIFF_WEIGHTS, dw_, dnnl_query_diff_weights_md, Kind::weight);
        break;
      case Pass::backward_input:
        after = writes(product, DNNL_ARG_DIFF_SRC, dx_, dnnl_query_diff_src_md, Kind::images);
    }
    steps.push_back({Kind::product, std::move(product)});
    steps.splice(steps.end(), after);
    return steps;
  }

  Library* library_;
  bench::ConvolutionShard shard_;
  Images images_;

  Tensor x_{tagged(x_dims(), dnnl_nchw), x.data()};
  Tensor w_{tagged(w_dims(), dnnl_oihw), w.data()};
  Tensor y_{tagged(y_dims(), dnnl_nchw), y.data()};
  Tensor dy_{tagged(y_dims(), dnnl_nchw), dy.data()};
  Tensor dx_{tagged(x_dims(), dnnl_nchw), dx.data()};
  Tensor dw_{tagged(w_dims(), dnnl_oihw), dw.data()};
  Steps forward_ = steps_of(Pass::forward);
  Steps backward_weight_ = steps_of(Pass::backward_weight);
  Steps backward_input_ = steps_of(Pass::backward_input);
};
using Convolution = ConvolutionOf<float>;

}  // namespace by_hand
