// Stands in for the part of cuDNN's graph API that convolutions use, so that what is around it runs
// without a GPU: memory of the device is that of the host, and work is done when a call returns.
// Written from the library's documentation: descriptors keep attributes of the right types and
// counts, finalizing them wants all that are required, and executing works the products out in
// plain loops from nothing but the descriptors.

#include "cudnn/stand_in.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "cudnn/device_stand_in.hpp"
#include "shardwise/core/dtype.hpp"

struct cudnnContext {
  cudaStream_t stream = nullptr;
};

namespace {

using cudnn_stand_in::Engine;
using Numbers = std::vector<std::int64_t>;

struct Attribute {
  cudnnBackendAttributeType_t type;
  std::int64_t least, most;
  bool is_required = true;
};

/// What each kind of descriptor may be told.
const std::map<cudnnBackendDescriptorType_t, std::map<cudnnBackendAttributeName_t, Attribute>>&
attributes() {
  const auto operation = [](int x, int w, int y, int steps, int alpha, int beta) {
    std::map<cudnnBackendAttributeName_t, Attribute> result;
    for (const int name : {x, w, y, steps})
      result[static_cast<cudnnBackendAttributeName_t>(name)] = {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                                1};
    for (const int name : {alpha, beta})  // or double, see check_operation
      result[static_cast<cudnnBackendAttributeName_t>(name)] = {CUDNN_TYPE_FLOAT, 1, 1};
    return result;
  };
  static const std::map<cudnnBackendDescriptorType_t,
                        std::map<cudnnBackendAttributeName_t, Attribute>>
      all{
          {CUDNN_BACKEND_TENSOR_DESCRIPTOR,
           {{CUDNN_ATTR_TENSOR_UNIQUE_ID, {CUDNN_TYPE_INT64, 1, 1}},
            {CUDNN_ATTR_TENSOR_DATA_TYPE, {CUDNN_TYPE_DATA_TYPE, 1, 1}},
            {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, {CUDNN_TYPE_INT64, 1, 1}},
            {CUDNN_ATTR_TENSOR_DIMENSIONS, {CUDNN_TYPE_INT64, 1, 8}},
            {CUDNN_ATTR_TENSOR_STRIDES, {CUDNN_TYPE_INT64, 1, 8}},
            {CUDNN_ATTR_TENSOR_IS_VIRTUAL, {CUDNN_TYPE_BOOLEAN, 1, 1, false}}}},
          {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR,
           {{CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, {CUDNN_TYPE_INT64, 1, 1}},
            {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, {CUDNN_TYPE_DATA_TYPE, 1, 1}},
            {CUDNN_ATTR_CONVOLUTION_CONV_MODE, {CUDNN_TYPE_CONVOLUTION_MODE, 1, 1}},
            {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, {CUDNN_TYPE_INT64, 1, 6}},
            {CUDNN_ATTR_CONVOLUTION_DILATIONS, {CUDNN_TYPE_INT64, 1, 6}},
            {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, {CUDNN_TYPE_INT64, 1, 6}},
            {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, {CUDNN_TYPE_INT64, 1, 6}}}},
          {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
           operation(704, 703, 705, 702, 700, 701)},
          {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
           operation(710, 709, 711, 708, 706, 707)},
          {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
           operation(716, 715, 717, 714, 712, 713)},
          {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR,
           {{CUDNN_ATTR_OPERATIONGRAPH_HANDLE, {CUDNN_TYPE_HANDLE, 1, 1}},
            {CUDNN_ATTR_OPERATIONGRAPH_OPS, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}}},
          {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR,
           {{CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}},
            {CUDNN_ATTR_ENGINEHEUR_MODE, {CUDNN_TYPE_HEUR_MODE, 1, 1}}}},
          {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, {}},
          {CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}},
          {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
           {{CUDNN_ATTR_EXECUTION_PLAN_HANDLE, {CUDNN_TYPE_HANDLE, 1, 1}},
            {CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, {CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1}}}},
          {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
           {{CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, {CUDNN_TYPE_INT64, 1, 64}},
            {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, {CUDNN_TYPE_VOID_PTR, 1, 64}},
            {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {CUDNN_TYPE_VOID_PTR, 1, 1}}}},
      };
  return all;
}

struct Descriptor {
  struct Value {
    cudnnBackendAttributeType_t type;
    std::int64_t count;
    std::vector<unsigned char> bytes;
    std::shared_ptr<Descriptor> descriptor;
  };

  cudnnBackendDescriptorType_t type;
  bool is_final = false;
  std::map<cudnnBackendAttributeName_t, Value> values;
  std::shared_ptr<Descriptor> graph;  ///< of an engine's configuration and of a plan
  int engine = -1;
  bool is_captured = false;  ///< a plan that has run while a stream was captured

  template <class T>
  T one(cudnnBackendAttributeName_t name) const {
    T result;
    std::memcpy(&result, values.at(name).bytes.data(), sizeof result);
    return result;
  }
  Numbers numbers(cudnnBackendAttributeName_t name) const {
    const Value& value = values.at(name);
    Numbers result(static_cast<std::size_t>(value.count));
    std::memcpy(result.data(), value.bytes.data(), value.bytes.size());
    return result;
  }
  const Descriptor& at(cudnnBackendAttributeName_t name) const {
    return *values.at(name).descriptor;
  }
};

std::map<cudnnBackendDescriptor_t, std::shared_ptr<Descriptor>> descriptors;
std::set<cudnnHandle_t> handles;

/// What every call begins with: whether it is to fail, and what the count of allocations was.
class Call {
 public:
  Call()
      : fails_(cudnn_stand_in::calls_until_failure >= 0 &&
               cudnn_stand_in::calls_until_failure-- == 0),
        allocations_(cudnn_stand_in::allocations == nullptr ? 0 : *cudnn_stand_in::allocations) {}
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    if (cudnn_stand_in::allocations != nullptr) *cudnn_stand_in::allocations = allocations_;
  }

  bool fails() const { return fails_; }

 private:
  bool fails_;
  std::size_t allocations_;
};

const Engine& engine_of(int number) {
  const auto& a = cudnn_stand_in::of_mode_a;
  const auto n = static_cast<std::size_t>(number);
  return n < a.size() ? a[n] : cudnn_stand_in::of_fallback[n - a.size()];
}

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_FLOAT:
    case CUDNN_TYPE_DATA_TYPE:
    case CUDNN_TYPE_CONVOLUTION_MODE:
    case CUDNN_TYPE_HEUR_MODE:
      return 4;
    case CUDNN_TYPE_BOOLEAN:
      return 1;
    default:
      return 8;
  }
}

// --- a convolution by its descriptors -----------------------------------------------------------

/// Names of x, w, y, steps, alpha and beta.
std::array<cudnnBackendAttributeName_t, 6> names_of(cudnnBackendDescriptorType_t type) {
  const auto names = [](int x, int w, int y, int steps, int alpha, int beta) {
    const auto name = [](int number) { return static_cast<cudnnBackendAttributeName_t>(number); };
    return std::array{name(x), name(w), name(y), name(steps), name(alpha), name(beta)};
  };
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
    return names(704, 703, 705, 702, 700, 701);
  if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)
    return names(710, 709, 711, 708, 706, 707);
  return names(716, 715, 717, 714, 712, 713);
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ||
         type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
}

struct Tensor {
  explicit Tensor(const Descriptor& d)
      : id(d.one<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID)),
        alignment(d.one<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)),
        dtype(d.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
        sizes(d.numbers(CUDNN_ATTR_TENSOR_DIMENSIONS)),
        strides(d.numbers(CUDNN_ATTR_TENSOR_STRIDES)) {}

  double read(const void* data, std::int64_t at) const {
    const auto load = [&](auto number) {
      std::memcpy(&number, static_cast<const char*>(data) + at * std::int64_t{sizeof number},
                  sizeof number);
      return number;
    };
    if (dtype == CUDNN_DATA_DOUBLE) return load(double{});
    if (dtype == CUDNN_DATA_BFLOAT16) return double{float{load(shardwise::bf16{})}};
    if (dtype == CUDNN_DATA_HALF) return double{float{load(shardwise::fp16{})}};
    return double{load(float{})};
  }
  void write(void* data, std::int64_t at, double value) const {
    const auto store = [&](auto number) {
      std::memcpy(static_cast<char*>(data) + at * std::int64_t{sizeof number}, &number,
                  sizeof number);
    };
    const auto rounded = static_cast<float>(value);
    if (dtype == CUDNN_DATA_DOUBLE) return store(value);
    if (dtype == CUDNN_DATA_BFLOAT16) return store(shardwise::bf16(rounded));
    if (dtype == CUDNN_DATA_HALF) return store(shardwise::fp16(rounded));
    store(rounded);
  }

  /// Calls f(place in memory) for every element that the descriptor tells of.
  template <class F>
  void for_each(F f) const {
    std::int64_t count = 1;
    for (const std::int64_t size : sizes) count *= size;
    for (std::int64_t i = 0; i < count; ++i) {
      std::int64_t rest = i, at = 0;
      for (std::size_t axis = sizes.size(); axis-- > 0; rest /= sizes[axis])
        at += rest % sizes[axis] * strides[axis];
      f(at);
    }
  }

  std::int64_t id, alignment;
  cudnnDataType_t dtype;
  Numbers sizes, strides;
};

struct Steps {
  explicit Steps(const Descriptor& d)
      : axes(d.one<std::int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS)),
        sums(d.one<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE)),
        stride(d.numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES)),
        dilation(d.numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS)),
        before(d.numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS)),
        after(d.numbers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS)) {}

  std::int64_t axes;
  cudnnDataType_t sums;
  Numbers stride, dilation, before, after;
};

struct Problem {
  explicit Problem(const Descriptor& operation)
      : names(names_of(operation.type)),
        type(operation.type),
        x(operation.at(names[0])),
        w(operation.at(names[1])),
        y(operation.at(names[2])),
        steps(operation.at(names[3])),
        alpha(scale(operation, names[4])),
        beta(scale(operation, names[5])) {}

  static double scale(const Descriptor& operation, cudnnBackendAttributeName_t name) {
    return operation.values.at(name).type == CUDNN_TYPE_DOUBLE ? operation.one<double>(name)
                                                               : double{operation.one<float>(name)};
  }

  bool is_consistent() const {
    const auto axes = static_cast<std::size_t>(steps.axes);
    if (axes != 2 && axes != 3) return false;
    for (const Tensor* t : {&x, &w, &y})
      if (t->sizes.size() != axes + 2 || t->dtype != x.dtype) return false;
    if (x.sizes[0] != y.sizes[0] || w.sizes[0] != y.sizes[1] || x.sizes[1] % w.sizes[1] != 0 ||
        w.sizes[0] % (x.sizes[1] / w.sizes[1]) != 0)
      return false;
    for (std::size_t k = 0; k < axes; ++k) {
      const std::int64_t reach = (w.sizes[k + 2] - 1) * steps.dilation[k] + 1;
      const std::int64_t padded = x.sizes[k + 2] + steps.before[k] + steps.after[k];
      if (padded < reach || (padded - reach) / steps.stride[k] + 1 != y.sizes[k + 2]) return false;
    }
    return steps.sums == (x.dtype == CUDNN_DATA_DOUBLE ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  }

  /// Calls f(place in y, place in x, place in w) for every product.
  template <class F>
  void for_each_product(F f) const {
    const std::int64_t of_group = w.sizes[0] / (x.sizes[1] / w.sizes[1]);
    const auto axes = static_cast<std::size_t>(steps.axes);
    std::int64_t outputs = 1, taps = 1;
    for (std::size_t k = 2; k < axes + 2; ++k) outputs *= y.sizes[k], taps *= w.sizes[k];
    for (std::int64_t p = 0; p < outputs; ++p)
      for (std::int64_t t = 0; t < taps; ++t) {
        std::int64_t in_y = 0, in_x = 0, in_w = 0, rest_p = p, rest_t = t;
        bool is_inside = true;
        for (std::size_t k = axes; k-- > 0;) {
          const std::int64_t o = rest_p % y.sizes[k + 2], tap = rest_t % w.sizes[k + 2];
          rest_p /= y.sizes[k + 2], rest_t /= w.sizes[k + 2];
          const std::int64_t i = o * steps.stride[k] + tap * steps.dilation[k] - steps.before[k];
          is_inside = is_inside && i >= 0 && i < x.sizes[k + 2];
          in_y += o * y.strides[k + 2], in_x += i * x.strides[k + 2];
          in_w += tap * w.strides[k + 2];
        }
        if (!is_inside) continue;
        for (std::int64_t n = 0; n < x.sizes[0]; ++n)
          for (std::int64_t o = 0; o < w.sizes[0]; ++o)
            for (std::int64_t i = 0; i < w.sizes[1]; ++i)
              f(in_y + n * y.strides[0] + o * y.strides[1],
                in_x + n * x.strides[0] + (o / of_group * w.sizes[1] + i) * x.strides[1],
                in_w + o * w.strides[0] + i * w.strides[1]);
      }
  }

  const Tensor& result() const {
    if (type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR) return y;
    return type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? x : w;
  }

  void run(void* at_x, void* at_w, void* at_y, double error) const {
    std::map<std::int64_t, double> sums;
    for_each_product([&](std::int64_t in_y, std::int64_t in_x, std::int64_t in_w) {
      if (&result() == &y) sums[in_y] += x.read(at_x, in_x) * w.read(at_w, in_w);
      if (&result() == &x) sums[in_x] += y.read(at_y, in_y) * w.read(at_w, in_w);
      if (&result() == &w) sums[in_w] += y.read(at_y, in_y) * x.read(at_x, in_x);
    });
    void* const to = &result() == &y ? at_y : &result() == &x ? at_x : at_w;
    result().for_each([&](std::int64_t at) {
      const double old = beta == 0 ? 0 : beta * result().read(to, at);
      result().write(to, at, alpha * sums[at] + old + error);
    });
  }

  std::array<cudnnBackendAttributeName_t, 6> names;
  cudnnBackendDescriptorType_t type;
  Tensor x, w, y;
  Steps steps;
  double alpha, beta;
};

// --- what a descriptor must be to be final ------------------------------------------------------

bool is_final(const Descriptor& d, cudnnBackendAttributeName_t name,
              cudnnBackendDescriptorType_t type) {
  return d.at(name).is_final && d.at(name).type == type;
}

cudnnStatus_t check_tensor(const Descriptor& d) {
  const Numbers sizes = d.numbers(CUDNN_ATTR_TENSOR_DIMENSIONS);
  const Numbers strides = d.numbers(CUDNN_ATTR_TENSOR_STRIDES);
  const bool is_right =
      sizes.size() == strides.size() &&
      std::all_of(sizes.begin(), sizes.end(), [](std::int64_t n) { return n > 0; }) &&
      std::all_of(strides.begin(), strides.end(), [](std::int64_t n) { return n > 0; });
  return is_right ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t check_steps(const Descriptor& d) {
  const Steps steps(d);
  const auto axes = static_cast<std::size_t>(steps.axes);
  const auto at_least = [&](const Numbers& numbers, std::int64_t least) {
    return numbers.size() == axes &&
           std::all_of(numbers.begin(), numbers.end(), [&](std::int64_t n) { return n >= least; });
  };
  const bool is_right =
      at_least(steps.stride, 1) && at_least(steps.dilation, 1) && at_least(steps.before, 0) &&
      at_least(steps.after, 0) &&
      d.one<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION;
  return is_right ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

bool pads_equally(const Descriptor& operation) {
  const Problem problem(operation);
  return problem.steps.before == problem.steps.after;
}

cudnnStatus_t check_operation(const Descriptor& d) {
  const auto names = names_of(d.type);
  for (std::size_t k = 0; k < 3; ++k)
    if (!is_final(d, names[k], CUDNN_BACKEND_TENSOR_DESCRIPTOR)) return CUDNN_STATUS_BAD_PARAM;
  if (!is_final(d, names[3], CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)) return CUDNN_STATUS_BAD_PARAM;
  const Problem problem(d);
  const auto scales =
      problem.steps.sums == CUDNN_DATA_DOUBLE ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  for (std::size_t k = 4; k < 6; ++k)
    if (d.values.at(names[k]).type != scales) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
  if (!problem.is_consistent()) {
    ++cudnn_stand_in::mismatches;
    return CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;
  }
  return cudnn_stand_in::takes_unequal_padding || pads_equally(d) ? CUDNN_STATUS_SUCCESS
                                                                  : CUDNN_STATUS_NOT_SUPPORTED;
}

cudnnStatus_t check_plan(Descriptor& d) {
  const Descriptor& config = d.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  if (config.engine < 0 ||
      !handles.contains(d.one<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE)))
    return CUDNN_STATUS_BAD_PARAM;
  const cudnn_stand_in::Engine& engine = engine_of(config.engine);
  if (!engine.has_plan ||
      !(engine.pads_unequally || pads_equally(config.graph->at(CUDNN_ATTR_OPERATIONGRAPH_OPS))))
    return CUDNN_STATUS_NOT_SUPPORTED;
  d.engine = config.engine;
  d.graph = config.graph;
  ++cudnn_stand_in::plans;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_final(Descriptor& d) {
  if (is_operation(d.type)) return check_operation(d);
  switch (d.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
      return check_tensor(d);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR:
      return check_steps(d);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: {
      const Descriptor& operation = d.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
      return operation.is_final && is_operation(operation.type) ? CUDNN_STATUS_SUCCESS
                                                                : CUDNN_STATUS_BAD_PARAM;
    }
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      return is_final(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                      CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                 ? CUDNN_STATUS_SUCCESS
                 : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      return check_plan(d);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
      return d.values.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count ==
                     d.values.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count
                 ? CUDNN_STATUS_SUCCESS
                 : CUDNN_STATUS_BAD_PARAM;
    default:
      return CUDNN_STATUS_NOT_SUPPORTED;
  }
}

/// Configurations of the engines of a heuristic's mode are written into descriptors that are there.
std::int64_t give_proposals(const Descriptor& heuristic, std::int64_t room, void* into) {
  const auto mode = heuristic.one<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  const bool is_a = mode == CUDNN_HEUR_MODE_A;
  const auto& engines = is_a ? cudnn_stand_in::of_mode_a : cudnn_stand_in::of_fallback;
  const auto count = static_cast<std::int64_t>(engines.size());
  if (room == 0) return count;
  const auto first = is_a ? 0 : static_cast<int>(cudnn_stand_in::of_mode_a.size());
  auto* const out = static_cast<cudnnBackendDescriptor_t*>(into);
  for (std::int64_t k = 0; k < std::min(room, count); ++k) {
    Descriptor& config = *descriptors.at(out[k]);
    config.engine = first + static_cast<int>(k);
    config.graph = heuristic.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptor;
    config.is_final = true;
  }
  return std::min(room, count);
}

}  // namespace

// --- the functions ------------------------------------------------------------------------------

extern "C" {

size_t cudnnGetVersion() { return CUDNN_VERSION; }
const char* cudnnGetErrorString(cudnnStatus_t) { return "a status of the stand-in"; }

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  *handle = *handles.insert(new cudnnContext).first;
  ++cudnn_stand_in::alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  if (handles.erase(handle) == 0) return CUDNN_STATUS_BAD_PARAM;
  delete handle;
  --cudnn_stand_in::alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  handle->stream = stream;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  if (!attributes().contains(type)) return CUDNN_STATUS_NOT_SUPPORTED;
  auto made = std::make_shared<Descriptor>();
  made->type = type;
  *descriptor = made.get();
  descriptors.emplace(*descriptor, std::move(made));
  ++cudnn_stand_in::alive;
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const auto found = descriptors.find(descriptor);
  if (found == descriptors.end()) return CUDNN_STATUS_BAD_PARAM;
  if (found->second->is_captured) --cudnn_stand_in::captured_plans;
  descriptors.erase(found);
  --cudnn_stand_in::alive;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* values) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  Descriptor& d = *descriptors.at(descriptor);
  const auto& known = attributes().at(d.type);
  const auto found = known.find(name);
  if (d.is_final || found == known.end() || values == nullptr) return CUDNN_STATUS_BAD_PARAM;
  const Attribute& attribute = found->second;
  const bool is_scale = attribute.type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE;
  if (type != attribute.type && !is_scale) return CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE;
  if (count < attribute.least || count > attribute.most) return CUDNN_STATUS_BAD_PARAM;
  Descriptor::Value value{type, count, {}, nullptr};
  value.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
  std::memcpy(value.bytes.data(), values, value.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
    value.descriptor = descriptors.at(*static_cast<const cudnnBackendDescriptor_t*>(values));
  d.values[name] = std::move(value);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  Descriptor& d = *descriptors.at(descriptor);
  for (const auto& [name, attribute] : attributes().at(d.type))
    if (attribute.is_required && !d.values.contains(name)) return CUDNN_STATUS_BAD_PARAM;
  const cudnnStatus_t status = check_final(d);
  d.is_final = status == CUDNN_STATUS_SUCCESS;
  return status;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t room,
                                       std::int64_t* count, void* values) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  const Descriptor& d = *descriptors.at(descriptor);
  if (!d.is_final) return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  if (d.type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS &&
      type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    *count = give_proposals(d, room, values);
    return CUDNN_STATUS_SUCCESS;
  }
  if (d.type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE &&
      type == CUDNN_TYPE_BACKEND_DESCRIPTOR && room == 1) {
    Descriptor& engine = *descriptors.at(*static_cast<cudnnBackendDescriptor_t*>(values));
    if (engine.type != CUDNN_BACKEND_ENGINE_DESCRIPTOR) return CUDNN_STATUS_BAD_PARAM;
    engine.engine = d.engine;
    engine.is_final = true;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  if (d.type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE &&
      type == CUDNN_TYPE_NUMERICAL_NOTE) {
    const auto& notes = engine_of(d.engine).notes;
    *count = static_cast<std::int64_t>(notes.size());
    for (std::int64_t k = 0; k < std::min(room, *count); ++k)
      static_cast<cudnnBackendNumericalNote_t*>(values)[k] = notes[static_cast<std::size_t>(k)];
    return CUDNN_STATUS_SUCCESS;
  }
  if (d.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
      name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64 && room == 1) {
    *static_cast<std::int64_t*>(values) = engine_of(d.engine).workspace_bytes;
    *count = 1;
    return CUDNN_STATUS_SUCCESS;
  }
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t pack) {
  const Call call;
  if (call.fails()) return cudnn_stand_in::failure;
  Descriptor& p = *descriptors.at(plan);
  const Descriptor& v = *descriptors.at(pack);
  if (!handles.contains(handle) || !p.is_final || !v.is_final)
    return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
  const Engine& engine = engine_of(p.engine);
  if (engine.fails) return CUDNN_STATUS_EXECUTION_FAILED;
  auto* const workspace = v.one<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (engine.workspace_bytes > 0) {
    if (workspace == nullptr) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    std::memset(workspace, 0xff, static_cast<std::size_t>(engine.workspace_bytes));
  }
  const Problem problem(p.graph->at(CUDNN_ATTR_OPERATIONGRAPH_OPS));
  const Numbers ids = v.numbers(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const Numbers pointers = v.numbers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::array<void*, 3> data{};
  const std::array<const Tensor*, 3> tensors{&problem.x, &problem.w, &problem.y};
  for (std::size_t k = 0; k < 3; ++k) {
    const auto found = std::find(ids.begin(), ids.end(), tensors[k]->id);
    if (found == ids.end()) return CUDNN_STATUS_BAD_PARAM;
    const std::int64_t address = pointers[static_cast<std::size_t>(found - ids.begin())];
    if (address == 0) return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (address % tensors[k]->alignment != 0) return CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER;
    std::memcpy(&data[k], &address, sizeof address);
  }
  if (device_stand_in::is_capturing && !std::exchange(p.is_captured, true))
    ++cudnn_stand_in::captured_plans;
  problem.run(data[0], data[1], data[2], engine.error);
  cudnn_stand_in::last_engine = p.engine;
  ++cudnn_stand_in::runs;
  return CUDNN_STATUS_SUCCESS;
}

}  // extern "C"
